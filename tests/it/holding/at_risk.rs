//! Leases whose renewals fail, under simulated time.

#![cfg(feature = "embedded")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, LeaseState, Redlock, RenewalPolicy};
use tokio::time::{Instant, sleep, timeout};

use crate::events::on_event;
use crate::fixture::{MS, SECOND, client, engine};

/// The local end of a lease is a twentieth before its end, half of it some 4.3 s after a renewal.
const LEASE: Duration = Duration::from_secs(9);

/// The messages of warnings.
fn warnings() -> Rc<RefCell<Vec<&'static str>>> {
    let names = Rc::new(RefCell::new(Vec::new()));
    let log = names.clone();
    on_event(move |event| {
        if *event.metadata().level() == tracing::Level::WARN {
            log.borrow_mut().push(event.metadata().name());
        }
    });
    names
}

/// Runs an alarm that begins when the server pauses, and returns how long it took.
async fn after_pause(engine: &EmbeddedCluster, alarm: impl Future<Output = ()>) -> Duration {
    engine.faults().pause(0);
    let began = Instant::now();
    timeout(LEASE, alarm).await.expect("it comes before the end of the lease");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn at_risk_of_a_fault_that_heals_is_a_false_alarm() {
    let engine = engine();
    let warnings = warnings();
    let lock = client(&engine).await.rwlock("healed").unwrap();
    let guard = lock.write().lease(LEASE).await.unwrap();
    let quiet = timeout(30 * SECOND, guard.at_risk()).await;
    assert!(quiet.is_err() && warnings.borrow().is_empty(), "renewals succeed");
    for _ in 0..2 {
        assert_eq!(guard.state(), LeaseState::Held);
        let waited = after_pause(&engine, guard.at_risk()).await;
        assert!(waited > SECOND, "a renewal must be late first: {waited:?}");
        let left = guard.remaining();
        assert!(guard.is_held() && left <= LEASE / 2 && left > 3 * SECOND, "{left:?}");
        assert_eq!(guard.state(), LeaseState::Uncertain);
        guard.at_risk().await; // it still is
        sleep(100 * MS).await;
        engine.faults().resume(0);
        sleep(2 * SECOND).await;
        assert!(guard.remaining() > LEASE / 2, "it was renewed");
    }
    assert_eq!(*warnings.borrow(), ["rwlease.at_risk"; 2], "one event an episode");
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(start_paused = true)]
async fn at_risk_comes_before_the_end_of_a_lease_that_is_lost() {
    let engine = engine();
    let warnings = warnings();
    let lock = client(&engine).await.rwlock("lost").unwrap();
    let guard = lock.write().lease(LEASE).await.unwrap();
    let lease = guard.clone();
    let ended = tokio::spawn(async move { lease.ended().await });
    after_pause(&engine, guard.at_risk()).await;
    assert!(!ended.is_finished());
    sleep(LEASE / 2).await;
    assert!(ended.is_finished() && !guard.is_held());
    guard.at_risk().await; // it has ended
    assert_eq!(*warnings.borrow(), ["rwlease.at_risk", "rwlease.lost"]);
}

/// Without replicas that confirm a renewal, each renewal fails at once.
#[tokio::test(start_paused = true)]
async fn at_risk_of_failed_renewals_waits_for_half_of_the_lease() {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let lock = client(&engine).await.rwlock("unconfirmed").unwrap();
    let guard = lock.write().lease(LEASE).min_replicas(1).await.unwrap();
    engine.faults().lag_replica(1);
    sleep(LEASE * 2 / 5).await;
    assert_eq!(guard.state(), LeaseState::Uncertain, "a renewal has failed");
    assert!(timeout(100 * MS, guard.at_risk()).await.is_err(), "more than half is left");
    timeout(SECOND, guard.at_risk()).await.unwrap();
    engine.faults().sync_replica(1);
    sleep(SECOND).await;
    assert_eq!(guard.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn at_risk_of_a_lease_that_ends_as_intended_comes_with_its_end() {
    let engine = engine();
    let locks = client(&engine).await;
    let warnings = warnings();
    let manual = locks.rwlock("manual").unwrap();
    let manual = manual.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap();
    let revoked = locks.rwlock("revoked").unwrap();
    let guard = revoked.write().lease(LEASE).await.unwrap();
    revoked.revoke().await.unwrap();
    let longest = locks.rwlock("longest").unwrap();
    let longest = longest.write().lease(LEASE).max_hold(LEASE * 5 / 4).await.unwrap();
    let released = locks.rwlock("released").unwrap().write().lease(LEASE).await.unwrap();
    let lease = released.clone();
    tokio::join!(
        async {
            manual.at_risk().await;
            assert!(!manual.is_held());
        },
        async {
            guard.at_risk().await;
            assert!(!guard.is_held());
        },
        async {
            sleep(LEASE / 2).await; // a renewal has extended it to the end of the hold
            assert!(longest.remaining() > LEASE / 2);
            engine.faults().pause(0);
            longest.at_risk().await;
            assert!(!longest.is_held());
        },
        async {
            sleep(SECOND).await;
            let _ = released.release().await.unwrap();
        },
        lease.at_risk(),
    );
    assert!(!warnings.borrow().contains(&"rwlease.at_risk"));
}

#[tokio::test(start_paused = true)]
async fn at_risk_of_other_guards_is_that_of_their_leases() {
    let engine = engine();
    let locks = client(&engine).await;
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    let cached = cached.write().await.unwrap();
    let watcher = cached.watch();
    let leader = locks.election("leader").unwrap().campaign().lease(LEASE).await.unwrap();
    let both = locks.multi_lock().write("one").read("two").lease(LEASE).await.unwrap();
    engine.faults().pause(0);
    let all = async {
        tokio::join!(cached.at_risk(), watcher.at_risk(), leader.at_risk(), both.at_risk());
    };
    timeout(30 * SECOND, all).await.unwrap();
    assert!(cached.is_held(), "the longest lease");
}

/// The cache has a guard's lease renewed by keep-alives, which go on until the server answers.
#[tokio::test(start_paused = true)]
async fn at_risk_of_a_cached_guard_comes_before_its_end() {
    let engine = engine();
    let locks = Client::builder().lease(LEASE).connect_embedded(&engine).await.unwrap();
    let cached = locks.rwlock("cached").unwrap().cached().unwrap();
    while cached.cache_status().hold.is_none() {
        drop(cached.read().await.unwrap());
        sleep(MS).await;
    }
    let guard = cached.write().await.unwrap();
    let quiet = timeout(30 * SECOND, guard.at_risk()).await;
    assert!(quiet.is_err() && guard.state() == LeaseState::Held, "keep-alives succeed");
    engine.faults().pause(0);
    timeout(7 * SECOND, guard.at_risk()).await.expect("it comes before the end of the lease");
    assert!(guard.is_held() && guard.state() == LeaseState::Uncertain);
    engine.faults().resume(0);
    sleep(2 * SECOND).await;
    assert_eq!(guard.state(), LeaseState::Held, "a false alarm");
}

/// A majority of three is two, so one member at risk is no alarm.
#[tokio::test(start_paused = true)]
async fn redlock_guard_is_at_risk_when_less_than_a_majority_is_sound() {
    let standalone = || EmbeddedCluster::builder().standalone().build();
    let engines = [standalone(), standalone(), standalone()];
    let members = [client(&engines[0]).await, client(&engines[1]).await, client(&engines[2]).await];
    let quorum = Redlock::new(members).unwrap();
    let guard = quorum.write("a").lease(LEASE).await.unwrap();
    engines[0].faults().pause(0);
    assert!(timeout(30 * SECOND, guard.at_risk()).await.is_err(), "two members are sound");
    after_pause(&engines[1], guard.at_risk()).await;
    assert!(guard.is_held() && guard.state() == LeaseState::Uncertain);
    engines[1].faults().resume(0);
    sleep(2 * SECOND).await;
    assert!(timeout(30 * SECOND, guard.at_risk()).await.is_err(), "a false alarm");
    engines[1].faults().pause(0);
    guard.ended().await;
    guard.at_risk().await;
    assert!(!guard.is_held());
}
