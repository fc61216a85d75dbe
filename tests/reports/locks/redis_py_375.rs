//! redis/redis-py#375: a long script of somebody else keeps the server busy. Locks fail with
//! `BUSY`, and go on failing long after the script has ended.
//!
//! Requests outlast a busy server, and so do leases that are longer than that.

use tokio::time::sleep;

use crate::{LONG, SECOND, one, soon};
use testkit::spawn_write;

#[tokio::test(flavor = "multi_thread")]
async fn locks_outlast_a_busy_script() {
    let (server, locks) = one().await;
    let old = "CONFIG SET lua-time-limit 100";
    server.run_words::<()>(old).await.unwrap();
    let held = locks.rwlock("held").unwrap().write().lease(9 * SECOND).await.unwrap();
    let released = locks.rwlock("released").unwrap().write().lease(LONG).await.unwrap();
    let mut busy = server.connect().await.unwrap();
    let script = tokio::spawn(async move {
        let mut endless = redis::cmd("EVAL");
        endless.arg("while true do end").arg(0);
        let _: Result<(), _> = endless.query_async(&mut busy).await;
    });
    sleep(SECOND).await;
    let lock = locks.rwlock("other").unwrap();
    let waiting = spawn_write(&lock);
    drop(released);
    sleep(2 * SECOND).await;
    server.run_words::<()>("SCRIPT KILL").await.unwrap();
    drop(soon(waiting).await.unwrap().unwrap());
    drop(soon(locks.rwlock("released").unwrap().write()).await.unwrap());
    sleep(4 * SECOND).await;
    assert!(held.is_held());
    script.abort();
}
