//! redisson/redisson#3166: many waiters of a fair lock die together. Whoever comes next waits for
//! each of them in turn.
//!
//! However many waiters have died with their client, the next ones wait for seconds.

use crate::{LONG, one, soon};
use testkit::{Proxy, connect, spawn_write, wait_for_waiters};

#[tokio::test(flavor = "multi_thread")]
async fn waiter_behind_many_dead_ones_is_granted_soon() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("doc").unwrap();
    let held = lock.write().lease(LONG).await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    let doomed = connect(&[proxy.url()]).await.unwrap();
    let doomed = doomed.rwlock("doc").unwrap();
    let dead: Vec<_> = (0..50).map(|_| spawn_write(&doomed)).collect();
    wait_for_waiters(&lock, 50).await.unwrap();
    // Nothing arrives any more, and the server is not told that the client is gone.
    proxy.drop_all();
    let next = spawn_write(&lock);
    wait_for_waiters(&lock, 51).await.unwrap();
    let _ = held.release().await.unwrap();
    drop(soon(next).await.unwrap().unwrap());
    for waiter in dead {
        waiter.abort();
    }
}
