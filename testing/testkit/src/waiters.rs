//! Waiters in a lock's queue.

use rwlease::{ReadGuard, RwLock, WriteGuard};
use tokio::task::JoinHandle;

use super::{PollLimit, Result};

/// Starts to wait for a read, in a task.
pub fn spawn_read(lock: &RwLock) -> JoinHandle<rwlease::Result<ReadGuard>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.read().await })
}

/// Starts to wait for a write, in a task.
pub fn spawn_write(lock: &RwLock) -> JoinHandle<rwlease::Result<WriteGuard>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.write().await })
}

/// Waits until that many wait for the lock.
pub async fn wait_for_waiters(lock: &RwLock, count: u64) -> Result {
    let wait_limit = PollLimit::new(format!("{count} waiters of `{}`", lock.name()));
    loop {
        let status = lock.status().await?;
        if status.waiter_count == count {
            return Ok(());
        }
        wait_limit.pause(format!("{status:?}")).await?;
    }
}

/// Whether a value of a lock's hash is the entry of a waiter that the server can push to: its tenth
/// word is the server where it is subscribed.
pub fn is_subscribed_waiter(entry: &str) -> bool {
    entry.split(' ').nth(9).is_some_and(|node| node != "-")
}
