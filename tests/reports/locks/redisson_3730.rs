//! redisson/redisson#3730: the holder of a fair lock ends without a release. Its lease ends,
//! nobody tells the waiter, and that one waits until its own time is up.
//!
//! The end of a lease that nobody releases is noticed by the waiters.

use rwlease::Locks;

use crate::support::{ConnectBuilder, Proxy, wait_for_waiters};
use crate::{SECOND, one, soon, wait_to_write};

#[tokio::test(flavor = "multi_thread")]
async fn waiter_of_a_vanished_holder_is_granted_after_the_lease() {
    let (server, locks) = one().await;
    for _ in 0..3 {
        let proxy = Proxy::start(&server).await.unwrap();
        let doomed = Locks::builder().lease(2 * SECOND).connect_to(&[proxy.url()]).await.unwrap();
        let held = doomed.rwlock("doc").unwrap().write().await.unwrap();
        let lock = locks.rwlock("doc").unwrap();
        let waiting = wait_to_write(&lock);
        wait_for_waiters(&lock, 1).await.unwrap();
        proxy.close();
        soon(waiting).await.unwrap().unwrap();
        drop(held);
    }
}
