//! A slot moves to another master, key by key, while its keys are in use; then all masters agree.

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{Error, Result};

pub async fn strike(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let at = now();
    scene.order(Change::TakesSlot(to));
    let step = scene.cluster.begin_migration(slot, to).await?;
    let keys = scene.cluster.move_keys(step).await?;
    scene.cluster.finish_migration(step).await?;
    if keys == 0 {
        return Ok(()); // nothing was at stake
    }
    let master = scene.cluster.master_of(slot).await?;
    ensure(master == to, || format!("slot {slot} is at {master}, not at {to}"))?;
    let proof = format!("slot {slot} went from node {from} to node {to} with {keys} keys");
    scene.fault("move", at, vec![name], proof);
    Ok(())
}

/// A lock whose slot will move, from which node, and to which.
pub async fn some_move(scene: &mut Scene) -> Result<(usize, usize, usize)> {
    let name = scene.random.usize(..scene.names.len());
    let from = scene.cluster.master_of(scene.slot(name)).await?;
    let mut others = scene.cluster.masters().await?;
    others.retain(|&master| master != from);
    let to = scene.random.choice(others);
    Ok((name, from, to.ok_or_else(|| Error::new("there is one master only"))?))
}
