//! redis/node-redis#1510: a proxy accepts connections and closes them at the first command. The
//! client counts each as a success, so its pauses between attempts never grow.
//!
//! Connections that are accepted and closed are made again with pauses that grow.

use rwlease::Client;

use crate::{SECOND, soon};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{Fake, ServerAct, StandaloneServer};

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_closed_at_once_are_made_again_with_pauses() {
    let server = StandaloneServer::start().await.unwrap();
    let closes = Arc::new(AtomicBool::new(false));
    let fake = Fake::before(&server, {
        let closes = closes.clone();
        move |act| match closes.load(Ordering::SeqCst) && !act.is_opened() {
            true => vec![ServerAct::Close],
            false => ServerAct::forward(act),
        }
    });
    let fake = fake.await.unwrap();
    let locks = Client::connect([fake.url()]).await.unwrap();
    let lock = locks.rwlock("doc").unwrap();
    let _ = lock.write().await.unwrap().release().await.unwrap();
    closes.store(true, Ordering::SeqCst);
    let before = fake.connections();
    assert!(soon(lock.write().timeout(5 * SECOND)).await.is_err());
    let dials = fake.connections() - before;
    assert!(dials < 100, "{dials} connections in five seconds");
    closes.store(false, Ordering::SeqCst);
    let _ = soon(lock.write()).await.unwrap().release().await.unwrap();
}
