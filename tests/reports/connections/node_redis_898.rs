//! redis/node-redis#898: a command that was pending when the connection broke stays in the list of
//! those that wait, and gets the reply to the first command of the new connection.
//!
//! What a new connection says at its opening answers no call of the old one.

use crate::support::{CutPoint, Proxy, connect};
use crate::{LONG, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn call_of_a_broken_connection_gets_no_reply_of_the_next() {
    let (server, near) = one().await;
    let _held = near.rwlock("held").unwrap().write().lease(LONG).await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let locks = connect(&[proxy.url()]).await.unwrap();
    for round in 0..20 {
        let cut = if round % 2 == 0 { CutPoint::BeforeIt } else { CutPoint::AfterIt };
        let is_cut = proxy.trap("rwlease:held", cut);
        let tried = soon(locks.rwlock("held").unwrap().try_write()).await.unwrap();
        assert!(tried.is_none(), "another client holds it");
        is_cut.await.unwrap();
        let free = soon(locks.rwlock("free").unwrap().write()).await.unwrap();
        assert_eq!(free.release().await.unwrap(), rwlease::Released::Released);
    }
}
