//! redisson/redisson#2444: a semaphore whose key expires leaves a second key behind, which never
//! does.
//!
//! No lock of any kind leaves a key without an end, neither held nor abandoned nor released.

use crate::{SECOND, one};
use testkit::{spawn_read, wait_for_waiters};

#[tokio::test(flavor = "multi_thread")]
async fn every_key_has_an_end() {
    let (server, locks) = one().await;
    let every_key = async || {
        let keys: Vec<String> = server.run_words("KEYS *").await.unwrap();
        for key in &keys {
            let left: i64 = server.run_words(&format!("PTTL {key}")).await.unwrap();
            assert!(left != -1, "{key} never ends");
        }
        keys.len()
    };
    let semaphore = locks.semaphore("pool", 3).unwrap();
    let lock = locks.rwlock("doc").unwrap();
    let permits = semaphore.acquire(2).lease(SECOND).await.unwrap();
    let mutex = locks.set_nx_mutex("mutex").unwrap().lock().await.unwrap();
    let write = lock.write().await.unwrap();
    let waiting = spawn_read(&lock);
    wait_for_waiters(&lock, 1).await.unwrap();
    // The record of the client comes after a while.
    assert!(every_key().await >= 3);
    waiting.abort();
    // Nobody renews or releases these any more.
    std::mem::forget(permits);
    drop((mutex, write));
    locks.shutdown(5 * SECOND).await;
    every_key().await;
}
