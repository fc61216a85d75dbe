//! Handing a held lock on to another client, on embedded servers.

use std::time::Duration;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{
    Client, ErrorKind, LeaseState, LockMode, ReleaseOutcome, RenewalPolicy, TransferredGuard,
    WriteGuard,
};
use tokio::time::{Instant, sleep, timeout};

use crate::fixture::engine;

const LEASE: Duration = Duration::from_secs(9);

/// Ends a test that would never end.
const LONG: Duration = Duration::from_secs(600);

async fn client(engine: &EmbeddedCluster) -> Client {
    Client::builder().lease(LEASE).connect_embedded(engine).await.unwrap()
}

async fn clients() -> (EmbeddedCluster, Client, Client) {
    let engine = EmbeddedCluster::new();
    let (one, other) = (client(&engine).await, client(&engine).await);
    (engine, one, other)
}

#[tokio::test(start_paused = true)]
async fn transfer_of_a_read_beside_other_readers_keeps_the_read() {
    let (_engine, one, other) = clients().await;
    let lock = one.rwlock("shared").unwrap();
    let beside = lock.read().await.unwrap();
    let held = lock.read().await.unwrap();
    let id = held.id().to_owned();
    let ticket = held.into_transfer().await.unwrap();
    assert_eq!(ticket.mode(), LockMode::Read);
    assert!(!one.knows(&id), "nothing of it is left to do");
    let TransferredGuard::Read(guard) = other.accept_transfer(&ticket).await.unwrap() else {
        panic!("it was a read");
    };
    assert!(lock.try_write().await.unwrap().is_none());
    let _ = beside.release().await.unwrap();
    let writing = guard.upgrade().await.unwrap();
    assert!(writing.fencing_token() > ticket.fencing_token());
    assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(start_paused = true)]
async fn transfer_not_accepted_ends_with_its_lease() {
    let (engine, one, other) = clients().await;
    let lock = one.rwlock("late").unwrap();
    let ticket = lock.write().await.unwrap().into_transfer().await.unwrap();
    let since_1970 = ticket.deadline().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(since_1970, Duration::from_millis(engine.now().as_millis() as u64) + LEASE);
    assert!(one.shutdown(LONG).await.is_empty(), "it is not released by its old client");
    let waits = other.rwlock("late").unwrap();
    assert!(waits.try_read().await.unwrap().is_none());
    let began = Instant::now();
    let next = timeout(LONG, waits.write()).await.unwrap().unwrap();
    assert!(began.elapsed() > LEASE / 2, "not before its end");
    let error = other.accept_transfer(&ticket).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert!(next.is_held());
}

#[tokio::test(start_paused = true)]
async fn accept_transfer_with_another_prefix_or_too_short_a_lease_leaves_the_ticket() {
    let (engine, one, other) = clients().await;
    let ticket = one.rwlock("kept").unwrap().write().await.unwrap().into_transfer().await.unwrap();
    let elsewhere = Client::builder().key_prefix("elsewhere:");
    let elsewhere = elsewhere.connect_embedded(&engine).await.unwrap();
    assert_eq!(elsewhere.accept_transfer(&ticket).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let too_short = other.accept_transfer(&ticket).lease(Duration::from_millis(1));
    assert_eq!(too_short.await.unwrap_err().kind(), ErrorKind::InvalidInput);
    drop(other.accept_transfer(&ticket).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn accept_transfer_applies_its_own_lease_and_max_hold() {
    let (_engine, one, other) = clients().await;
    let lock = one.rwlock("lease").unwrap();
    let ticket = lock.write().await.unwrap().into_transfer().await.unwrap();
    let taking = other.accept_transfer(&ticket).lease(10 * LEASE).renewal(RenewalPolicy::Manual);
    let guard = taking.timeout(LONG).await.unwrap();
    assert!(guard.remaining() > 9 * LEASE);
    sleep(11 * LEASE).await;
    assert_eq!(guard.state(), LeaseState::Lost);

    let ticket = lock.write().await.unwrap().into_transfer().await.unwrap();
    let guard = other.accept_transfer(&ticket).max_hold(2 * LEASE).await.unwrap();
    timeout(4 * LEASE, guard.ended()).await.unwrap();
}

/// The guard is handed on as a read, and the wait for its upgrade ends.
#[tokio::test(start_paused = true)]
async fn transfer_after_an_abandoned_upgrade_ends_the_upgrade_first() {
    let (_engine, one, other) = clients().await;
    let lock = one.rwlock("upgrade").unwrap();
    let beside = other.rwlock("upgrade").unwrap().read().await.unwrap();
    let reading = lock.read().await.unwrap();
    let refused = reading.upgrade().timeout(Duration::from_secs(1)).await.unwrap_err();
    let ticket = refused.into_guard().into_transfer().await.unwrap();
    assert_eq!(ticket.mode(), LockMode::Read);
    assert_eq!(lock.status().await.unwrap().waiter_count, 0);
    let _ = beside.release().await.unwrap();
    let guard = other.accept_transfer(&ticket).await.unwrap();
    assert_eq!(guard.mode(), Some(LockMode::Read));
}

#[tokio::test(start_paused = true)]
async fn transfer_of_a_lost_or_revoked_lease_is_refused() {
    let (_engine, one, other) = clients().await;
    let lock = one.rwlock("lost").unwrap();
    let held = lock.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap();
    sleep(LEASE).await;
    assert_eq!(held.into_transfer().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let held = lock.write().await.unwrap();
    lock.force_release().await.unwrap();
    assert_eq!(held.into_transfer().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let held = lock.write().await.unwrap();
    lock.revoke().await.unwrap();
    let error = held.into_transfer().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::LeaseRevoked, Some("lost")));
    // The lock was released, so the next request does not wait until the lease ends.
    let next = timeout(LEASE / 3, other.rwlock("lost").unwrap().write()).await.unwrap().unwrap();
    // A revoked lease can still be taken up and released, but not renewed.
    let ticket = next.into_transfer().await.unwrap();
    lock.revoke().await.unwrap();
    let guard = one.accept_transfer(&ticket).await.unwrap();
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::LeaseRevoked);
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let held = lock.write().await.unwrap();
    one.shutdown(LONG).await;
    assert_eq!(held.into_transfer().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(one.accept_transfer(&ticket).await.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn transfer_without_a_reply_is_unavailable_and_frees_the_lock() {
    let engine = engine();
    let hasty = || Client::builder().lease(LEASE).call_timeout(Duration::from_secs(1));
    let one = hasty().connect_embedded(&engine).await.unwrap();
    let other = hasty().connect_embedded(&engine).await.unwrap();
    let lock = one.rwlock("silent").unwrap();
    let held = lock.write().await.unwrap();
    engine.faults().pause(0);
    assert_eq!(held.into_transfer().await.unwrap_err().kind(), ErrorKind::Unavailable);
    engine.faults().resume(0);
    let held = timeout(LEASE / 2, lock.write()).await.unwrap().unwrap();
    let ticket = held.into_transfer().await.unwrap();
    engine.faults().pause(0);
    assert_eq!(other.accept_transfer(&ticket).await.unwrap_err().kind(), ErrorKind::Unavailable);
    engine.faults().resume(0);
    // The server ran the call late or never. In both cases the lock is free when the lease ends.
    drop(timeout(2 * LEASE, lock.write()).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn transfer_dropped_half_way_frees_the_lock() {
    let engine = engine();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let lock = one.rwlock("dropped").unwrap();
    let held = lock.write().await.unwrap();
    engine.faults().pause(0);
    timeout(Duration::from_millis(10), held.into_transfer()).await.unwrap_err();
    engine.faults().resume(0);
    let held = timeout(LEASE / 2, lock.write()).await.unwrap().unwrap();
    let ticket = held.into_transfer().await.unwrap();
    engine.faults().pause(0);
    timeout(Duration::from_millis(10), other.accept_transfer(&ticket).into_future())
        .await
        .unwrap_err();
    engine.faults().resume(0);
    // Either the take-up used the ticket and the lock was released, or the lease ends.
    drop(timeout(2 * LEASE, lock.write()).await.unwrap().unwrap());
}

/// The server could run an unanswered acquire after the take-up, and so grant the lock to an
/// acquisition that no client knows any more.
#[tokio::test(start_paused = true)]
async fn transfer_and_let_expire_wait_for_an_unanswered_acquire() {
    let engine = engine();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let lock = one.rwlock("doubt").unwrap();
    let sure = lock.write().await.unwrap();
    let began = Instant::now();
    let ticket = sure.into_transfer().await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "nothing is in doubt");
    let _ = other.accept_transfer(&ticket).await.unwrap().release().await.unwrap();

    let held = in_doubt(&engine, &one, "doubt", LEASE).await;
    let began = Instant::now();
    let ticket = held.into_transfer().await.unwrap();
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    let taken = other.accept_transfer(&ticket).await.unwrap();
    assert!(taken.is_held());
    let _ = taken.release().await.unwrap();

    // The same of a lease that is kept: nobody tracks it either. Nobody else renews it meanwhile.
    let held = in_doubt(&engine, &one, "kept", Duration::from_secs(1)).await;
    let began = Instant::now();
    held.let_expire().await.unwrap();
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
}

/// The clock of the server is set back, or the slot moves to a server whose clock is behind.
#[tokio::test(start_paused = true)]
async fn transfer_and_let_expire_do_not_wait_for_a_clock_that_was_set_back() {
    let engine = engine();
    let (one, other) = (client(&engine).await, client(&engine).await);
    for (behind_ms, name) in [(30_000, "moved"), (3_600_000, "set back")] {
        let held = in_doubt(&engine, &one, name, LEASE).await;
        let kept = in_doubt(&engine, &one, &format!("{name}, kept"), LEASE).await;
        engine.faults().step_clock(0, -behind_ms);
        let began = Instant::now();
        let ticket = held.into_transfer().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let taken = other.accept_transfer(&ticket).await.unwrap();
        let began = Instant::now();
        kept.let_expire().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let _ = taken.release().await.unwrap();
    }
}

/// A write that was granted at the second attempt. The first one had no answer.
async fn in_doubt(
    engine: &EmbeddedCluster,
    locks: &Client,
    name: &str,
    lease: Duration,
) -> WriteGuard {
    let lock = locks.rwlock(name).unwrap();
    engine.faults().pause(0);
    let acquiring = tokio::spawn(async move {
        lock.write().lease(lease).renewal(RenewalPolicy::Manual).await.unwrap()
    });
    sleep(Duration::from_millis(100)).await;
    engine.faults().kill_connections(0);
    engine.faults().resume(0);
    timeout(LONG, acquiring).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn transfer_with_too_few_replicas_is_unavailable_and_frees_the_lock() {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let lock = one.rwlock("replicas").unwrap();
    let held = lock.write().min_replicas(1).await.unwrap();
    let ticket = held.into_transfer().await.unwrap();
    engine.faults().lag_replica(1);
    let error = other.accept_transfer(&ticket).min_replicas(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // The lock was taken up, and then released.
    let held = timeout(LEASE / 2, lock.write()).await.unwrap().unwrap();
    let _ = held.release().await.unwrap();
    engine.faults().sync_replica(1);
    let held = lock.write().min_replicas(1).await.unwrap();
    engine.faults().lag_replica(1);
    assert_eq!(held.into_transfer().await.unwrap_err().kind(), ErrorKind::Unavailable);
    drop(timeout(LEASE / 2, lock.write()).await.unwrap().unwrap());
}

/// The promoted replica has the take-up. So the guard keeps its lease, and the ticket is used up.
#[tokio::test(start_paused = true)]
async fn transfer_confirmed_by_replicas_is_accepted_once_across_a_failover() {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let (one, other) = (client(&engine).await, client(&engine).await);
    let held = one.rwlock("failover").unwrap().write().min_replicas(1).await.unwrap();
    let ticket = held.into_transfer().await.unwrap();
    let guard = other.accept_transfer(&ticket).min_replicas(1).await.unwrap();
    engine.faults().promote(0, 0).unwrap();
    assert_eq!(one.accept_transfer(&ticket).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    sleep(2 * LEASE).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}
