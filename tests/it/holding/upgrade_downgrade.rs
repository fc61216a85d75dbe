//! From write to read and back.

use std::time::Duration;

use rwlease::{Client, ErrorKind, LockMode, UpgradeAttempt};

use crate::fixture::{Bench, LONG, eventually, soon};
use testkit::{spawn_read, spawn_write};

#[tokio::test(flavor = "multi_thread")]
async fn downgrade_keeps_the_token_and_grants_waiting_readers() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("down").unwrap();
    let writing = lock.write().await.unwrap();
    let token = writing.fencing_token().get();
    let waiting = spawn_read(&lock);
    eventually("the reader waits", || async { bench.record("down").await.has_waiters() }).await;
    let reading = writing.downgrade().await.unwrap();
    assert_eq!((reading.mode(), reading.fencing_token().get()), (Some(LockMode::Read), token));
    let other = soon("the reader", waiting).await.unwrap().unwrap();
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
    let token = reading.fencing_token().get();
    let writing = reading.try_upgrade().await.unwrap().upgraded().expect("nobody else reads");
    assert!(writing.fencing_token().get() > token);
    assert_eq!(writing.mode(), Some(LockMode::Write));
    let reading = writing.downgrade().await.unwrap();
    let other = lock.read().await.unwrap();
    let UpgradeAttempt::OtherReaders(reading) = reading.try_upgrade().await.unwrap() else {
        panic!("another reads");
    };
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
    let waiting_writer = spawn_write(&lock);
    eventually("the writer waits", || async { bench.record("two").await.has_waiters() }).await;
    let upgrading = tokio::spawn(async move { first.upgrade().await });
    eventually("the first one waits to be upgraded", || async {
        bench.record("two").await.has_upgrader()
    })
    .await;
    let refused = second.upgrade().timeout(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::UpgradeConflict);
    let second = refused.into_guard();
    assert!(second.is_held(), "the refused one reads on");
    assert!(lock.try_read().await.unwrap().is_none(), "no new reader meanwhile");
    let _ = second.release().await.unwrap();
    let writing = soon("the upgrade", upgrading).await.unwrap().unwrap();
    let token = writing.fencing_token();
    assert!(!waiting_writer.is_finished(), "the upgrader goes before the waiting writer");
    let _ = writing.release().await.unwrap();
    let next = soon("the writer", waiting_writer).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_is_granted_by_push() {
    let bench = Bench::new().await;
    // A waiter that only polls would not get its turn within this test.
    let settings = Client::builder().poll_interval(LONG).waiter_ttl(10 * LONG);
    let locks = bench.client_with(settings).await;
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
