//! The memory of all masters is full for a while: new locks are refused, and held ones can be
//! released.

use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use crate::history::now;
use crate::scenario::Scene;
use testkit::{Result, Server};

const WHILE: Duration = Duration::from_millis(500);

pub async fn strike(scene: &mut Scene) -> Result {
    let masters = scene.cluster.masters().await?;
    let at = now();
    let mut refused = Vec::new();
    for &master in &masters {
        let node = scene.cluster.node(master);
        refused.push(refusals(node).await?);
        node.run_words::<()>("CONFIG SET maxmemory 1mb").await?;
    }
    sleep(WHILE).await;
    let mut more = 0;
    for (&master, before) in masters.iter().zip(refused) {
        let node = scene.cluster.node(master);
        node.run_words::<()>("CONFIG SET maxmemory 0").await?;
        more += refusals(node).await? - before;
    }
    ensure(more > 0, || "nothing was refused".into())?;
    scene.fault("full memory", at, scene.all(), format!("{more} calls were refused for it"));
    scene.excuse(scene.all(), now());
    Ok(())
}

/// The number of calls that the server has refused because its memory was full.
async fn refusals(node: &Server) -> Result<u64> {
    let errors = node.info("errorstats").await?;
    let oom = errors.get("errorstat_OOM").and_then(|count| count.strip_prefix("count="));
    Ok(oom.and_then(|count| count.parse().ok()).unwrap_or(0))
}
