//! `kill -9` of a master; its replica takes over, and it comes back as a replica.

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::process;
use crate::scenario::Scene;
use testkit::Result;

pub async fn strike(scene: &mut Scene) -> Result {
    let master = scene.some_master().await?;
    let struck = scene.names_at(master).await?;
    let slot = scene.slot(struck[0]);
    let before = scene.epoch(master).await?;
    let heir = scene.heir(master).await?;
    for change in [Change::TakesOver { from: master, to: heir }, Change::Restarts(master)] {
        scene.order(change);
    }
    let node = scene.cluster.node(master);
    let process = node.id();
    let at = now();
    node.kill()?;
    let gone = process.is_some_and(|id| process::state(id).is_none());
    ensure(gone, || format!("process {process:?} is there"))?;
    let promoted = scene.cluster.new_master(slot, master).await?;
    let mut until = now();
    let after = scene.epoch(promoted).await?;
    ensure(promoted != master && after > before, || {
        format!("node {promoted} has the slots at epoch {after}")
    })?;
    scene.cluster.node(master).restart().await?;
    scene.cluster.wait_for_agreement().await?;
    if scene.load.replicas > 0 {
        until = now(); // only now somebody can confirm again
    }
    let proof = format!(
        "process {process:?} of node {master} is gone, node {promoted} was promoted, epoch {before} to {after}"
    );
    scene.fault("kill", at, struck.clone(), proof);
    scene.excuse(struck, until);
    Ok(())
}
