//! Locks that stay taken for a shortest time, under simulated time.

#![cfg(feature = "embedded")]

use std::time::Duration;

use rwlease::{ErrorKind, LockMode, RenewalPolicy, RwLock, WriteGuard};
use tokio::time::{Instant, sleep};

use crate::fixture::{MS, SECOND, client, engine, in_task};

/// The time until the lock can be acquired.
async fn time_until_free(lock: &RwLock) -> Duration {
    let began = Instant::now();
    loop {
        if let Some(guard) = lock.try_write().await.unwrap() {
            let taken = began.elapsed();
            assert!(guard.release().await.unwrap().was_held());
            return taken;
        }
        sleep(10 * MS).await;
    }
}

async fn take(lock: &RwLock, at_least: Duration) -> WriteGuard {
    lock.try_write().at_least(at_least).await.unwrap().expect("it is free")
}

#[tokio::test(start_paused = true)]
async fn at_least_lock_stands_until_its_time_however_it_ends() {
    let engine = engine();
    let others = client(&engine).await;
    for (name, lease, work, left) in [
        ("short work", 30 * SECOND, 200 * MS, 1800 * MS),
        ("after a renewal", 3 * SECOND, 1500 * MS, 500 * MS),
        ("a lease that is shorter", SECOND, 200 * MS, 1800 * MS),
        ("long work", 30 * SECOND, 5 * SECOND, Duration::ZERO),
    ] {
        for end in ["release", "drop", "shutdown"] {
            let client = client(&engine).await;
            let lock = client.rwlock(name).unwrap();
            let request = lock.try_write().at_least(2 * SECOND).lease(lease);
            let guard = request.await.unwrap().expect("it is free");
            let observed = guard.clone();
            sleep(work).await;
            match end {
                "release" => assert!(guard.release().await.unwrap().was_held()),
                "drop" => drop(guard),
                _ => assert!(client.shutdown(SECOND).await.is_empty()),
            }
            assert!(!observed.is_held());
            let taken = time_until_free(&others.rwlock(name).unwrap()).await;
            let is_exact = taken + 20 * MS >= left && taken <= left + 20 * MS;
            assert!(is_exact, "{name}, {end}: {taken:?}, not {left:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_least_lock_of_a_dead_holder_stands_until_its_time() {
    let engine = engine();
    let lock = client(&engine).await.rwlock("dead").unwrap();
    let request = lock.try_write().at_least(5 * SECOND).lease(SECOND);
    let guard = request.renewal(RenewalPolicy::Manual).await.unwrap().unwrap();
    std::mem::forget(guard);
    let taken = time_until_free(&lock).await;
    assert!(taken + 20 * MS >= 5 * SECOND && taken <= 5020 * MS, "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn at_least_lock_is_granted_to_a_waiter_when_its_time_ends() {
    let engine = engine();
    let lock = client(&engine).await.rwlock("waiter").unwrap();
    let guard = take(&lock, 2 * SECOND).await;
    let next = in_task(&lock, |lock| async move { lock.write().at_least(3 * SECOND).await });
    sleep(200 * MS).await;
    let began = Instant::now();
    assert!(guard.release().await.unwrap().was_held());
    let next = next.await.unwrap().unwrap();
    let waited = began.elapsed();
    assert!(waited >= 1800 * MS && waited < 2100 * MS, "{waited:?}");
    assert!(next.release().await.unwrap().was_held());
    let taken = time_until_free(&lock).await;
    assert!(taken + 20 * MS >= 3 * SECOND && taken <= 3020 * MS, "from the grant: {taken:?}");
}

#[tokio::test(start_paused = true)]
async fn at_least_after_a_downgrade_or_a_transfer_is_over() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = locks.rwlock("changed").unwrap();
    let reading = take(&lock, 60 * SECOND).await.downgrade().await.unwrap();
    assert!(reading.release().await.unwrap().was_held());
    let reading = take(&lock, 60 * SECOND).await.downgrade().await.unwrap();
    let writing = reading.upgrade().await.unwrap();
    assert!(writing.release().await.unwrap().was_held());
    assert!(time_until_free(&lock).await < SECOND, "after an upgrade");
    let guard = take(&lock, 60 * SECOND).await;
    let transfer = guard.into_transfer().await.unwrap();
    drop(client(&engine).await.accept_transfer(&transfer).await.unwrap());
    assert!(time_until_free(&lock).await < SECOND);
}

#[tokio::test(start_paused = true)]
async fn at_least_lock_can_be_revoked_and_released_by_force() {
    let engine = engine();
    let lock = client(&engine).await.rwlock("forced").unwrap();
    let guard = take(&lock, 5 * SECOND).await;
    lock.revoke().await.unwrap();
    assert!(guard.release().await.unwrap().was_held());
    assert!(time_until_free(&lock).await + 20 * MS >= 5 * SECOND, "a revocation shortens nothing");
    let guard = take(&lock, 60 * SECOND).await;
    drop(guard);
    lock.force_release().await.unwrap();
    assert!(time_until_free(&lock).await < SECOND);
}

/// A call of the worker that arrives after the release must not extend the lease.
#[tokio::test(start_paused = true)]
async fn at_least_lock_is_not_extended_by_a_late_renewal() {
    let engine = engine();
    let lock = client(&engine).await.rwlock("late").unwrap();
    let guard = lock.try_write().at_least(2 * SECOND).lease(30 * SECOND).await.unwrap().unwrap();
    let lease = guard.clone();
    let (released, renewed) = tokio::join!(guard.release(), lease.renew());
    assert!(released.unwrap().was_held() && renewed.is_err());
    let taken = time_until_free(&lock).await;
    assert!(taken <= 2020 * MS, "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn at_least_of_other_locks_and_out_of_range_is_invalid() {
    let engine = engine();
    let locks = client(&engine).await;
    let lock = locks.rwlock("invalid").unwrap();
    let owner = locks.reentrant_owner();
    let semaphore = locks.semaphore("permits", 2).unwrap();
    let mutex = locks.set_nx_mutex("mutex").unwrap();
    let kinds = [
        lock.read().at_least(SECOND).await.err(),
        lock.try_read().at_least(SECOND).await.err(),
        owner.write(&lock).at_least(SECOND).await.err(),
        semaphore.acquire(1).at_least(SECOND).await.err(),
        mutex.lock().at_least(SECOND).await.err(),
        lock.write().at_least(9 * MS).await.err(),
        lock.write().at_least(Duration::MAX).await.err(),
        lock.write().at_least(2 * SECOND).max_hold(SECOND).await.err(),
    ];
    for (at, error) in kinds.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::InvalidInput), "{at}");
    }
    let mutex = locks.mutex("fair").unwrap();
    let guard = mutex.try_lock().at_least(SECOND).await.unwrap().unwrap();
    assert_eq!(guard.mode(), Some(LockMode::Write));
}
