//! A holder that takes the same lock again.

use std::time::Duration;

use futures::poll;
use rwlease::{ErrorKind, LockMode, Released};

use super::bench::{Bench, eventually, soon};

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_acquire_of_a_held_lock_makes_no_call() {
    let bench = Bench::new().await;
    let (reentrant, lock) = (bench.locks.reentrant(), bench.locks.rwlock("again").unwrap());
    let first = reentrant.write(&lock).await.unwrap();
    bench.server.reset_stats().await.unwrap();
    let mut shares = (Vec::new(), Vec::new());
    for _ in 0..50 {
        shares.0.push(reentrant.write(&lock).await.unwrap());
        shares.1.push(reentrant.clone().read(&lock).await.unwrap());
        shares.0.push(reentrant.try_write(&lock).await.unwrap().expect("its own"));
        shares.1.push(reentrant.try_read(&lock).await.unwrap().expect("its own"));
    }
    assert!(shares.0.iter().all(|share| share.token() == first.token()));
    assert!(bench.locks.reentrant().try_read(&lock).await.unwrap().is_none(), "another reentrant");
    let calls =
        bench.server.calls("evalsha").await.unwrap() + bench.server.calls("eval").await.unwrap();
    assert!(calls <= 2, "the other reentrant's try alone, but there were {calls} calls");
    assert_eq!(first.release().await.unwrap(), Released::Released);
    for share in shares.0 {
        assert!(bench.record("again").await.is_written());
        assert_eq!(share.release().await.unwrap(), Released::Released);
    }
    let record = bench.record("again").await;
    assert!(
        record.readers() == 1 && !record.is_written(),
        "the last write is gone, reads are left"
    );
    drop(shares.1);
    eventually("all is free", || async { bench.record("again").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_releases_in_any_order_leave_the_right_mode() {
    let bench = Bench::new().await;
    let (reentrant, lock) = (bench.locks.reentrant(), bench.locks.rwlock("order").unwrap());
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let read = reentrant.read(&lock).await.unwrap();
        let write = reentrant.write(&lock).await.unwrap(); // an upgrade
        assert!(write.token() > 0 && bench.record("order").await.is_written());
        let again = reentrant.read(&lock).await.unwrap();
        let (mut reads, mut write) = ([Some(read), Some(again)], Some(write));
        for which in order {
            match which {
                2 => assert_eq!(write.take().unwrap().release().await.unwrap(), Released::Released),
                which => {
                    let read = reads[which].take().unwrap();
                    assert_eq!(read.release().await.unwrap(), Released::Released);
                }
            }
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
    let bench = Bench::new().await;
    let (reentrant, lock) = (bench.locks.reentrant(), bench.locks.rwlock("flip").unwrap());
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
            assert_eq!(write.release().await.unwrap(), Released::Released);
            assert!(!bench.record("flip").await.is_written(), "round {round}");
        }
    }
    drop(read);
    eventually("all is free", || async { bench.record("flip").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_write_that_timed_out_keeps_the_other_requests() {
    let bench = Bench::new().await;
    let (reentrant, lock) = (bench.locks.reentrant(), bench.locks.rwlock("give up").unwrap());
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
    assert!(write.token() > 0 && read.token() == write.token(), "one lease for all");
    drop(read);
    assert!(write.is_held());
    drop(write);
    eventually("it reads again", || async { bench.record("give up").await.readers() == 1 }).await;
    assert!(again.is_held());
    drop(again);
    eventually("all is free", || async { bench.record("give up").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_upgrade_beside_that_of_another_owner_returns_conflict() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("both").unwrap();
    let (one, two) = (bench.locks.reentrant(), bench.locks.reentrant());
    let reads = (one.read(&lock).await.unwrap(), two.read(&lock).await.unwrap());
    let first = tokio::spawn({
        let lock = lock.clone();
        async move { one.write(&lock).await }
    });
    eventually("it waits", || async { bench.record("both").await.has_waiters() }).await;
    assert_eq!(two.write(&lock).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(reads.1.is_held());
    drop(reads.1);
    let write = soon("the upgrade", first).await.unwrap().unwrap();
    assert_eq!(reads.0.token(), write.token());
    let strange = bench.client().await.reentrant();
    assert_eq!(strange.read(&lock).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_write_after_a_loss_gets_a_new_lease() {
    let bench = Bench::new().await;
    let (reentrant, lock) = (bench.locks.reentrant(), bench.locks.rwlock("anew").unwrap());
    let old = reentrant.write(&lock).lease(Duration::from_secs(1)).await.unwrap();
    lock.force_release().await.unwrap().expect("it was held");
    soon("the loss", old.lost()).await;
    let new = reentrant.write(&lock).await.unwrap();
    assert!(new.is_held() && !old.is_held());
    assert_eq!(old.release().await.unwrap(), Released::AlreadyLost);
    assert!(new.is_held() && bench.record("anew").await.is_written());
}
