//! SIGSTOP of a master until its replica was promoted; then SIGCONT: it continues as a master until
//! it learns of the other.

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
    scene.order(Change::TakesOver { from: master, to: heir });
    let node = scene.cluster.node(master);
    let at = now();
    node.freeze()?;
    let state = node.id().and_then(process::state);
    let promoted = scene.cluster.new_master(slot, master).await?;
    let after = scene.epoch(promoted).await?;
    ensure(promoted != master && after > before, || {
        format!("node {promoted} has the slots at epoch {after}")
    })?;
    let still = node.id().and_then(process::state);
    ensure(still == Some('T'), || format!("the process is {state:?}, then {still:?}"))?;
    node.thaw()?;
    scene.cluster.wait_for_agreement().await?;
    let proof = format!(
        "node {master} stood stopped until node {promoted} was promoted, epoch {before} to {after}"
    );
    scene.fault("pause", at, struck.clone(), proof);
    scene.excuse(struck, now());
    Ok(())
}
