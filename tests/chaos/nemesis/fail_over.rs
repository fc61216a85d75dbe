//! A replica is told to take over, in agreement with its master.

use super::ensure;
use crate::chaos::history::now;
use crate::chaos::scene::Scene;
use crate::support::{Error, Failover, Result};

pub async fn strike(scene: &mut Scene) -> Result {
    let master = scene.some_master().await?;
    let struck = scene.names_at(master).await?;
    let replicas = scene.cluster.replicas_of(master).await?;
    let replica = *replicas.first().ok_or_else(|| Error::new("it has no replica"))?;
    let before = scene.epoch(master).await?;
    let at = now();
    scene.cluster.fail_over(replica, Failover::Orderly).await?;
    let (owner, after) = (
        scene.cluster.owner(scene.slot(struck[0])).await?,
        scene.epoch(replica).await?,
    );
    ensure(owner == replica && after > before, || {
        format!("node {owner} has the slots at epoch {after}")
    })?;
    let proof = format!("node {replica} took over from {master}, epoch {before} to {after}");
    scene.fault("failover", at, struck, proof);
    Ok(())
}
