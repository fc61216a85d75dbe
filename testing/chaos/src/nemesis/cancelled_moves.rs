//! A move of a slot begins and is cancelled: the slot stays where it was.

use std::time::Duration;

use tokio::time::sleep;

use super::moves::some_move;
use super::{bulk, ensure};
use crate::history::now;
use crate::scenario::Scene;
use testkit::{Cluster, Error, PollLimit, Result, SlotMigration};

/// How long a redirect to the target may be on its way to a client and from there to the target.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// How long a move in one piece goes on at most before it is cancelled.
const COPY: Duration = Duration::from_millis(200);

/// The keys that have moved are moved back.
///
/// While the source answers ASK, a client may be on its way to the target when the lock goes back,
/// and create it there anew. So the source first stops sending clients to the target: it names a
/// third master, which imports nothing and sends them back.
pub async fn by_key(scene: &mut Scene, is_guarded: bool) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let step = SlotMigration { slot: scene.slot(name), from, to };
    let (cluster, at) = (&scene.cluster, now());
    cluster.set_importing(step).await?;
    cluster.set_migrating(step).await?;
    let keys = cluster.move_keys(step).await?;
    sleep(Duration::from_millis(50)).await;
    if is_guarded {
        let masters = cluster.masters().await?;
        let third = masters.into_iter().find(|&master| master != from && master != to);
        let third = third.ok_or_else(|| Error::new("there are two masters only"))?;
        cluster.set_migrating(SlotMigration { to: third, ..step }).await?;
        sleep(ON_THE_WAY).await;
    }
    let back = move_back(cluster, step).await?;
    cluster.set_stable(to, step).await?;
    cluster.set_stable(from, step).await?;
    cluster.wait_for_agreement().await?;
    let master = cluster.master_of(step.slot).await?;
    let count = format!("CLUSTER COUNTKEYSINSLOT {}", step.slot);
    let left: u64 = cluster.node(to).run_words(&count).await?;
    ensure(master == from, || format!("slot {} is at {master}, not at {from}", step.slot))?;
    if is_guarded {
        ensure(left == 0, || format!("{left} keys are left at {to}"))?;
    }
    if keys == 0 {
        return Ok(()); // nothing was at stake
    }
    let proof = format!(
        "slot {} was on its way from node {from} to node {to}: {keys} keys moved, {back} moved back, \
         {left} left",
        step.slot
    );
    scene.fault("cancelled move", at, vec![name], proof);
    scene.excuse(vec![name], now());
    Ok(())
}

/// A key at both is the target's: the source has answered ASK since.
async fn move_back(cluster: &Cluster, step: SlotMigration) -> Result<usize> {
    cluster.replace_keys(SlotMigration { from: step.to, to: step.from, ..step }).await
}

/// A move in one piece is cancelled while its keys are copied.
pub async fn atomic(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let lock = format!("rwlease:{}", scene.names[name]);
    bulk::fill(scene.cluster.node(from), &lock).await?;
    let pause = COPY.mul_f64(scene.random.f64());
    let at = now();
    scene.order(crate::ledger::Change::TakesSlot(to));
    let step = scene.cluster.begin_atomic_move(slot, slot, to).await?;
    sleep(pause).await;
    let before = scene.cluster.atomic_moves(step).await?;
    // Without a move, Valkey refuses.
    let _ = scene.cluster.cancel_atomic_moves(step).await;
    let wait_limit = PollLimit::new("the move to end");
    while !scene.cluster.has_no_atomic_move().await? {
        wait_limit.pause(format!("{:?}", scene.cluster.atomic_moves(step).await?)).await?;
    }
    scene.cluster.wait_for_agreement().await?;
    let master = scene.cluster.master_of(slot).await?;
    bulk::remove(scene.cluster.node(master), &lock).await?;
    if master == to {
        return Ok(()); // the move was faster
    }
    let after = scene.cluster.atomic_moves(step).await?;
    ensure(master == from, || format!("slot {slot} is at {master}, not at {from}"))?;
    let proof =
        format!("slot {slot} stayed at node {from}: {before:?} after {pause:?}, then {after:?}");
    scene.fault("cancelled atomic move", at, vec![name], proof);
    scene.excuse(vec![name], now());
    Ok(())
}
