//! Waiters in a lock's queue.

use rwlease::RwLock;

use super::{PollLimit, Result};

/// Waits until that many wait for the lock.
pub async fn wait_for_waiters(lock: &RwLock, count: u64) -> Result {
    let wait_limit = PollLimit::new(format!("{count} waiters of `{}`", lock.name()));
    loop {
        let status = lock.status().await?;
        if status.waiters == count {
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
