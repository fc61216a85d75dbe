//! blnkfinance/blnk#354: the lock is released within the request that was cancelled, so the
//! release is cancelled as well, and the lock stays until it expires.
//!
//! A release that is dropped at any moment is carried out all the same.

use std::time::Duration;

use tokio::time::timeout;

use crate::{LONG, one, until_free};

#[tokio::test(flavor = "multi_thread")]
async fn release_dropped_at_any_moment_is_carried_out() {
    let (_server, locks) = one().await;
    let lock = locks.rwlock("balance").unwrap();
    for step in 0..30 {
        let guard = lock.write().lease(LONG).await.unwrap();
        let _ = timeout(Duration::from_micros(20 * step), guard.release()).await;
        until_free(&lock).await;
    }
}
