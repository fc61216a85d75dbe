//! redisson/redisson#4462: a process dies with permits of a semaphore, and these are gone for
//! good.
//!
//! The permits of a client that vanished are free after its lease, and no more than these.

use rwlease::Locks;

use crate::support::{ConnectBuilder, Proxy};
use crate::{SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn permits_of_a_vanished_client_come_back() {
    let (server, locks) = one().await;
    let proxy = Proxy::start(&server).await.unwrap();
    let doomed = Locks::builder().lease(2 * SECOND).connect_to(&[proxy.url()]).await.unwrap();
    let lost = doomed.semaphore("pool", 3).unwrap().acquire(3).await.unwrap();
    proxy.close();
    let pool = locks.semaphore("pool", 3).unwrap();
    let all = soon(pool.acquire(3)).await.unwrap();
    assert!(!lost.is_held(), "both have them");
    assert!(pool.try_acquire(1).await.unwrap().is_none());
    let _ = all.release().await.unwrap();
    assert_eq!(pool.status().await.unwrap().in_use, 0);
}
