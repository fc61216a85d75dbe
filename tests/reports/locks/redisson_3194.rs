//! redisson/redisson#3194: a lock that was lost while the network was away is taken again, and is
//! then renewed no more: the name still counts as one that is being renewed.
//!
//! A lock that is taken again after a loss is renewed like any other.

use rwlease::Client;

use crate::{SECOND, soon};
use testkit::{ConnectBuilder, Proxy, StandaloneServer, wait_renewed};

#[tokio::test(flavor = "multi_thread")]
async fn write_taken_again_after_a_loss_is_renewed() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let locks = Client::builder().lease(2 * SECOND).connect_to(&[proxy.url()]).await.unwrap();
    let lock = locks.rwlock("job").unwrap();
    for _ in 0..2 {
        let guard = soon(lock.write()).await.unwrap();
        wait_renewed(&guard, 4).await.unwrap();
        proxy.close();
        soon(guard.ended()).await;
        proxy.heal();
    }
    let guard = soon(lock.write()).await.unwrap();
    wait_renewed(&guard, 4).await.unwrap();
}
