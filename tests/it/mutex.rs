//! The mutex: the write side of the fair lock.

use std::time::Duration;

use rwlease::{Client, ErrorKind, LockMode, ReleaseOutcome};
use testkit::{StandaloneServer, connect};

use crate::fixture::{LONG, single};

async fn two_clients() -> (StandaloneServer, Client, Client) {
    let (server, one) = single().await;
    let other = connect(&[server.url()]).await.unwrap();
    (server, one, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_and_rwlock_of_one_name_exclude_each_other() {
    let (_server, one, other) = two_clients().await;
    let (mutex, lock) = (one.mutex("shared").unwrap(), other.rwlock("shared").unwrap());
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.mode(), Some(LockMode::Write));
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    let read = lock.read().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let error = mutex.lock().timeout(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(read.release().await.unwrap().was_held());
    // The request that timed out leaves the queue in the background, so the lock may pass it first.
    assert!(mutex.lock().timeout(LONG).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_guard_can_be_transferred_and_left_to_its_lease() {
    let (_server, one, other) = two_clients().await;
    let mutex = one.mutex("moved").unwrap();
    let guard = mutex.lock().await.unwrap();
    let token = guard.fencing_token();
    let transfer = guard.into_transfer().await.unwrap();
    let accepted = other.accept_transfer(&transfer).await.unwrap();
    assert_eq!((accepted.fencing_token(), accepted.mode()), (token, Some(LockMode::Write)));
    assert!(accepted.release().await.unwrap().was_held());
    let guard = mutex.lock().await.unwrap();
    assert!(guard.let_expire().await.unwrap() > Duration::ZERO);
    assert!(mutex.try_lock().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn mutex_lock_by_a_reentrant_owner_is_granted_again_without_a_call() {
    let (server, one, _other) = two_clients().await;
    let (owner, mutex) = (one.reentrant_owner(), one.mutex("again").unwrap());
    let outer = owner.lock(&mutex).await.unwrap();
    let calls = server.calls("evalsha").await.unwrap();
    let inner = owner.try_lock(&mutex).await.unwrap().expect("the same owner");
    assert_eq!(inner.fencing_token(), outer.fencing_token());
    assert!(inner.release().await.unwrap().was_held());
    assert_eq!(server.calls("evalsha").await.unwrap(), calls);
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(outer.release().await.unwrap().was_held());
}
