//! A reentrant that takes the same lock again: one count for each reentrant, of read/write locks
//! and of mutexes.

use std::time::Duration;

use crate::support::{PollLimit, StandaloneServer, connect};
use rwlease::{ErrorKind, LockMode, Locks, Released, Retry};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn single() -> (StandaloneServer, Locks) {
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    (server, locks)
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_is_free_after_as_many_releases_as_locks() {
    let (server, locks) = single().await;
    let (reentrant, mutex) = (locks.reentrant(), locks.mutex("again").unwrap());
    let mut held = vec![reentrant.lock(&mutex).await.unwrap()];
    let value = server.run_words::<String>("GET again").await.unwrap();
    server.reset_stats().await.unwrap();
    for _ in 0..20 {
        held.push(reentrant.lock(&mutex).await.unwrap());
        held.push(reentrant.clone().try_lock(&mutex).await.unwrap().expect("its own"));
    }
    assert_eq!(server.calls("evalsha").await.unwrap(), 0, "no round trip");
    assert!(held.iter().all(|guard| guard.id() == value));
    while held.len() > 1 {
        let guard = held.swap_remove(held.len() / 2);
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert!(mutex.is_held_by(&value).await.unwrap(), "{} are left", held.len());
        assert!(mutex.try_lock().await.unwrap().is_none());
    }
    drop(held);
    let wait_limit = PollLimit::new("the last one to be released");
    while mutex.is_locked().await.unwrap() {
        wait_limit.pause("it is locked").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_is_granted_to_another_owner_after_the_last_release() {
    let (server, locks) = single().await;
    let (one, other, mutex) =
        (locks.reentrant(), locks.reentrant(), locks.mutex("others").unwrap());
    let first = one.lock(&mutex).await.unwrap();
    let second = one.lock(&mutex).await.unwrap();
    assert!(other.try_lock(&mutex).await.unwrap().is_none());
    let retry = Retry::every(Duration::from_millis(2)).tries(3);
    let refused = other.lock(&mutex).retry(retry).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TriesUsedUp);
    let waiting = tokio::spawn({
        let (other, mutex) = (other.clone(), mutex.clone());
        async move { other.lock(&mutex).await.unwrap().release().await.unwrap() }
    });
    let _ = first.release().await.unwrap();
    server.wait_until_called("evalsha", 3).await.unwrap(); // the other owner tries after the release
    assert!(!waiting.is_finished(), "one is left");
    let _ = second.release().await.unwrap();
    assert_eq!(timeout(LONG, waiting).await.unwrap().unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_lease_is_shared_by_tasks_of_one_owner() {
    let (server, locks) = single().await;
    let (reentrant, mutex) = (locks.reentrant(), locks.mutex("tasks").unwrap());
    let holding = reentrant.lock(&mutex).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let (reentrant, mutex) = (reentrant.clone(), mutex.clone());
        tasks.push(tokio::spawn(async move {
            let held = reentrant.lock(&mutex).await.unwrap();
            tokio::task::yield_now().await;
            let value = held.id().to_owned();
            let _ = held.release().await.unwrap();
            value
        }));
    }
    for task in tasks {
        assert_eq!(task.await.unwrap(), holding.id());
    }
    assert_eq!(server.run_words::<String>("GET tasks").await.unwrap(), holding.id());
    assert_eq!(holding.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_mutex_after_a_loss_gets_a_new_lease() {
    let (server, locks) = single().await;
    let (reentrant, mutex) = (locks.reentrant(), locks.mutex("lost").unwrap());
    let lost = reentrant.lock(&mutex).lease(Duration::from_secs(2)).await.unwrap();
    server.run_words::<u64>("DEL lost").await.unwrap();
    timeout(LONG, lost.lost()).await.unwrap();
    let again = reentrant.lock(&mutex).await.unwrap();
    assert!(again.is_held() && again.id() != lost.id());
    assert_eq!(lost.release().await.unwrap(), Released::AlreadyLost);
    assert!(again.is_held());
    assert!(mutex.is_held_by(again.id()).await.unwrap());
    assert_eq!(again.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_rwlock_counts_reads_and_writes() {
    let (_server, locks) = single().await;
    let (reentrant, lock) = (locks.reentrant(), locks.rwlock("both").unwrap());
    let outer = reentrant.write(&lock).await.unwrap();
    let inner = reentrant.write(&lock).await.unwrap();
    let reading = reentrant.read(&lock).await.unwrap();
    assert!(lock.is_held_by(outer.id()).await.unwrap());
    assert_eq!(outer.release().await.unwrap(), Released::Released);
    assert_eq!(
        lock.status().await.unwrap().writer.map(|writer| writer.mode),
        Some(LockMode::Write)
    );
    assert_eq!(inner.release().await.unwrap(), Released::Released);
    let status = lock.status().await.unwrap();
    assert!(status.writer.is_none() && status.readers == 1, "{status:?}");
    assert_eq!(reading.release().await.unwrap(), Released::Released);
    assert!(!lock.is_locked().await.unwrap());
}

/// A mutex and a read/write lock with the same key are two locks to a reentrant.
#[tokio::test(flavor = "multi_thread")]
async fn reentrant_rwlock_and_mutex_on_one_key_are_not_shared() {
    let (_server, locks) = single().await;
    let (reentrant, lock) = (locks.reentrant(), locks.rwlock("same").unwrap());
    let held = reentrant.write(&lock).await.unwrap();
    let mutex = locks.mutex("rwlease:same").unwrap();
    let foreign = reentrant.try_lock(&mutex).await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Foreign);
    assert_eq!(held.release().await.unwrap(), Released::Released);
}
