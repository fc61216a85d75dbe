//! redis/rueidis#37: after a failover the same name and port lead to another server. The
//! connection that is open still leads to the old one, which redirects to its own address, without
//! an end.
//!
//! A server that redirects to itself is left: a new connection to the address is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use rwlease::Client;

use crate::{SOON, soon};
use testkit::{Fake, ServerAct};

use super::lone_node;

#[tokio::test(flavor = "multi_thread")]
async fn write_at_a_server_that_redirects_to_itself_is_granted_on_a_new_connection() {
    let node = lone_node("").await;
    let port = Arc::new(AtomicU16::new(0));
    // Connections below this number lead to the old master.
    let (old, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let fake = Fake::before(&node, {
        let (port, old, is_over) = (port.clone(), old.clone(), is_over.clone());
        move |act| {
            let is_old = act.connection < old.load(Ordering::SeqCst);
            let is_call = act.is("EVALSHA") || act.is("EVAL");
            if act.is("WAIT") {
                return ServerAct::bytes(":1\r\n"); // of a replica that this test does without
            }
            match is_call && is_old && is_over.load(Ordering::SeqCst) {
                true => {
                    let key = act.words.get(3).map_or("", |key| key);
                    let slot = rwlease::Slot::of(key).get();
                    let port = port.load(Ordering::SeqCst);
                    ServerAct::bytes(format!("-MOVED {slot} 127.0.0.1:{port}\r\n"))
                }
                false => ServerAct::forward(act),
            }
        }
    });
    let fake = fake.await.unwrap();
    port.store(fake.port(), Ordering::SeqCst);
    let announce = format!("CONFIG SET cluster-announce-port {}", fake.port());
    node.run_words::<()>(&announce).await.unwrap();
    super::until_announced(&node, fake.port()).await;
    let locks = Client::builder().call_timeout(SOON).urls([fake.url()]).connect().await.unwrap();
    let lock = locks.rwlock("doc").unwrap();
    for replicas in [0, 1] {
        let write = || soon(lock.write().min_replicas(replicas));
        assert!(write().await.unwrap().release().await.unwrap().was_held());
        old.store(fake.connections(), Ordering::SeqCst);
        is_over.store(true, Ordering::SeqCst);
        assert!(write().await.unwrap().release().await.unwrap().was_held());
    }
}
