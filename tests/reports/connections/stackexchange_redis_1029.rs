//! StackExchange/StackExchange.Redis#1029: an established connection brings nothing any more, new
//! ones would work, and every command runs into its timeout for a quarter of an hour.
//!
//! A connection that went silent is replaced, and what waits goes on over the new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rwlease::Client;

use crate::{SECOND, client, soon};
use testkit::{Fake, ServerAct, StandaloneServer, spawn_write, wait_for_waiters, wait_renewed};

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced() {
    let server = StandaloneServer::start().await.unwrap();
    let silent = Arc::new(AtomicUsize::new(0));
    let fake = Fake::before(&server, {
        let silent = silent.clone();
        move |act| match act.connection < silent.load(Ordering::SeqCst) {
            true => Vec::new(),
            false => ServerAct::forward(act),
        }
    });
    let fake = fake.await.unwrap();
    let settings = Client::builder().lease(5 * SECOND);
    let locks = settings.urls([fake.url()]).connect().await.unwrap();
    let near = client(&server).await;
    let held = locks.rwlock("held").unwrap().write().await.unwrap();
    let others = near.rwlock("wanted").unwrap().write().await.unwrap();
    let lock = locks.rwlock("wanted").unwrap();
    let waiting = spawn_write(&lock);
    wait_for_waiters(&lock, 1).await.unwrap();
    silent.store(fake.connections(), Ordering::SeqCst);
    wait_renewed(&held, 4).await.unwrap();
    let _ = others.release().await.unwrap();
    drop(soon(waiting).await.unwrap().unwrap());
}
