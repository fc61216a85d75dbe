//! A write on one connection, and `WAIT 1` on another one. No replica can have the write: the only
//! one is stopped.

use redis::cmd;

use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 5;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 1)).await?;
    let mut writing = cluster.node(0).connect().await?;
    cluster.node(1).freeze()?;

    let mut seen = Seen::default();
    for count in 0..TRIES {
        let mut waiting = cluster.node(0).connect().await?;
        cmd("SET").arg("key").arg(count).exec_async(&mut writing).await?;
        let replicas: u64 = cmd("WAIT").arg(1).arg(100).query_async(&mut waiting).await?;
        seen.note(replicas > 0);
    }
    Ok(seen)
}
