//! redisson/redisson#1542: readers that waited for a writer get the lock one after the other, as
//! if each of them wrote.
//!
//! Readers that wait for one writer read at the same time.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::wait_for_waiters;
use crate::{client, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_waited_for_a_writer_read_together() {
    const READERS: usize = 20;
    let (server, locks) = one().await;
    let lock = locks.rwlock("doc").unwrap();
    let held = lock.write().await.unwrap();
    let (all, mut readers) = (Arc::new(Barrier::new(READERS)), JoinSet::new());
    let other = client(&server).await;
    for number in 0..READERS {
        let of = if number % 2 == 0 { &locks } else { &other };
        let (lock, all) = (of.rwlock("doc").unwrap(), all.clone());
        readers.spawn(async move {
            let guard = lock.read().await.unwrap();
            // Each waits here for all others, and holds the lock.
            all.wait().await;
            guard.release().await.unwrap()
        });
    }
    wait_for_waiters(&lock, READERS as u64).await.unwrap();
    let _ = held.release().await.unwrap();
    soon(readers.join_all()).await;
}
