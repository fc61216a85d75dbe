//! A move of a slot begins and is cancelled: the slot stays where it was.

use std::time::Duration;

use tokio::time::sleep;

use super::moves::some_move;
use super::{bulk, ensure};
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{PollLimit, Result, SlotMigration};

/// How long clients use the target before the move is cancelled.
const USED: Duration = Duration::from_millis(50);

/// How long a move in one piece goes on at most before it is cancelled.
const COPY: Duration = Duration::from_millis(200);

/// The keys that have moved are moved back. A source that answers ASK refuses them, so it first
/// forgets the move, and creates a lock that is asked for before its key is back.
pub async fn by_key(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let step = SlotMigration { slot: scene.slot(name), from, to };
    let (cluster, at) = (&scene.cluster, now());
    cluster.set_importing(step).await?;
    cluster.set_migrating(step).await?;
    let keys = cluster.move_keys(step).await?;
    sleep(USED).await;
    cluster.set_stable(from, step).await?;
    let (mut back, mut anew) = cluster.move_keys_back(step).await?;
    cluster.set_stable(to, step).await?;
    // A client that was sent to the target before may have created a lock there since.
    let count = format!("CLUSTER COUNTKEYSINSLOT {}", step.slot);
    let wait_limit = PollLimit::new("the target to have no key of the slot");
    while cluster.node(to).run_words::<u64>(&count).await? > 0 {
        cluster.set_importing(step).await?;
        let more = cluster.move_keys_back(step).await?;
        (back, anew) = (back + more.0, anew + more.1);
        cluster.set_stable(to, step).await?;
        wait_limit.pause("there are more").await?;
    }
    cluster.wait_for_agreement().await?;
    let master = cluster.master_of(step.slot).await?;
    ensure(master == from, || format!("slot {} is at {master}", step.slot))?;
    if keys == 0 && back + anew == 0 {
        return Ok(()); // nothing was at stake
    }
    let proof = format!(
        "{keys} keys of slot {} went from node {from} to node {to}: {back} came back, {anew} were \
         there again",
        step.slot
    );
    scene.fault("cancelled move", at, vec![name], proof);
    scene.excuse(vec![name], now());
    Ok(())
}

/// A move in one piece is cancelled while its keys are copied.
pub async fn atomic(scene: &mut Scene) -> Result {
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let lock = format!("rwlease:{}", scene.names[name]);
    bulk::fill(scene.cluster.node(from), &lock).await?;
    let pause = COPY.mul_f64(scene.random.f64());
    let at = now();
    scene.order(Change::TakesSlot(to));
    let step = scene.cluster.begin_atomic_move(slot, slot, to).await?;
    sleep(pause).await;
    let before = scene.cluster.atomic_moves(step).await?;
    let cancelled = scene.cluster.cancel_atomic_moves(step).await;
    let wait_limit = PollLimit::new("the move to end");
    while !scene.cluster.has_no_atomic_move().await? {
        wait_limit.pause(format!("{:?}", scene.cluster.atomic_moves(step).await?)).await?;
    }
    scene.cluster.wait_for_agreement().await?;
    let master = scene.cluster.master_of(slot).await?;
    bulk::remove(scene.cluster.node(master), &lock).await?;
    if master == to {
        return Ok(()); // the move was faster, and Valkey refuses to cancel none
    }
    cancelled?;
    let after = scene.cluster.atomic_moves(step).await?;
    ensure(master == from, || format!("slot {slot} is at {master}, not at {from}"))?;
    let proof =
        format!("slot {slot} stayed at node {from}: {before:?} after {pause:?}, then {after:?}");
    scene.fault("cancelled atomic move", at, vec![name], proof);
    scene.excuse(vec![name], now());
    Ok(())
}
