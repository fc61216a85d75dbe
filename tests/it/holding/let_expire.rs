//! Locks that no one releases.

use std::time::Duration;

use rwlease::{Client, ErrorKind, LeaseState, RenewalPolicy};

use crate::fixture::{Bench, in_task, soon};

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn let_expire_outlives_the_client_and_ends_with_the_lease() {
    let bench = Bench::new().await;
    let client = bench.client().await;
    let guard = client.rwlock("kept").unwrap().write().lease(LEASE).await.unwrap();
    let lease = guard.clone();
    let left = guard.let_expire().await.unwrap();
    assert!(left > LEASE / 2 && left <= LEASE, "{left:?}");
    assert_eq!(lease.state(), LeaseState::Lost, "nobody here holds it any more");
    soon("its end here", lease.ended()).await;

    // The client keeps nothing of it, so it has nothing to release.
    assert!(client.shutdown(Duration::from_secs(10)).await.is_empty());
    drop(client);
    let lock = bench.locks.rwlock("kept").unwrap();
    let status = lock.status().await.unwrap();
    let writer = status.writer.expect("it is taken still");
    assert_eq!(writer.id, lease.id());
    let next = soon("the end of the lease", lock.write().into_future()).await.unwrap();
    assert!(Some(next.fencing_token()) > lease.fencing_token(), "nobody made it longer");
}

#[tokio::test(flavor = "multi_thread")]
async fn let_expire_renews_to_a_whole_lease() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("whole").unwrap();
    // A granted waiter has a short lease until it claims it. A lease that is not renewed has partly
    // run down.
    let first = lock.write().await.unwrap();
    let second = in_task(&lock, |lock| async move {
        lock.read().lease(Duration::from_secs(60)).renewal(RenewalPolicy::Manual).await
    });
    while lock.status().await.unwrap().waiter_count == 0 {}
    let _ = first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    let left = second.let_expire().await.unwrap();
    assert!(left > Duration::from_secs(40), "{left:?}");
    let status = lock.status().await.unwrap();
    assert!(status.readers[0].lease_remaining > Duration::from_secs(40), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn let_expire_fails_if_lost_and_without_a_reply_releases_nothing() {
    let bench = Bench::new().await;
    let lock = bench.locks.rwlock("lost").unwrap();
    let guard = lock.write().await.unwrap();
    lock.force_release().await.unwrap();
    assert_eq!(guard.let_expire().await.unwrap_err().kind(), ErrorKind::LeaseLost);

    let hasty = Client::builder().call_timeout(Duration::from_millis(300));
    let hasty = bench.client_with(hasty).await;
    let guard = hasty.rwlock("silent").unwrap().write().await.unwrap();
    let id = guard.id().to_owned();
    bench.server.freeze().unwrap();
    let kept = soon("the answer", guard.let_expire()).await;
    bench.server.thaw().unwrap();
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(hasty.shutdown(Duration::from_secs(10)).await.is_empty());
    assert!(bench.locks.rwlock("silent").unwrap().is_held_by(id).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn let_expire_of_a_mutex_keeps_it_locked() {
    let bench = Bench::new().await;
    let mutex = bench.locks.set_nx_mutex("mutex").unwrap();
    mutex.lock().lease(LEASE).await.unwrap().let_expire().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
}
