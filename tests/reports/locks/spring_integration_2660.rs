//! spring-projects/spring-integration#2660: a release fails because the server cannot be reached.
//! In this process the lock can then never be taken again, even when it has expired at the server.
//!
//! A failed release leaves nothing in the process that would refuse the next request.

use rwlease::Client;

use crate::{SECOND, soon};
use testkit::{ConnectBuilder, Proxy, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn lock_whose_release_failed_is_taken_again() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let settings = Client::builder().lease(2 * SECOND).call_timeout(SECOND);
    let locks = settings.connect_to(&[proxy.url()]).await.unwrap();
    let (owner, lock) = (locks.reentrant_owner(), locks.rwlock("user").unwrap());
    let mutex = locks.set_nx_mutex("user").unwrap();
    let held = owner.write(&lock).await.unwrap();
    let also = mutex.lock().await.unwrap();
    proxy.close();
    let _ = soon(held.release()).await;
    let _ = soon(also.release()).await;
    proxy.heal();
    // By another owner, and by the same one.
    let _ = soon(lock.write()).await.unwrap().release().await.unwrap();
    let _ = soon(owner.write(&lock)).await.unwrap().release().await.unwrap();
    let _ = soon(mutex.lock()).await.unwrap().release().await.unwrap();
}
