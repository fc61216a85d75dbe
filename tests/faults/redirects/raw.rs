//! A lock's hash, read from the servers without the library.

use std::collections::BTreeMap;

use oracle::LockHash;

use super::key;
use testkit::{Cluster, PollLimit, Result, lock_hash_asking};

/// The lock's hash, at the master of its slot.
pub async fn state(cluster: &Cluster, name: &str) -> Result<LockHash> {
    let slot = cluster.slot_of(key(name)).await?;
    lock_hash_asking(cluster.node(cluster.master_of(slot).await?), &key(name)).await
}

/// The ids and modes of the waiters, by their tickets.
pub fn queue(hash: &LockHash) -> BTreeMap<u64, (String, char)> {
    let waiters = hash.waiters.values();
    waiters.map(|waiter| (waiter.ticket, (waiter.id.clone(), waiter.mode))).collect()
}

/// Waits until the servers have no holder of this lock and no waiter.
pub async fn vacant(cluster: &Cluster, name: &str) -> Result {
    let wait_limit = PollLimit::limited(format!("{name} to be vacant"), super::PATIENCE / 2);
    loop {
        let hash = state(cluster, name).await?;
        if hash.records().next().is_none() && hash.waiters.is_empty() {
            return Ok(());
        }
        wait_limit.pause(format!("{:?}", hash.fields)).await?;
    }
}
