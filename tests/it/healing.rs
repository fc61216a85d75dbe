//! Failovers that lose an acknowledged downgrade or partial release: the next renewal repeats it.
//! On embedded servers and in simulated time.

use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{LeaseState, Locks, Released};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(6);

/// One server, whose process a failover replaces, and two clients.
async fn bench() -> (EmbeddedCluster, Locks, Locks) {
    let engine = EmbeddedCluster::builder().masters(1).replicas(0).build();
    let connect = async || Locks::builder().lease(LEASE).connect_embedded(&engine).await.unwrap();
    (engine.clone(), connect().await, connect().await)
}

#[tokio::test(start_paused = true)]
async fn downgrade_lost_by_a_failover_is_repeated_by_the_next_renewal() {
    let (engine, locks, others) = bench().await;
    let guard = locks.rwlock("plan").unwrap().write().await.unwrap();
    let token = guard.token();
    let guard = guard.downgrade().await.unwrap();
    engine.faults().promote(0, 1);
    let other = others.rwlock("plan").unwrap();
    assert!(other.status().await.unwrap().writer.is_some(), "the failover has lost it");
    let reading = tokio::spawn(async move { other.read().await.unwrap() });
    let other = timeout(LEASE, reading).await.expect("a waiting reader is granted").unwrap();
    assert_eq!((guard.state(), guard.token()), (LeaseState::Held, token));
    assert_eq!(other.release().await.unwrap(), Released::Released);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn release_some_lost_by_a_failover_is_repeated_by_the_next_renewal() {
    let (engine, locks, others) = bench().await;
    let mut guard = locks.semaphore("uploads", 10).unwrap().acquire(10).await.unwrap();
    guard.release_some(7).await.unwrap();
    engine.faults().promote(0, 1);
    let other = others.semaphore("uploads", 10).unwrap();
    assert_eq!(other.status().await.unwrap().in_use, 10, "the failover has lost it");
    let acquire = other.clone();
    let acquiring = tokio::spawn(async move { acquire.acquire(7).await.unwrap() });
    let granted = timeout(LEASE, acquiring).await.expect("the waiter is granted").unwrap();
    assert_eq!((guard.state(), guard.permits(), granted.permits()), (LeaseState::Held, 3, 7));
    assert_eq!(other.status().await.unwrap().in_use, 10);
}

#[tokio::test(start_paused = true)]
async fn renewals_continue_after_the_repeated_downgrade() {
    let (engine, locks, others) = bench().await;
    let guard = locks.rwlock("plan").unwrap().write().await.unwrap().downgrade().await.unwrap();
    engine.faults().promote(0, 1);
    sleep(4 * LEASE).await;
    assert_eq!(guard.state(), LeaseState::Held);
    let other = others.rwlock("plan").unwrap();
    let status = other.status().await.unwrap();
    assert_eq!((status.writer.is_some(), status.reading.len()), (false, 1));
    let granted = timeout(SECOND, other.read()).await.unwrap().unwrap();
    drop((guard, granted));
}
