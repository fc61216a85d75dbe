use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::health::ClientHealth;

fn loss(token: u64) -> LeaseLoss {
    let (lock, slot) = ("a".into(), Slot::of("a"));
    LeaseLoss {
        lock,
        slot,
        mode: LockMode::Read,
        fencing_token: FencingToken::from_wire(token),
        held_for: Duration::ZERO,
        guard_count: 1,
    }
}

#[tokio::test]
async fn on_lost_listener_that_panics_gets_every_loss_in_order() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let tell = heard.clone();
    let on_lease_lost = LossListener(Some(Arc::new(move |loss: &LeaseLoss| {
        lock(&tell).push(loss.fencing_token.map_or(0, u64::from));
        assert!(!loss.fencing_token.map_or(0, u64::from).is_multiple_of(3), "as the test wants");
    })));
    let reports = LossReports::new(on_lease_lost, RuntimeHandle::current(ClientHealth::default()));
    for _ in 0..2 {
        (1..101).for_each(|token| reports.push(loss(token)));
        assert!(heard.lock().unwrap().is_empty(), "not by the caller");
        reports.delivered().await;
        let heard = std::mem::take(&mut *lock(&heard));
        assert!(heard.into_iter().eq(1..101));
    }
    assert_eq!(reports.runtime.health().failure(), None);
    assert_eq!(Arc::strong_count(&reports), 1, "the task has ended");
}

#[tokio::test]
async fn a_listener_that_is_far_behind_costs_a_bounded_memory() {
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    let on_lease_lost = LossListener(Some(Arc::new(move |_: &LeaseLoss| {
        count.fetch_add(1, Ordering::Relaxed);
    })));
    let reports = LossReports::new(on_lease_lost, RuntimeHandle::current(ClientHealth::default()));
    (1..MAX_QUEUED as u64 + 11).for_each(|token| reports.push(loss(token)));
    assert_eq!(lock(&reports.queue).losses.len(), MAX_QUEUED);
    reports.delivered().await;
    assert_eq!(heard.load(Ordering::Relaxed), MAX_QUEUED);
}

#[test]
fn deliveries_end_with_their_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let on_lease_lost = LossListener(Some(Arc::new(|_: &LeaseLoss| {})));
    let reports = {
        let _inside = runtime.enter();
        LossReports::new(on_lease_lost, RuntimeHandle::current(ClientHealth::default()))
    };
    reports.push(loss(1));
    drop(runtime);
    reports.push(loss(2));
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    other.block_on(reports.delivered());
    assert!(lock(&reports.queue).losses.is_empty());
}
