//! hazelcast/hazelcast#13552: whoever waits for a lock for longer than one call may take gets an
//! error, although nothing is wrong and the wait has no limit.
//!
//! The limit of a call does not end a wait for another holder.

use rwlease::Locks;
use tokio::time::sleep;

use crate::support::ConnectBuilder;
use crate::{LONG, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn wait_is_longer_than_a_call_may_take() {
    let (server, holder) = one().await;
    let locks = Locks::builder().call_timeout(SECOND).connect_to(&[server.url()]).await.unwrap();
    let held = (
        holder.rwlock("a").unwrap().write().lease(LONG).await.unwrap(),
        holder.mutex("a").unwrap().lock().lease(LONG).await.unwrap(),
        holder.semaphore("b", 1).unwrap().acquire(1).lease(LONG).await.unwrap(),
    );
    let waits = [
        tokio::spawn({
            let lock = locks.rwlock("a").unwrap();
            async move { lock.write().await.map(drop) }
        }),
        tokio::spawn({
            let mutex = locks.mutex("a").unwrap();
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
