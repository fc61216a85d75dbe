//! Taking locks from their holders.

use std::time::Duration;

use rwlease::{Client, ErrorKind, LeaseState, RenewalPolicy};

use crate::fixture::{Bench, LONG, eventually, soon};
use testkit::spawn_write;

const LEASE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn revoked_lease_ends_at_its_deadline_and_not_before() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("revoked").unwrap();
    assert_eq!(lock.revoke().await.unwrap(), None);
    let guard = lock.write().lease(LEASE).await.unwrap();
    let revocation = lock.revoke().await.unwrap().expect("somebody writes");
    assert_eq!(
        (revocation.fencing_token.get(), revocation.reader_count),
        (guard.fencing_token().get(), 0)
    );
    assert!(revocation.writer.is_some_and(|left| left <= LEASE));
    eventually("it hears of that", || async { guard.state() == LeaseState::Uncertain }).await;
    assert!(lock.try_write().await.unwrap().is_none(), "the lease is not cut short");
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::LeaseRevoked);
    let next = soon("the next writer", lock.write().into_future()).await.unwrap();
    assert_eq!(guard.state(), LeaseState::Lost, "it ended here first");
    assert!(next.fencing_token() > guard.fencing_token());
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_let_expire_of_a_revoked_lease_return_revoked() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("revoked").unwrap();
    let reading = lock.read().await.unwrap();
    lock.revoke().await.unwrap();
    let refused = reading.try_upgrade().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseRevoked);
    let reading = refused.into_guard();
    eventually("it hears of that", || async { reading.state() == LeaseState::Uncertain }).await;
    let refused = reading.upgrade().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseRevoked);
    let _ = refused.into_guard().release().await.unwrap();
    let writing = lock.write().lease(LEASE).await.unwrap();
    lock.revoke().await.unwrap();
    assert_eq!(writing.let_expire().await.unwrap_err().kind(), ErrorKind::LeaseRevoked);
}

#[tokio::test(flavor = "multi_thread")]
async fn force_release_frees_the_lock_at_once_and_ends_the_holders() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("forced").unwrap();
    assert_eq!(lock.force_release().await.unwrap(), None);
    let writing = lock.write().lease(Duration::from_secs(2)).await.unwrap();
    let forced = lock.force_release().await.unwrap().expect("somebody writes");
    assert!(forced.writer && forced.fencing_token.get() > writing.fencing_token().get());
    let next = lock.try_write().await.unwrap().expect("it is free at once");
    assert!(next.fencing_token().get() > forced.fencing_token.get());
    soon("the old holder hears of it", writing.ended()).await;
    assert!(next.is_held());
    let _ = next.release().await.unwrap();
    // More readers than one call sweeps, and a waiter that does not poll again within this test.
    let patient = Client::builder().poll_interval(LONG).waiter_ttl(10 * LONG);
    let patient = bench.client_with(patient).await;
    let mut readers = Vec::new();
    for _ in 0..100 {
        let read = lock.read().lease(Duration::from_secs(100)).renewal(RenewalPolicy::Manual);
        readers.push(read.await.unwrap());
    }
    let waiting = spawn_write(&patient.rwlock("forced").unwrap());
    eventually("it can be pushed to", || async { bench.record("forced").await.has_subscriber() })
        .await;
    let forced = lock.force_release().await.unwrap().expect("many read");
    assert_eq!((forced.reader_count, forced.writer), (100, false));
    let next = soon("the waiting writer", waiting).await.unwrap().unwrap();
    for reader in &readers {
        assert_eq!(reader.renew().await.unwrap_err().kind(), ErrorKind::LeaseLost);
    }
    assert!(next.is_held() && next.fencing_token().get() > forced.fencing_token.get());
}
