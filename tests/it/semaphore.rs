//! Semaphores: permits that are shared, waited for and partly released, with the server's limit. On
//! embedded servers and in simulated time.

use std::error::Error as _;

use rwlease::embedded::EmbeddedCluster;
use rwlease::{ErrorKind, LeaseState, ReleaseOutcome, RenewalPolicy, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::fixture::{SECOND, client, engine, in_task};

async fn semaphore(engine: &EmbeddedCluster, limit: u32) -> Semaphore {
    client(engine).await.semaphore("uploads", limit).unwrap()
}

/// Two clients' handles of one semaphore.
async fn two(limit: u32) -> (EmbeddedCluster, Semaphore, Semaphore) {
    let engine = EmbeddedCluster::new();
    let (one, other) = (semaphore(&engine, limit).await, semaphore(&engine, limit).await);
    (engine, one, other)
}

type Waiting = JoinHandle<rwlease::Result<SemaphorePermit>>;

/// Starts to wait, and returns once the request is in the queue.
async fn wait(semaphore: &Semaphore, permits: u32) -> Waiting {
    let before = semaphore.status().await.unwrap().waiter_count;
    let waiter = semaphore.clone();
    let waiting = tokio::spawn(async move { waiter.acquire(permits).await });
    while semaphore.status().await.unwrap().waiter_count == before {
        sleep(SECOND / 100).await;
    }
    waiting
}

async fn in_use(semaphore: &Semaphore) -> u64 {
    semaphore.status().await.unwrap().in_use
}

#[tokio::test(start_paused = true)]
async fn semaphore_permits_or_limit_out_of_range_is_invalid_without_a_call() {
    let engine = EmbeddedCluster::new();
    let locks = client(&engine).await;
    let kind = |error: rwlease::Error| error.kind();
    assert_eq!(locks.semaphore("none", 0).map_err(kind).unwrap_err(), ErrorKind::InvalidInput);
    assert_eq!(locks.semaphore("", 1).map_err(kind).unwrap_err(), ErrorKind::InvalidInput);
    let semaphore = locks.semaphore("some", 3).unwrap();
    engine.reset_script_stats();
    for permits in [0, 4, u32::MAX] {
        assert_eq!(semaphore.acquire(permits).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(
            semaphore.try_acquire(permits).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
    assert_eq!(semaphore.set_limit(3, 0).await.map_err(kind).unwrap_err(), ErrorKind::InvalidInput);
    assert_eq!(semaphore.set_limit(0, 3).await.map_err(kind).unwrap_err(), ErrorKind::InvalidInput);
    assert_eq!(engine.script_stats().scripts, 0, "and nothing was sent");
    let mut held = semaphore.acquire(3).await.unwrap();
    for permits in [0, 3, 4, u32::MAX] {
        let error = held.release_permits(permits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(held.num_permits(), 3);
    let most = locks.semaphore("most", u32::MAX).unwrap();
    assert_eq!(most.acquire(u32::MAX).await.unwrap().num_permits(), u32::MAX);
}

#[tokio::test(start_paused = true)]
async fn semaphore_partial_release_with_a_late_reply_takes_effect() {
    let engine = engine();
    let one = semaphore(&engine, 10).await;
    let mut held = one.acquire(10).lease(60 * SECOND).await.unwrap();
    engine.faults().pause(0);
    // The first call is dropped, and the second one times out.
    let dropped = tokio::time::timeout(SECOND, held.release_permits(1)).await;
    assert!(dropped.is_err());
    let error = held.release_permits(2).await.unwrap_err();
    assert_eq!((error.kind(), held.num_permits()), (ErrorKind::Unavailable, 7));
    engine.faults().resume(0);
    while in_use(&one).await != 7 {
        sleep(SECOND / 10).await;
    }
    assert_eq!(held.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn semaphore_lease_without_renewal_ends_and_grants_the_waiter() {
    let (_engine, one, other) = two(2).await;
    let kept = one.acquire(1).lease(3 * SECOND).await.unwrap();
    let mut left = one.acquire(1).lease(3 * SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    let waiting = wait(&other, 1).await;
    left.ended().await;
    assert_eq!(left.state(), LeaseState::Lost);
    assert_eq!(left.release_permits(1).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    let _ = waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(left.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    sleep(60 * SECOND).await;
    assert_eq!((kept.state(), in_use(&one).await), (LeaseState::Held, 1));
}

#[tokio::test(start_paused = true)]
async fn semaphore_guard_or_request_dropped_is_released() {
    let (_engine, one, other) = two(3).await;
    let held = one.acquire(3).await.unwrap();
    let waiting = wait(&other, 2).await;
    let behind = wait(&other, 3).await;
    waiting.abort();
    drop(held);
    assert_eq!(behind.await.unwrap().unwrap().num_permits(), 3);
    while in_use(&one).await > 0 {
        sleep(SECOND / 10).await;
    }
    let status = one.status().await.unwrap();
    assert_eq!((status.waiter_count, status.holder_count, status.limit), (0, 0, Some(3)));
}

#[tokio::test(start_paused = true)]
async fn semaphore_acquire_ends_by_timeout_or_cancel() {
    let (_engine, one, other) = two(1).await;
    let held = one.acquire(1).await.unwrap();
    let error = other.acquire(1).timeout(SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = other.acquire(1).cancel_when(sleep(SECOND)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    while one.status().await.unwrap().waiter_count > 0 {
        sleep(SECOND / 10).await;
    }
    let _ = held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn semaphore_set_limit_requires_the_current_limit() {
    let (_engine, one, other) = two(10).await;
    let held = one.acquire(8).await.unwrap();
    let (big, small) = (wait(&other, 6).await, wait(&other, 5).await);
    let error = one.set_limit(9, 5).await.unwrap_err();
    assert_eq!((error.kind(), error.semaphore_limit()), (ErrorKind::LimitMismatch, Some(10)));
    let five = one.set_limit(10, 5).await.unwrap();
    assert_eq!((five.limit(), held.num_permits(), in_use(&five).await), (5, 8, 8));
    let error = big.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.semaphore_limit()), (ErrorKind::LimitMismatch, Some(5)));
    let _ = held.release().await.unwrap();
    let small = small.await.unwrap().unwrap();
    assert!(five.try_acquire(1).await.unwrap().is_none());
    let six = five.set_limit(5, 6).await.unwrap();
    assert_eq!(six.acquire(1).await.unwrap().num_permits(), 1);
    let _ = small.release().await.unwrap();
}

/// The server holds the first attempt for so long that the client makes another one.
#[tokio::test(start_paused = true)]
async fn semaphore_set_limit_outlasts_its_attempts_without_a_reply() {
    let engine = engine();
    let one = semaphore(&engine, 10).await;
    drop(one.acquire(1).await.unwrap());
    let began = Instant::now();
    one.set_limit(10, 10).await.unwrap();
    assert!(began.elapsed() < SECOND / 10, "no attempt is left: {:?}", began.elapsed());
    engine.faults().pause(0);
    let setting = in_task(&one, |one| async move { one.set_limit(10, 11).await });
    sleep(SECOND).await;
    engine.faults().kill_connections(0);
    sleep(SECOND).await;
    engine.faults().resume(0);
    assert_eq!(setting.await.unwrap().unwrap().limit(), 11);
    let took = began.elapsed();
    assert!((9 * SECOND..=12 * SECOND).contains(&took), "{took:?}");

    // The clock is set back, so the server's time for the attempt to end is far away.
    let began = Instant::now();
    engine.faults().pause(0);
    let setting = in_task(&one, |one| async move { one.set_limit(11, 12).await });
    sleep(SECOND).await;
    engine.faults().kill_connections(0);
    engine.faults().step_clock(0, -900_000);
    sleep(SECOND).await;
    engine.faults().resume(0);
    assert_eq!(setting.await.unwrap().unwrap().limit(), 12);
    assert!(began.elapsed() <= 12 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn semaphore_partial_release_that_is_refused_says_why_at_once() {
    let engine = engine();
    let one = semaphore(&engine, 10).await;
    let mut held = one.acquire(10).lease(60 * SECOND).await.unwrap();
    for keep in [9, 8] {
        engine.faults().reply_with_error(0, Some("MISCONF Errors writing to the AOF file"));
        let began = Instant::now();
        let error = held.release_permits(1).await.unwrap_err();
        assert_eq!((error.kind(), held.num_permits()), (ErrorKind::Rejected, keep));
        assert!(error.source().unwrap().to_string().contains("MISCONF"), "{error:?}");
        assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
    }
    // An old refusal does not count: the next attempt succeeds.
    engine.faults().reply_with_error(0, None);
    held.release_permits(1).await.unwrap();
    assert_eq!((held.state(), in_use(&one).await), (LeaseState::Held, 7));
}

#[tokio::test(start_paused = true)]
async fn semaphore_status_shows_holders_and_waiters_by_pages() {
    let (_engine, one, _other) = two(5).await;
    let mut held = Vec::new();
    for permits in [1, 3, 1] {
        held.push(one.acquire(permits).await.unwrap());
    }
    let (_first, _second) = (wait(&one, 2).await, wait(&one, 1).await);
    let mut status = one.status().page_size(1).await.unwrap();
    let mut permits = (Vec::new(), Vec::new());
    loop {
        assert_eq!((status.in_use, status.holder_count, status.waiter_count), (5, 3, 2));
        permits.0.extend(status.holders.iter().map(|holder| holder.permits));
        permits.1.extend(status.waiters.iter().map(|waiter| waiter.permits));
        if status.is_last() {
            break;
        }
        status = one.status().page_size(1).after(&status).await.unwrap();
    }
    assert_eq!(permits, (vec![1, 3, 1], vec![2, 1]));
    let all = one.status().await.unwrap();
    assert!(all.is_last() && all.last_token.map_or(0, u64::from) == held[2].fencing_token().get());
    assert_eq!(all.holders[1].id, held[1].id());
    assert!(all.holders[1].lease_remaining > 20 * SECOND && all.waiters[0].ttl_remaining > SECOND);
    let after = one.status().after(&all).await.unwrap();
    assert!(after.holders.is_empty() && after.waiters.is_empty() && after.is_last());
    let listed = client(&_engine).await.scan("up").next_page().await.unwrap();
    assert_eq!(listed, Some(vec!["uploads".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn semaphore_lease_lost_with_the_data_of_the_server_is_reported() {
    let (engine, one, _other) = two(2).await;
    let held = one.acquire(2).lease(3 * SECOND).await.unwrap();
    engine.faults().flush_data(engine.faults().master_of(one.slot()));
    held.ended().await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert_eq!(one.acquire(2).await.unwrap().num_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn semaphore_acquire_is_confirmed_by_replicas() {
    let engine = EmbeddedCluster::builder().masters(1).build();
    let one = semaphore(&engine, 2).await;
    assert_eq!(one.acquire(1).min_replicas(1).await.unwrap().num_permits(), 1);
    engine.faults().lag_replica(1);
    let error = one.acquire(1).min_replicas(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// The error names what the key holds.
#[tokio::test(start_paused = true)]
async fn name_of_another_kind_of_lock_is_refused_with_that_kind() {
    let locks = client(&engine()).await;
    let (permits, order) = (locks.semaphore("permits", 1).unwrap(), locks.rwlock("order").unwrap());
    let (_permit, _guard) = (permits.acquire(1).await.unwrap(), order.read().await.unwrap());
    let (lock, semaphore) =
        (locks.rwlock("permits").unwrap(), locks.semaphore("order", 1).unwrap());
    for (error, kind) in [
        (lock.write().await.map(drop), "a semaphore"),
        (lock.read().await.map(drop), "a semaphore"),
        (lock.status().await.map(drop), "a semaphore"),
        (semaphore.acquire(1).await.map(drop), "a read/write lock"),
        (semaphore.status().await.map(drop), "a read/write lock"),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let says = format!("the key holds {kind}; use another name");
        assert!(error.to_string().contains(&says), "{error}");
    }
}
