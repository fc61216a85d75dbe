//! A replica takes over by order, in agreement with its master.

use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{Error, FailoverMode, PollLimit, Result};

pub async fn strike(scene: &mut Scene) -> Result {
    let (master, replica) = longest_ago(scene).await?;
    let struck = scene.names_at(master).await?;
    let before = scene.epoch(master).await?;
    // Before the fault: until then, all is well.
    scene.cluster.forget_election(replica).await?;
    let at = now();
    scene.order(Change::TakesOver { from: master, to: replica });
    let wait_limit = PollLimit::new(format!("node {replica} to have the slots at a new epoch"));
    let after = loop {
        scene.cluster.fail_over(replica, FailoverMode::Orderly).await?;
        let master = scene.cluster.master_of(scene.slot(struck[0])).await?;
        let after = scene.epoch(replica).await?;
        if master == replica && after > before {
            break after;
        }
        // It may not know yet that it is a replica.
        wait_limit
            .pause(format!("node {master} has them at epoch {after}, {before} before"))
            .await?;
    };
    let proof = format!("node {replica} took over from {master}, epoch {before} to {after}");
    scene.fault("failover", at, struck.clone(), proof);
    scene.excuse(struck, now());
    Ok(())
}

/// The replica whose last promotion is longest ago, and its master.
async fn longest_ago(scene: &mut Scene) -> Result<(usize, usize)> {
    let mut masters = scene.cluster.masters().await?;
    scene.random.shuffle(&mut masters);
    let mut pairs = Vec::new();
    for master in masters {
        let replicas = scene.cluster.replicas_of(master).await?;
        let replica = *replicas.first().ok_or_else(|| Error::new("it has no replica"))?;
        pairs.push((master, replica));
    }
    let longest =
        pairs.into_iter().min_by_key(|(_, replica)| scene.cluster.last_election(*replica));
    longest.ok_or_else(|| Error::new("there is no master"))
}
