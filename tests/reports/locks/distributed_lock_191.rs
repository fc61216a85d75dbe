//! madelson/DistributedLock#191: a release times out at a server that is slow for a moment, and it
//! is not known whether or when the lock will be free.
//!
//! A release without an answer is told as such, and goes on in the background until it is done.

use rwlease::{Locks, Released};
use tokio::time::sleep;

use crate::support::{ConnectBuilder, StandaloneServer};
use crate::{LONG, SECOND, soon, until_free};

#[tokio::test(flavor = "multi_thread")]
async fn release_that_timed_out_is_carried_out_later() {
    let server = StandaloneServer::start().await.unwrap();
    let settings = Locks::builder().call_timeout(SECOND);
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    let (lock, mutex) = (locks.rwlock("job").unwrap(), locks.mutex("job").unwrap());
    let (write, held) = (lock.write().lease(LONG).await, mutex.lock().lease(LONG).await);
    server.freeze().unwrap();
    for outcome in [soon(write.unwrap().release()).await, soon(held.unwrap().release()).await] {
        assert!(outcome.is_err() || outcome.unwrap() == Released::Unknown);
    }
    sleep(SECOND).await;
    server.thaw().unwrap();
    until_free(&lock).await;
    drop(soon(mutex.lock()).await.unwrap());
}
