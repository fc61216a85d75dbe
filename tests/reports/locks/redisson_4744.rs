//! redisson/redisson#4744: a writer releases between a reader's failed try and its subscription.
//! The message is lost, and the reader sleeps until the time to live that it was told has passed.
//!
//! A release at any moment of the beginning of a wait is noticed, whatever is left of the lease.

use std::time::Duration;

use tokio::time::sleep;

use crate::{LONG, MS, one, soon};
use testkit::{Proxy, ProxyFlow};

#[tokio::test(flavor = "multi_thread")]
async fn release_while_a_waiter_subscribes_is_noticed() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("doc").unwrap();
    for pause in (0..900).step_by(100).map(Duration::from_millis) {
        // Everything that the waiter says and hears takes a while, its subscription included.
        let proxy = Proxy::start(&server).await.unwrap();
        let far = testkit::connect(&[proxy.url()]).await.unwrap();
        proxy.replies(ProxyFlow::Slow(100 * MS));
        let held = lock.write().lease(LONG).await.unwrap();
        let waiting = tokio::spawn({
            let lock = far.rwlock("doc").unwrap();
            async move { lock.read().await?.release().await }
        });
        sleep(pause).await;
        let _ = held.release().await.unwrap();
        let _ = soon(waiting).await.unwrap().unwrap();
    }
}
