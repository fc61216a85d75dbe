//! redisson/redisson#2099: in a fair lock each short wait for a long lease moves the deadline of
//! the queue ahead, up to hours. Then one waiter dies, and the next ones wait for its deadline.
//!
//! Waits that ended and waiters that died cost the next ones seconds, whatever the leases.

use std::future::IntoFuture;

use crate::{LONG, MS, one, soon};
use testkit::{Proxy, connect, spawn_write, wait_for_waiters};

#[tokio::test(flavor = "multi_thread")]
async fn waiter_behind_short_waits_and_a_dead_one_is_granted_soon() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("doc").unwrap();
    let held = lock.write().lease(LONG).await.unwrap();
    for _ in 0..10 {
        let waits = (0..5).map(|_| lock.write().timeout(30 * MS).lease(60 * LONG).into_future());
        let waits = futures::future::join_all(waits).await;
        assert!(waits.iter().all(|wait| wait.is_err()), "it is held");
    }
    let proxy = Proxy::start(&server).await.unwrap();
    let doomed = connect(&[proxy.url()]).await.unwrap().rwlock("doc").unwrap();
    let dead = tokio::spawn(async move { doomed.write().lease(60 * LONG).await.map(drop) });
    wait_for_waiters(&lock, 1).await.unwrap();
    proxy.drop_all();
    let next = spawn_write(&lock);
    wait_for_waiters(&lock, 2).await.unwrap();
    let _ = held.release().await.unwrap();
    drop(soon(next).await.unwrap().unwrap());
    dead.abort();
}
