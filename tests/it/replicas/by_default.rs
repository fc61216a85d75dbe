//! `ClientBuilder::min_replicas`: every request of the client is confirmed, unless it says
//! otherwise.

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::{Client, Error, ErrorKind, Redlock};
use testkit::{ConnectBuilder, StandaloneServer};

use super::must_be_unconfirmed;

/// A master whose only replica is stopped, and a client whose requests that replica must confirm.
async fn stage() -> (StandaloneServer, StandaloneServer, Client) {
    let master = StandaloneServer::start().await.unwrap();
    let replica = master.start_replica().await.unwrap();
    let locks = Client::builder().min_replicas(1).connect_to(&[master.url()]).await.unwrap();
    replica.freeze().unwrap();
    (master, replica, locks)
}

/// A kind of request that must fail. Its lock has a name of its own.
fn refused<'a, T: Debug + Send + 'a>(
    request: impl IntoFuture<Output = Result<T, Error>, IntoFuture: Send + 'a>,
) -> BoxFuture<'a, ()> {
    request.into_future().map(must_be_unconfirmed).boxed()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_min_replicas_confirms_every_kind_of_request() {
    let (_master, _replica, locks) = stage().await;
    let lock = |name| locks.rwlock(name).unwrap();
    let (read, write, tried) = (lock("read"), lock("write"), lock("try"));
    let (mutex, plain) = (locks.mutex("m").unwrap(), locks.set_nx_mutex("x").unwrap());
    let semaphore = locks.semaphore("s", 3).unwrap();
    let election = locks.election("e").unwrap();
    let cached = lock("cached").cached().unwrap();
    for request in [
        refused(read.read()),
        refused(write.write()),
        refused(tried.try_write()),
        refused(mutex.lock()),
        refused(plain.lock()),
        refused(semaphore.acquire(2)),
        refused(election.campaign()),
        refused(locks.multi_lock().write("one").read("two")),
        refused(locks.multi_lock().write("three").try_acquire()),
        refused(cached.read()),
    ] {
        request.await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_min_replicas_of_zero_overrides_the_client() {
    let (_master, _replica, locks) = stage().await;
    let lock = locks.rwlock("a").unwrap();
    let held = lock.write().min_replicas(0).await.unwrap();
    held.renew().await.unwrap();
    let _ = held.release().await.unwrap();
    let tried = lock.try_read().min_replicas(0).await.unwrap();
    assert!(tried.is_some());
    let both = locks.multi_lock().write("one").write("two").min_replicas(0).await.unwrap();
    assert!(both.is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn redlock_with_min_replicas_needs_confirmed_members() {
    let (_master, replica, confirming) = stage().await;
    let two = [StandaloneServer::start().await.unwrap(), StandaloneServer::start().await.unwrap()];
    let members = [
        confirming,
        testkit::connect(&[two[0].url()]).await.unwrap(),
        testkit::connect(&[two[1].url()]).await.unwrap(),
    ];
    let quorum = Redlock::new(members).unwrap();
    let patient = Duration::from_secs(2);
    // The settings of the first member apply to all, and the others have no replica.
    let error = quorum.set_nx_mutex("a").member_timeout(patient).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    replica.thaw().unwrap();
    let error = quorum.set_nx_mutex("b").member_timeout(patient).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let plain = quorum.set_nx_mutex("c").member_timeout(patient).min_replicas(0);
    assert!(plain.try_acquire().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn multi_lock_with_min_replicas_is_unavailable_and_released() {
    let (master, replica, _) = stage().await;
    let locks = testkit::connect(&[master.url()]).await.unwrap();
    must_be_unconfirmed(locks.multi_lock().write("a").read("b").min_replicas(1).await);
    replica.thaw().unwrap();
    master.wait_for_replica().await.unwrap();
    let held = locks.multi_lock().write("a").read("b").min_replicas(1).await.unwrap();
    assert!(held.is_held());
}
