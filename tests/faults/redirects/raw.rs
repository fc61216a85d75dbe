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

/// The number of errors of this kind that the nodes have returned since the last reset.
pub async fn errors(cluster: &Cluster, code: &str) -> Result<u64> {
    let mut total = 0;
    for number in cluster.running() {
        let stats = cluster.node(number).info("errorstats").await?;
        let count = stats.get(&format!("errorstat_{code}"));
        total +=
            count.and_then(|count| count.strip_prefix("count=")?.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total)
}

pub async fn reset_errors(cluster: &Cluster) -> Result {
    for number in cluster.running() {
        cluster.node(number).reset_stats().await?;
    }
    Ok(())
}
