//! Locks as users take them, on a real cluster.

use std::time::Duration;

use crate::support::{Cluster, connect, wait_renewed};
use rwlease::{ErrorKind, LeaseState, Released, RenewalPolicy};

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_exclude() {
    let cluster = Cluster::start().await.unwrap();
    let locks = connect(&cluster.urls()[..1]).await.unwrap();
    let other = connect(&cluster.urls()[1..2]).await.unwrap();
    for name in ["a", "order:{42}", "b{1}", "c", "d"] {
        let (mine, theirs) = (locks.rwlock(name).unwrap(), other.rwlock(name).unwrap());
        let first = mine.read().await.unwrap();
        let second = theirs.try_read().await.unwrap().expect("readers share");
        assert!(second.token() > first.token());
        assert!(theirs.try_write().await.unwrap().is_none());
        assert_eq!(first.release().await.unwrap(), Released::Released);
        assert!(mine.try_write().await.unwrap().is_none(), "the second still reads");
        drop(second);
        let writing = mine.write().await.unwrap();
        assert_eq!(writing.state(), LeaseState::Held);
        assert!(theirs.try_read().await.unwrap().is_none());
        assert_eq!(writing.release().await.unwrap(), Released::Released);
    }
    assert!(locks.shutdown(Duration::from_secs(5)).await.is_empty());
    assert_eq!(locks.rwlock("a").unwrap().read().await.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_granted_on_release_and_times_out_before() {
    let cluster = Cluster::start().await.unwrap();
    let locks = connect(&cluster.urls()).await.unwrap();
    let lock = locks.rwlock("turn").unwrap();
    let holding = lock.write().lease(Duration::from_secs(1)).await.unwrap();
    let timed_out = lock.read().timeout(Duration::from_millis(400)).await.unwrap_err();
    assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
    assert_eq!(timed_out.lock(), Some("turn"));
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.map(|guard| guard.token()) }
    });
    wait_renewed(&holding, 4).await.unwrap(); // so the hold is longer than its first lease
    assert!(!waiting.is_finished());
    let token = holding.token();
    let _ = holding.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() > token);
    let manual = lock
        .write()
        .lease(Duration::from_millis(300))
        .renewal(RenewalPolicy::Manual)
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(5), manual.lost()).await.unwrap();
    assert_eq!(manual.state(), LeaseState::Lost);
    assert_eq!(manual.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    // The lease ends at the client before it ends at the server.
    drop(lock.read().await.unwrap());
    assert_eq!(manual.release().await.unwrap(), Released::AlreadyLost);
}
