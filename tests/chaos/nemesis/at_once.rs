//! A slot moves to another master in one piece, where the server can.

use super::ensure;
use super::moves::some_move;
use crate::chaos::history::now;
use crate::chaos::scene::Scene;
use crate::support::Result;

pub async fn strike(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let at = now();
    scene.cluster.move_slots_at_once(slot, slot, to).await?;
    let owner = scene.cluster.owner(slot).await?;
    ensure(owner == to, || format!("slot {slot} is at {owner}, not at {to}"))?;
    scene.fault(
        "atomic move",
        at,
        vec![name],
        format!("slot {slot} went from node {from} to node {to}"),
    );
    Ok(())
}
