//! An owner that takes the same lock again: one count for each owner, of read/write locks and of
//! mutexes.

use std::time::Duration;

use futures::poll;
use rwlease::{ErrorKind, LockMode, ReentrantOwner, ReleaseOutcome, RwLock, SetNxMutex};
use tokio::time::timeout;

use crate::fixture::{Bench, LONG, eventually, in_task, soon};

/// A server, an owner, and a lock.
async fn rwlock(name: &str) -> (Bench, ReentrantOwner, RwLock) {
    let bench = Bench::new().await;
    let (owner, lock) = (bench.locks.reentrant_owner(), bench.locks.rwlock(name).unwrap());
    (bench, owner, lock)
}

/// A server, an owner, and a mutex.
async fn set_nx(name: &str) -> (Bench, ReentrantOwner, SetNxMutex) {
    let bench = Bench::new().await;
    let (owner, mutex) = (bench.locks.reentrant_owner(), bench.locks.set_nx_mutex(name).unwrap());
    (bench, owner, mutex)
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_acquire_of_a_held_lock_makes_no_call() {
    let (bench, reentrant, lock) = rwlock("again").await;
    let first = reentrant.write(&lock).await.unwrap();
    bench.server.reset_stats().await.unwrap();
    let mut shares = (Vec::new(), Vec::new());
    for _ in 0..50 {
        shares.0.push(reentrant.write(&lock).await.unwrap());
        shares.1.push(reentrant.clone().read(&lock).await.unwrap());
        shares.0.push(reentrant.try_write(&lock).await.unwrap().expect("its own"));
        shares.1.push(reentrant.try_read(&lock).await.unwrap().expect("its own"));
    }
    assert!(shares.0.iter().all(|share| share.fencing_token() == first.fencing_token()));
    let other = bench.locks.reentrant_owner();
    assert!(other.try_read(&lock).await.unwrap().is_none(), "another owner");
    let calls =
        bench.server.calls("evalsha").await.unwrap() + bench.server.calls("eval").await.unwrap();
    assert!(calls <= 2, "the other owner's try alone, but there were {calls} calls");
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::Released);
    for share in shares.0 {
        assert!(bench.record("again").await.is_written());
        assert!(lock.is_held_by(share.id()).await.unwrap());
        assert_eq!(share.release().await.unwrap(), ReleaseOutcome::Released);
    }
    let record = bench.record("again").await;
    assert!(
        record.readers() == 1 && !record.is_written(),
        "the last write is gone, reads are left"
    );
    drop(shares.1);
    eventually("all is free", || async { bench.record("again").await.is_free() }).await;
}

#[tokio::test]
async fn reentrant_write_and_read_released_at_once_are_both_released() {
    let (_bench, owner, lock) = rwlock("both").await;
    let (writing, reading) = (owner.write(&lock).await.unwrap(), owner.read(&lock).await.unwrap());
    let (written, read) = tokio::join!(writing.release(), reading.release());
    assert_eq!(written.unwrap(), ReleaseOutcome::Released);
    assert_eq!(read.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn reentrant_releases_after_a_shutdown_are_of_a_lost_lease() {
    let (bench, owner, lock) = rwlock("shut").await;
    let (first, second) = (owner.read(&lock).await.unwrap(), owner.read(&lock).await.unwrap());
    bench.locks.shutdown(LONG).await;
    for guard in [first, second] {
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_releases_in_any_order_leave_the_right_mode() {
    let (bench, reentrant, lock) = rwlock("order").await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let read = reentrant.read(&lock).await.unwrap();
        let write = reentrant.write(&lock).await.unwrap(); // an upgrade
        assert!(write.fencing_token().get() > 0 && bench.record("order").await.is_written());
        let again = reentrant.read(&lock).await.unwrap();
        let (mut reads, mut write) = ([Some(read), Some(again)], Some(write));
        for which in order {
            let released = match which {
                2 => write.take().unwrap().release().await,
                which => reads[which].take().unwrap().release().await,
            };
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
            assert!(write.iter().all(|write| write.is_held()), "{order:?}");
            let record = bench.record("order").await;
            let reads_left = reads.iter().flatten().count() > 0;
            assert_eq!(record.is_written(), write.is_some(), "{order:?}");
            assert_eq!(record.readers(), usize::from(write.is_none() && reads_left), "{order:?}");
        }
        assert!(bench.record("order").await.is_free());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_write_during_a_background_downgrade_is_granted() {
    let (bench, reentrant, lock) = rwlock("flip").await;
    let read = reentrant.read(&lock).await.unwrap();
    for round in 0..200 {
        let write = reentrant.write(&lock).await.unwrap();
        assert_eq!(write.mode(), Some(LockMode::Write));
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        drop(write); // the client downgrades in the background, or not at all
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let write = reentrant.write(&lock).await.unwrap();
        assert!(bench.record("flip").await.is_written(), "round {round}");
        if round % 5 == 0 {
            assert_eq!(write.release().await.unwrap(), ReleaseOutcome::Released);
            assert!(!bench.record("flip").await.is_written(), "round {round}");
        }
    }
    drop(read);
    eventually("all is free", || async { bench.record("flip").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_write_that_timed_out_keeps_the_other_requests() {
    let (bench, reentrant, lock) = rwlock("late").await;
    let other = lock.read().await.unwrap();
    let read = reentrant.read(&lock).await.unwrap();
    // Two requests wait to write. The first one, which polls, times out. The other one goes on.
    let patient = {
        let mut first = reentrant.write(&lock).timeout(Duration::from_millis(300)).into_future();
        assert!(poll!(&mut first).is_pending());
        let (reentrant, lock) = (reentrant.clone(), lock.clone());
        let mut second = Box::pin(async move { reentrant.write(&lock).await });
        assert!(poll!(&mut second).is_pending());
        assert_eq!(first.await.unwrap_err().kind(), ErrorKind::TimedOut);
        tokio::spawn(second)
    };
    assert!(read.is_held());
    assert!(reentrant.try_write(&lock).await.unwrap().is_none());
    let again = reentrant.read(&lock).await.unwrap();
    let _ = other.release().await.unwrap();
    let write = soon("the patient one", patient).await.unwrap().unwrap();
    assert!(
        write.fencing_token().get() > 0 && read.fencing_token() == write.fencing_token(),
        "one lease for all"
    );
    drop(read);
    assert!(write.is_held());
    drop(write);
    eventually("it reads again", || async { bench.record("late").await.readers() == 1 }).await;
    assert!(again.is_held());
    drop(again);
    eventually("all is free", || async { bench.record("late").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_upgrade_beside_that_of_another_owner_returns_conflict() {
    let (bench, one, lock) = rwlock("both").await;
    let two = bench.locks.reentrant_owner();
    let reads = (one.read(&lock).await.unwrap(), two.read(&lock).await.unwrap());
    let first = in_task(&lock, |lock| async move { one.write(&lock).await });
    eventually("it waits", || async { bench.record("both").await.has_waiters() }).await;
    assert_eq!(two.write(&lock).await.unwrap_err().kind(), ErrorKind::UpgradeConflict);
    assert!(reads.1.is_held());
    drop(reads.1);
    let write = soon("the upgrade", first).await.unwrap().unwrap();
    assert_eq!(reads.0.fencing_token(), write.fencing_token());
    let strange = bench.client().await.reentrant_owner();
    assert_eq!(strange.read(&lock).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_write_after_a_loss_gets_a_new_lease() {
    let (bench, reentrant, lock) = rwlock("anew").await;
    let old = reentrant.write(&lock).lease(Duration::from_secs(1)).await.unwrap();
    lock.force_release().await.unwrap().expect("it was held");
    soon("the loss", old.ended()).await;
    let new = reentrant.write(&lock).lease(Duration::from_secs(1)).await.unwrap();
    assert!(new.is_held() && !old.is_held());
    testkit::wait_renewed(&new, 2).await.unwrap();
    assert_eq!(old.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert!(new.is_held() && bench.record("anew").await.is_written());
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_is_free_after_as_many_releases_as_locks() {
    let (bench, reentrant, mutex) = set_nx("again").await;
    let other = bench.locks.reentrant_owner();
    let mut held = vec![reentrant.lock_set_nx(&mutex).await.unwrap()];
    let value = bench.server.run_words::<String>("GET again").await.unwrap();
    bench.server.reset_stats().await.unwrap();
    for _ in 0..20 {
        held.push(reentrant.lock_set_nx(&mutex).await.unwrap());
        held.push(reentrant.clone().try_lock_set_nx(&mutex).await.unwrap().expect("its own"));
    }
    assert_eq!(bench.server.calls("evalsha").await.unwrap(), 0, "no round trip");
    assert!(held.iter().all(|guard| guard.id() == value));
    while held.len() > 1 {
        let guard = held.swap_remove(held.len() / 2);
        assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(mutex.is_held_by(&value).await.unwrap(), "{} are left", held.len());
        assert!(other.try_lock_set_nx(&mutex).await.unwrap().is_none());
    }
    drop(held);
    let next = timeout(LONG, other.lock_set_nx(&mutex)).await.unwrap().unwrap();
    assert_eq!(next.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_lease_is_shared_by_tasks_of_one_owner() {
    let (bench, reentrant, mutex) = set_nx("tasks").await;
    let holding = reentrant.lock_set_nx(&mutex).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (reentrant, mutex) = (reentrant.clone(), mutex.clone());
        tasks.push(tokio::spawn(async move {
            let held = reentrant.lock_set_nx(&mutex).await.unwrap();
            tokio::task::yield_now().await;
            let value = held.id().to_owned();
            let _ = held.release().await.unwrap();
            value
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), holding.id());
    }
    assert_eq!(bench.server.run_words::<String>("GET tasks").await.unwrap(), holding.id());
    assert_eq!(holding.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_after_a_loss_gets_a_new_lease() {
    let (bench, reentrant, mutex) = set_nx("lost").await;
    let lost = reentrant.lock_set_nx(&mutex).lease(Duration::from_secs(2)).await.unwrap();
    bench.server.run_words::<u64>("DEL lost").await.unwrap();
    timeout(LONG, lost.ended()).await.unwrap();
    let again = reentrant.lock_set_nx(&mutex).await.unwrap();
    assert!(again.is_held() && again.id() != lost.id());
    assert_eq!(lost.release().await.unwrap(), ReleaseOutcome::AlreadyLost);
    assert!(again.is_held() && mutex.is_held_by(again.id()).await.unwrap());
    assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
}

/// A mutex and a read/write lock with the same key are two locks to an owner.
#[tokio::test(flavor = "multi_thread")]
async fn reentrant_rwlock_and_mutex_on_one_key_are_not_shared() {
    let (bench, reentrant, lock) = rwlock("same").await;
    let held = reentrant.write(&lock).await.unwrap();
    let mutex = bench.locks.set_nx_mutex("rwlease:same").unwrap();
    let foreign = reentrant.try_lock_set_nx(&mutex).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::WrongType);
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
}
