//! spring-projects/spring-integration#2660: a release fails because the server cannot be reached.
//! In this process the lock can then never be taken again, even when it has expired at the server.
//!
//! A failed release leaves nothing in the process that would refuse the next request.

use rwlease::Locks;

use crate::support::{ConnectBuilder, Proxy, StandaloneServer};
use crate::{SECOND, soon};

#[tokio::test(flavor = "multi_thread")]
async fn lock_whose_release_failed_is_taken_again() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let settings = Locks::builder().lease(2 * SECOND).call_timeout(SECOND);
    let locks = settings.connect_to(&[proxy.url()]).await.unwrap();
    let (owner, lock) = (locks.reentrant(), locks.rwlock("user").unwrap());
    let mutex = locks.mutex("user").unwrap();
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
