//! Taking locks from their holders.

use std::time::Duration;

use rwlease::{ErrorKind, LeaseState, Locks, RenewalPolicy};

use super::bench::{Bench, eventually, soon};
use crate::support::ConnectBuilder;

const LEASE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn revoked_lease_ends_at_its_deadline_and_not_before() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("revoked").unwrap();
    assert_eq!(lock.revoke().await.unwrap(), None);
    let guard = lock.write().lease(LEASE).await.unwrap();
    let revocation = lock.revoke().await.unwrap().expect("somebody writes");
    assert_eq!((revocation.token, revocation.readers), (guard.token(), 0));
    assert!(revocation.writer.is_some_and(|left| left <= LEASE));
    eventually("it hears of that", || async { guard.state() == LeaseState::Uncertain }).await;
    assert!(lock.try_write().await.unwrap().is_none(), "the lease is not cut short");
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Revoked);
    let next = soon("the next writer", lock.write().into_future()).await.unwrap();
    assert_eq!(guard.state(), LeaseState::Lost, "it ended here first");
    assert!(next.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_let_expire_of_a_revoked_lease_return_revoked() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("revoked").unwrap();
    let reading = lock.read().await.unwrap();
    lock.revoke().await.unwrap();
    let refused = reading.try_upgrade().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Revoked);
    let reading = refused.into_guard();
    eventually("it hears of that", || async { reading.state() == LeaseState::Uncertain }).await;
    let refused = reading.upgrade().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Revoked);
    let _ = refused.into_guard().release().await.unwrap();
    let writing = lock.write().lease(LEASE).await.unwrap();
    lock.revoke().await.unwrap();
    assert_eq!(writing.keep().await.unwrap_err().kind(), ErrorKind::Revoked);
}

#[tokio::test(flavor = "multi_thread")]
async fn force_release_frees_the_lock_at_once_and_ends_the_holders() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("forced").unwrap();
    assert_eq!(lock.force_release().await.unwrap(), None);
    let writing = lock.write().lease(Duration::from_secs(2)).await.unwrap();
    let forced = lock.force_release().await.unwrap().expect("somebody writes");
    assert!(forced.writer && forced.token > writing.token());
    let next = lock.try_write().await.unwrap().expect("it is free at once");
    assert!(next.token() > forced.token);
    soon("the old holder hears of it", writing.lost()).await;
    assert!(next.is_held());
    let _ = next.release().await.unwrap();
    // More readers than one call sweeps, and a waiter that does not poll again within this test.
    let patient = Locks::builder()
        .poll_interval(Duration::from_secs(60))
        .waiter_ttl(Duration::from_secs(600))
        .connect_to(&[bench.server.url()])
        .await
        .unwrap();
    let mut readers = Vec::new();
    for _ in 0..100 {
        let read = lock.read().lease(Duration::from_secs(100)).renewal(RenewalPolicy::Manual);
        readers.push(read.await.unwrap());
    }
    let waiting = tokio::spawn({
        let lock = patient.rwlock("forced").unwrap();
        async move { lock.write().await.unwrap() }
    });
    eventually("it can be pushed to", || async { bench.record("forced").await.has_subscriber() })
        .await;
    let forced = lock.force_release().await.unwrap().expect("many read");
    assert_eq!((forced.readers, forced.writer), (100, false));
    let next = soon("the waiting writer", waiting).await.unwrap();
    for reader in &readers {
        assert_eq!(reader.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert!(next.is_held() && next.token() > forced.token);
}
