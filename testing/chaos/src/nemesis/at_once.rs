//! A slot moves to another master in one piece, where the server supports that.

use super::ensure;
use super::moves::some_move;
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::Result;

pub async fn strike(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    let at = now();
    if scene.cluster.node(from).run_words::<u64>(&count).await? == 0 {
        return Ok(()); // nothing is at stake
    }
    scene.order(Change::TakesSlot(to));
    scene.cluster.migrate_slots_atomically(slot, slot, to).await?;
    let master = scene.cluster.master_of(slot).await?;
    ensure(master == to, || format!("slot {slot} is at {master}, not at {to}"))?;
    let keys: u64 = scene.cluster.node(to).run_words(&count).await?;
    scene.fault(
        "atomic move",
        at,
        vec![name],
        format!("slot {slot} went from node {from} to node {to} with {keys} keys"),
    );
    Ok(())
}
