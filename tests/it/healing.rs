//! Failovers that lose an acknowledged downgrade or partial release: the next renewal repeats it.
//! On embedded servers and in simulated time.

use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, LeaseState, ReleaseOutcome};
use tokio::time::{sleep, timeout};

use crate::fixture::engine;
use testkit::spawn_read;

const LEASE: Duration = Duration::from_secs(6);

/// One server, whose process a failover replaces, and two clients.
async fn bench() -> (EmbeddedCluster, Client, Client) {
    let engine = engine();
    // The failover loses the last write, which must be one of a lock and not of a record.
    let settings = || Client::builder().lease(LEASE).label("");
    let connect = async || settings().connect_embedded(&engine).await.unwrap();
    (engine.clone(), connect().await, connect().await)
}

#[tokio::test(start_paused = true)]
async fn downgrade_lost_by_a_failover_is_repeated_by_the_next_renewal() {
    let (engine, locks, others) = bench().await;
    let guard = locks.rwlock("plan").unwrap().write().await.unwrap();
    let token = guard.fencing_token().get();
    let guard = guard.downgrade().await.unwrap();
    engine.faults().promote(0, 1);
    let other = others.rwlock("plan").unwrap();
    assert!(other.status().await.unwrap().writer.is_some(), "the failover has lost it");
    let reading = timeout(LEASE, spawn_read(&other)).await;
    let other = reading.expect("a waiting reader is granted").unwrap().unwrap();
    assert_eq!((guard.state(), guard.fencing_token().get()), (LeaseState::Held, token));
    assert_eq!(other.release().await.unwrap(), ReleaseOutcome::Released);
    sleep(4 * LEASE).await;
    let status = others.rwlock("plan").unwrap().status().await.unwrap();
    assert_eq!((status.writer.is_some(), status.readers.len()), (false, 1), "it is renewed on");
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn release_some_lost_by_a_failover_is_repeated_by_the_next_renewal() {
    let (engine, locks, others) = bench().await;
    let mut guard = locks.semaphore("uploads", 10).unwrap().acquire(10).await.unwrap();
    guard.release_permits(7).await.unwrap();
    engine.faults().promote(0, 1);
    let other = others.semaphore("uploads", 10).unwrap();
    assert_eq!(other.status().await.unwrap().in_use, 10, "the failover has lost it");
    let acquire = other.clone();
    let acquiring = tokio::spawn(async move { acquire.acquire(7).await.unwrap() });
    let granted = timeout(LEASE, acquiring).await.expect("the waiter is granted").unwrap();
    assert_eq!(
        (guard.state(), guard.num_permits(), granted.num_permits()),
        (LeaseState::Held, 3, 7)
    );
    assert_eq!(other.status().await.unwrap().in_use, 10);
}
