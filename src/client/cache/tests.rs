//! Interleavings that calls of a user cannot force.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::LockMode;

use super::cached_lease::CachedLease;
use super::{CachedLock, CachedLockMap, LocalAcquire, UncachedReason};
use crate::embedded::EmbeddedCluster;
use crate::{CachedRwLock, Client};

const MS: Duration = Duration::from_millis(1);

fn engine() -> EmbeddedCluster {
    EmbeddedCluster::builder().masters(1).replicas(0).build()
}

/// A client that has the lock cached as a write, without guards.
async fn cached(engine: &EmbeddedCluster) -> (Client, CachedRwLock, Arc<CachedLock>) {
    let locks = Client::builder().connect_embedded(engine).await.unwrap();
    let lock = locks.rwlock("cached").unwrap();
    let handle = lock.cached().unwrap();
    for _ in 0..20 {
        drop(handle.write().await.unwrap());
        tokio::time::sleep(MS).await; // until it has subscribed
    }
    assert_eq!(handle.cache_status().hold, Some(LockMode::Write));
    let cached_lock = locks.client.0.cached_lock(&lock.lock);
    (locks, handle, cached_lock)
}

/// Admits a writer, and takes the last token from it.
#[tokio::test(start_paused = true)]
async fn a_request_that_counts_on_a_writer_without_a_token_is_served() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    let lease = cached_lock.lease().unwrap();
    assert!(lease.gate.state.try_enter_writer());
    let reader = tokio::spawn(async move { handle.read().timeout(50 * MS).await.map(drop) });
    tokio::task::yield_now().await;
    assert_eq!(cached_lock.status().waiting, 1);
    lease.gate.exhaust_tokens();
    assert!(lease.start_share(LockMode::Write).is_none());
    reader.await.unwrap().unwrap();
}

/// The task opens the gate when the last writer of a block leaves.
#[tokio::test(start_paused = true)]
async fn cached_read_beyond_the_last_token_waits_for_new_tokens() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    let lease = cached_lock.lease().unwrap();
    let writer = lease.enter(LockMode::Write, cached_lock.client().clock.now()).unwrap();
    lease.gate.exhaust_tokens();
    let last = writer.fencing_token();
    assert_eq!(last, lease.gate.last_owned_token());
    drop(writer);
    assert!(!lease.gate.snapshot().is_open());
    lease.gate.state.open();
    assert!(
        cached_lock.try_fast_path(LockMode::Read, cached_lock.client().clock.now()).is_none(),
        "its token would be past {last}"
    );
    // The waiting reader is admitted with the next tokens.
    let reader = handle.read().timeout(50 * MS).await.unwrap();
    assert!(
        reader.fencing_token().get() > last
            && reader.fencing_token().get() <= lease.gate.last_owned_token()
    );
}

/// The server gives no more tokens, so the reader needs another lease.
#[tokio::test(start_paused = true)]
async fn a_gate_that_was_opened_without_a_token_is_shut() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    let lease = cached_lock.lease().unwrap();
    let writer = lease.enter(LockMode::Write, cached_lock.client().clock.now()).unwrap();
    engine.faults().step_clock(0, -60_000);
    lease.gate.exhaust_tokens();
    let last = writer.fencing_token();
    drop(writer);
    lease.gate.state.open();
    let reader = handle.read().timeout(500 * MS).await.unwrap();
    assert!(reader.fencing_token().get() > last);
}

/// The task can be late. The clock then stops grants in its place.
#[tokio::test(start_paused = true)]
async fn after_a_recall_no_guard_comes_out_when_the_minimum_hold_is_over() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    let old = cached_lock.lease().unwrap();
    old.acquisition.recall(LockMode::Write);
    tokio::time::sleep(MS).await;
    assert!(cached_lock.lease().is_none(), "it was idle");
    let guard = handle.read().await.unwrap();
    let lease = cached_lock.lease().unwrap();
    let at = |time: Duration| {
        lease.enter(LockMode::Read, lease.granted_at.saturating_add(time)).is_some()
    };
    assert!(at(Duration::from_secs(1)));
    lease.acquisition.recall(LockMode::Write);
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    assert!(at(4 * MS) && !at(5 * MS));
    drop(guard);
}

/// The gate is closed, and the last guard stays: one keep-alive a second keeps the lease.
#[tokio::test(start_paused = true)]
async fn a_guard_that_outstays_a_recall_costs_one_call_a_second() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    let guard = handle.write().await.unwrap();
    let lease = cached_lock.lease().unwrap();
    lease.acquisition.recall(LockMode::Write);
    tokio::time::sleep(10 * MS).await;
    assert!(cached_lock.lease().is_none(), "the gate is closed");
    engine.reset_script_stats();
    tokio::time::sleep(10_000 * MS).await;
    let calls = engine.script_stats().scripts;
    assert!((9..=12).contains(&calls), "{calls} calls");
    assert!(guard.is_held());
    assert_eq!(
        lease.acquisition.with_lease(|held| held.mode),
        Some(LockMode::Write),
        "it has a writer"
    );
}

/// The gate opens before the task serves the queue.
#[tokio::test(start_paused = true)]
async fn waiters_are_not_overtaken_when_the_gate_opens() {
    let (_locks, _handle, cached_lock) = cached(&engine()).await;
    let now = cached_lock.client().clock.now();
    let lease = cached_lock.lease().unwrap();
    assert!(lease.gate.state.try_enter_writer());
    let waiting = [(); 2].map(|()| cached_lock.begin_acquire(LockMode::Read, now).unwrap());
    assert!(waiting.iter().all(|begun| matches!(begun, LocalAcquire::Queued(_))));
    let token = lease.gate.last_owned_token();
    let next = CachedLease::new(
        cached_lock.clone(),
        lease.acquisition.clone(),
        LockMode::Write,
        token,
        now,
    );
    let next = Arc::new(next);
    assert!(cached_lock.install_lease(&next), "it serves the first");
    next.gate.state.open();
    assert!(!next.gate.state.try_enter_reader(), "the second one waits");
}

#[tokio::test(start_paused = true)]
async fn a_writer_does_not_wait_for_the_end_of_an_idle_read() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    cached_lock.lease().unwrap().acquisition.recall(LockMode::Write);
    tokio::time::sleep(MS).await;
    drop(handle.read().await.unwrap());
    assert_eq!(handle.cache_status().hold, Some(LockMode::Read));
    drop(handle.write().timeout(50 * MS).await.unwrap());
}

/// A read that is left of a recalled write may be used for long.
#[tokio::test(start_paused = true)]
async fn after_a_downgrade_the_last_reader_leaves_without_a_notice() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    let reader = handle.read().await.unwrap();
    let other = Client::builder().connect_embedded(&engine).await.unwrap();
    let remote = other.rwlock("cached").unwrap().read().timeout(500 * MS).await.unwrap();
    drop(reader);
    tokio::time::sleep(5 * MS).await;
    let lease = cached_lock.lease().unwrap();
    assert!(lease.gate.state.try_enter_reader());
    assert!(!lease.gate.state.leave_read());
    drop(remote);
}

/// The first requests were uncached: the lock was unused, then there was no subscription. They are
/// over.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_recalled_after_one_use_is_plain_for_a_while() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    for _ in 0..2 {
        assert_eq!(handle.cache_status().uncached_reason, None);
        drop(handle.write().await.unwrap());
        cached_lock.lease().unwrap().acquisition.recall(LockMode::Write);
        tokio::time::sleep(MS).await;
    }
    assert_eq!(handle.cache_status().uncached_reason, Some(UncachedReason::RecalledEarly));
}

/// The other client gets the lock when the last guard has left. The penalty is nine times that.
#[tokio::test(start_paused = true)]
async fn the_penalty_for_an_early_recall_counts_the_time_of_the_last_guard() {
    let (_locks, handle, cached_lock) = cached(&engine()).await;
    cached_lock.lease().unwrap().acquisition.recall(LockMode::Write);
    tokio::time::sleep(MS).await; // that lease had served enough
    let guard = handle.write().await.unwrap();
    cached_lock.lease().unwrap().acquisition.recall(LockMode::Write);
    tokio::time::sleep(500 * MS).await;
    let reason = || handle.cache_status().uncached_reason;
    assert_eq!(reason(), Some(UncachedReason::RecalledEarly), "while the guard is left");
    drop(guard);
    for _ in 0..9 {
        tokio::time::sleep(MS).await;
        drop(handle.write().await.unwrap());
    }
    assert_eq!(reason(), Some(UncachedReason::RecalledEarly));
    tokio::time::sleep(4_600 * MS).await;
    assert_eq!(reason(), Some(UncachedReason::NotReused));
}

#[tokio::test(start_paused = true)]
async fn half_of_the_tokens_are_left_when_more_are_requested() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    let end = |cached_lock: &CachedLock| cached_lock.lease().unwrap().gate.last_owned_token();
    let before = end(&cached_lock);
    for _ in 0..600 {
        handle.write().await.unwrap().fencing_token();
    }
    assert!(!cached_lock.lease().unwrap().gate.is_exhausted());
    cached_lock.wake();
    tokio::time::sleep(5 * MS).await;
    assert!(end(&cached_lock) > before);
}

/// The server has a token for each microsecond of its clock.
#[tokio::test(start_paused = true)]
async fn more_tokens_are_requested_at_most_once_a_millisecond() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    let now = tokio::time::Instant::now();
    engine.reset_script_stats();
    let mut writes = 0;
    while now.elapsed() < 100 * MS && writes < 1_000_000 {
        handle.write().await.unwrap().fencing_token();
        writes += 1;
    }
    let (calls, took) = (engine.script_stats().scripts, now.elapsed());
    assert!(calls <= 102 && took >= 100 * MS, "{calls} calls for {writes} writes in {took:?}");
    assert!(cached_lock.lease().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_told_why_the_server_grants_no_hold() {
    let engine = engine();
    let (_locks, handle, cached_lock) = cached(&engine).await;
    cached_lock.lease().unwrap().acquisition.recall(LockMode::Write);
    tokio::time::sleep(MS).await;
    assert!(cached_lock.lease().is_none(), "it was idle");
    assert!(handle.cache_status().uncached_reason.is_none(), "the request waits for a hold");
    engine.faults().reply_with_error(0, Some("NOPERM no right for evalsha"));
    let error = handle.write().timeout(500 * MS).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Rejected, "{error}");
}

/// After a failover, the entries of each slot are visited.
#[tokio::test(start_paused = true)]
async fn entries_are_found_by_their_slot() {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let locks = Client::builder().connect_embedded(&engine).await.unwrap();
    let lock = |name: &str| locks.rwlock(name).unwrap().lock.clone();
    let mut entries = CachedLockMap::default();
    let new = |name: &str| {
        let lock = lock(name);
        move |entries: &mut CachedLockMap, locks: &Client| {
            let client = locks.client.0.clone();
            let cached_lock = CachedLock::new(client, lock.clone());
            entries.find_or_add(&lock, || Arc::new(cached_lock))
        }
    };
    let kept: Vec<_> =
        ["1{a}", "2{a}", "1{b}"].map(|name| new(name)(&mut entries, &locks)).into_iter().collect();
    for number in 0..1_000 {
        drop(new(&format!("{number}"))(&mut entries, &locks));
    }
    assert!(entries.len() < 100, "{} are known", entries.len());
    let of = |name: &str| {
        entries
            .in_slot(lock(name).slot)
            .iter()
            .map(|one| one.lock.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (of("{a}"), of("{b}"), of("{c}")),
        (vec!["1{a}".to_owned(), "2{a}".to_owned()], vec!["1{b}".to_owned()], vec![],)
    );
    assert!(Arc::ptr_eq(&new("1{b}")(&mut entries, &locks), &kept[2]));
}
