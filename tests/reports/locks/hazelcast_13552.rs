//! hazelcast/hazelcast#13552: whoever waits for a lock for longer than one call may take gets an
//! error, although nothing is wrong and the wait has no limit.
//!
//! The limit of a call does not end a wait for another holder.

use rwlease::Client;
use tokio::time::sleep;

use crate::{LONG, SECOND, one, soon};
use testkit::ConnectBuilder;

#[tokio::test(flavor = "multi_thread")]
async fn wait_is_longer_than_a_call_may_take() {
    let (server, holder) = one().await;
    let locks = Client::builder().call_timeout(SECOND).connect_to(&[server.url()]).await.unwrap();
    let held = (
        holder.rwlock("a").unwrap().write().lease(LONG).await.unwrap(),
        holder.set_nx_mutex("a").unwrap().lock().lease(LONG).await.unwrap(),
        holder.semaphore("b", 1).unwrap().acquire(1).lease(LONG).await.unwrap(),
    );
    let waits = [
        tokio::spawn({
            let lock = locks.rwlock("a").unwrap();
            async move { lock.write().await.map(drop) }
        }),
        tokio::spawn({
            let mutex = locks.set_nx_mutex("a").unwrap();
            async move { mutex.lock().await.map(drop) }
        }),
        tokio::spawn({
            let pool = locks.semaphore("b", 1).unwrap();
            async move { pool.acquire(1).await.map(drop) }
        }),
    ];
    sleep(3 * SECOND).await;
    drop(held);
    for wait in waits {
        soon(wait).await.unwrap().unwrap();
    }
}
