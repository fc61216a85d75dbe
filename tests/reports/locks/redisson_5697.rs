//! redisson/redisson#5697: while many others try to get the lock, its holder's renewals come too
//! late, and a second one gets in.
//!
//! However many ask for a lock, its holder keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{MS, SECOND, client, one};

#[tokio::test(flavor = "multi_thread")]
async fn holder_is_renewed_while_many_ask() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("channel").unwrap();
    let held = lock.write().lease(3 * SECOND).await.unwrap();
    let (is_over, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for number in 0..60 {
        let lock = match number % 2 {
            0 => lock.clone(),
            _ => client(&server).await.rwlock("channel").unwrap(),
        };
        let is_over = is_over.clone();
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let tried = lock.try_write().await.unwrap();
                assert!(tried.is_none(), "two hold it");
                let waited = lock.write().timeout(50 * MS).await;
                assert!(waited.is_err(), "two hold it");
            }
        });
    }
    sleep(7 * SECOND).await;
    assert!(held.is_held());
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert_eq!(held.release().await.unwrap(), rwlease::ReleaseOutcome::Released);
}
