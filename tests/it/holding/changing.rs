//! From write to read and back.

use std::time::Duration;

use rwlease::{ErrorKind, LockMode, Locks};

use super::bench::{Bench, eventually, soon};
use crate::support::ConnectBuilder;

#[tokio::test(flavor = "multi_thread")]
async fn downgrade_keeps_the_token_and_grants_waiting_readers() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("down").unwrap();
    let writing = lock.write().await.unwrap();
    let token = writing.token();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
    eventually("the reader waits", || async { bench.record("down").await.has_waiters() }).await;
    let reading = writing.downgrade().await.unwrap();
    assert_eq!((reading.mode(), reading.token()), (Some(LockMode::Read), token));
    let other = soon("the reader", waiting).await.unwrap();
    assert_eq!(bench.record("down").await.readers(), 2);
    assert!(lock.try_write().await.unwrap().is_none());
    let _ = other.release().await.unwrap();
    let _ = reading.release().await.unwrap();
    assert!(bench.record("down").await.is_free());
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_of_the_only_reader_gets_a_new_token() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("up").unwrap();
    let reading = lock.read().await.unwrap();
    let token = reading.token();
    let writing = reading.try_upgrade().await.unwrap().expect("nobody else reads");
    assert!(writing.token() > token);
    assert_eq!(writing.mode(), Some(LockMode::Write));
    let reading = writing.downgrade().await.unwrap();
    let other = lock.read().await.unwrap();
    let reading = reading.try_upgrade().await.unwrap().expect_err("another reads");
    assert!(reading.is_held());
    assert!(!bench.record("up").await.has_waiters(), "a try leaves no wait");
    let _ = other.release().await.unwrap();
    let writing = reading.upgrade().await.unwrap();
    assert!(bench.record("up").await.is_written());
    let _ = writing.release().await.unwrap();
    assert!(bench.record("up").await.is_free());
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_beside_another_upgrader_returns_conflict() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("two").unwrap();
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let waiting_writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap().token() }
    });
    eventually("the writer waits", || async { bench.record("two").await.has_waiters() }).await;
    let upgrading = tokio::spawn(async move { first.upgrade().await });
    eventually("the first one waits to be upgraded", || async {
        bench.record("two").await.has_upgrader()
    })
    .await;
    let refused = second.upgrade().timeout(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let second = refused.into_guard();
    assert!(second.is_held(), "the refused one reads on");
    assert!(lock.try_read().await.unwrap().is_none(), "no new reader meanwhile");
    let _ = second.release().await.unwrap();
    let writing = soon("the upgrade", upgrading).await.unwrap().unwrap();
    let token = writing.token();
    assert!(!waiting_writer.is_finished(), "the upgrader goes before the waiting writer");
    let _ = writing.release().await.unwrap();
    assert!(soon("the writer", waiting_writer).await.unwrap() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_that_timed_out_keeps_the_read_and_blocks_no_reader() {
    let bench = Bench::new().await;
    // A wait that the client failed to end would outlast this test.
    let locks = Locks::builder()
        .waiter_ttl(Duration::from_secs(600))
        .connect_to(&[bench.server.url()])
        .await
        .unwrap();
    let lock = locks.rwlock("late").unwrap();
    let (reading, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let refused = reading.upgrade().timeout(Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    let reading = refused.into_guard();
    assert!(reading.is_held());
    eventually("the wait ends", || async { !bench.record("late").await.has_waiters() }).await;
    let third = lock.try_read().await.unwrap().expect("readers may come again");
    drop((third, other));
    let writing = soon("the upgrade", reading.upgrade().into_future()).await.unwrap();
    let _ = writing.release().await.unwrap();
    eventually("all is free", || async { bench.record("late").await.is_free() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_dropped_leaves_nothing() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("dropped").unwrap();
    for pause in [0, 1, 2, 5, 20, 100] {
        let (reading, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        let upgrading = reading.upgrade().into_future();
        let _ = tokio::time::timeout(Duration::from_millis(pause), upgrading).await;
        let _ = other.release().await.unwrap();
        eventually("all is free", || async { bench.record("dropped").await.is_free() }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_is_granted_by_push() {
    let bench = Bench::new().await;
    // A waiter that only polls would not get its turn within this test.
    let locks = Locks::builder()
        .poll_interval(Duration::from_secs(60))
        .waiter_ttl(Duration::from_secs(600))
        .connect_to(&[bench.server.url()])
        .await
        .unwrap();
    let lock = locks.rwlock("told").unwrap();
    for _ in 0..3 {
        let (reading, other) = (lock.read().await.unwrap(), bench.locks.rwlock("told").unwrap());
        let other = other.read().await.unwrap();
        let upgrading = tokio::spawn(async move { reading.upgrade().await });
        eventually("it can be pushed to", || async { bench.record("told").await.has_subscriber() })
            .await;
        let _ = other.release().await.unwrap();
        let writing = soon("the upgrade", upgrading).await.unwrap().unwrap();
        assert_eq!(writing.mode(), Some(LockMode::Write));
        let _ = writing.release().await.unwrap();
    }
}
