//! Taking locks from their holders.

use std::time::Duration;

use rwlease::{ErrorKind, LeaseState};

use crate::bench::{Bench, eventually, soon};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_revoked_ends_at_its_deadline_and_not_before() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("revoked").unwrap();
    assert_eq!(lock.revoke().await.unwrap(), None);
    let guard = lock.write().lease(Duration::from_secs(3)).await.unwrap();
    let revocation = lock.revoke().await.unwrap().expect("somebody writes");
    assert_eq!((revocation.token, revocation.readers), (guard.token(), 0));
    assert!(revocation.writer.is_some_and(|left| left <= Duration::from_secs(3)));
    eventually("it hears of that", || async { guard.state() == LeaseState::Uncertain }).await;
    assert!(lock.try_write().await.unwrap().is_none(), "the lease is not cut short");
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    let next = soon("the next writer", lock.write().into_future()).await.unwrap();
    assert_eq!(guard.state(), LeaseState::Lost, "it ended here first");
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_frees_at_once_and_tells_the_holders() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("forced").unwrap();
    assert_eq!(lock.force_release().await.unwrap(), None);
    let writing = lock.write().lease(Duration::from_secs(2)).await.unwrap();
    let seizure = lock.force_release().await.unwrap().expect("somebody writes");
    assert!(seizure.writer && seizure.token > writing.token());
    let next = lock.try_write().await.unwrap().expect("it is free at once");
    assert!(next.token() > seizure.token);
    soon("the old holder hears of it", writing.lost()).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    // More readers than one call sweeps away.
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(lock.read().lease(Duration::from_secs(2)).await.unwrap());
    }
    let seizure = lock.force_release().await.unwrap().expect("many read");
    assert_eq!((seizure.readers, seizure.writer), (100, false));
    assert_eq!(
        bench.record("forced").await.readers(),
        0,
        "all are swept away when it returns"
    );
    let next = lock.try_write().await.unwrap().expect("all readers are gone");
    for reader in &readers {
        soon("the old readers hear of it", reader.lost()).await;
    }
    assert!(next.is_held());
}
