//! A replica takes over while a slot moves in one piece.

use std::time::Duration;

use tokio::time::sleep;

use super::moves::some_move;
use super::takeover::{Cause, Side, Takeover};
use super::{bulk, ensure};
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{AtomicMove, PollLimit, Result};

/// When the replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Right after the order of the move.
    Ordered,
    /// Some time later, while the keys are copied.
    Copying,
    /// As soon as the target says that it has the slot.
    Arrived,
}

const STAGES: [Stage; 3] = [Stage::Ordered, Stage::Copying, Stage::Arrived];

/// How long after the order the failover is ordered at most: a move of these keys takes as long.
const COPY: Duration = Duration::from_millis(300);

/// How long a move may go on after a failover, before the operator cancels it.
const GO_ON: Duration = Duration::from_secs(5);

pub async fn strike(scene: &mut Scene, side: Option<Side>, cause: Cause) -> Result {
    let side = side.unwrap_or_else(|| Side::random(scene));
    let stage = STAGES[scene.faults.len() % STAGES.len()];
    let (name, from, to) = some_move(scene).await?;
    let slot = scene.slot(name);
    let takeover = Takeover::prepare(scene, side.of(from, to), cause).await?;
    let lock = format!("rwlease:{}", scene.names[name]);
    bulk::fill(scene.cluster.node(from), &lock).await?;
    let mut struck = scene.names_at(takeover.old).await?;
    if !struck.contains(&name) {
        struck.push(name);
    }

    let at = now();
    scene.order(Change::TakesSlot(to));
    let step = scene.cluster.begin_atomic_move(slot, slot, to).await?;
    reach(scene, step, stage).await?;
    let before = scene.cluster.atomic_moves(step).await?;
    takeover.announce(scene);
    takeover.strike(scene).await?;
    let struck_at = now();
    let new = match side {
        Side::Source => AtomicMove { from: takeover.new, ..step },
        Side::Target => AtomicMove { to: takeover.new, ..step },
    };
    scene.order(Change::TakesSlot(new.to));
    let is_cancelled = end(scene, new).await?;
    takeover.clean_up(scene).await?;
    scene.cluster.wait_for_agreement().await?;
    let master = scene.cluster.master_of(slot).await?;
    ensure(master == new.from || master == new.to, || format!("slot {slot} is at {master}"))?;
    let after = scene.cluster.atomic_moves(new).await?;
    bulk::remove(scene.cluster.node(master), &lock).await?;
    let proof = format!(
        "slot {slot} on the way from node {from} to node {to}, {stage:?}: {before:?}; {}, {} ms after \
         the order; then {after:?}{}, and the slot is at node {master}",
        takeover.proof(scene).await?,
        (struck_at - at) / 1_000_000,
        if is_cancelled { ", cancelled" } else { "" },
    );
    scene.fault(format!("atomic move, {side:?} {cause:?} {stage:?}"), at, struck.clone(), proof);
    scene.excuse(struck, now());
    Ok(())
}

async fn reach(scene: &mut Scene, step: AtomicMove, stage: Stage) -> Result {
    match stage {
        Stage::Ordered => {}
        Stage::Copying => sleep(COPY.mul_f64(scene.random.f64())).await,
        Stage::Arrived => {
            let wait_limit = PollLimit::new("the slot to arrive");
            let id = scene.cluster.id(step.to);
            loop {
                let view = testkit::ClusterNodes::of(scene.cluster.node(step.to)).await?;
                if view.master_of(step.first) == Some(id) {
                    break;
                }
                wait_limit.pause(format!("{:?}", scene.cluster.atomic_moves(step).await?)).await?;
            }
        }
    }
    Ok(())
}

/// Waits until no node has an unfinished move. Cancels those that do not end.
async fn end(scene: &Scene, step: AtomicMove) -> Result<bool> {
    let since = now();
    let wait_limit = PollLimit::new("the move to end");
    let mut is_cancelled = false;
    while !scene.cluster.has_no_atomic_move().await? {
        if !is_cancelled && now() - since > GO_ON.as_nanos() as u64 {
            for number in scene.cluster.masters().await? {
                let there = AtomicMove { from: number, to: number, ..step };
                // A node without a move may refuse.
                let _ = scene.cluster.cancel_atomic_moves(there).await;
            }
            is_cancelled = true;
        }
        wait_limit.pause(format!("{:?}", scene.cluster.atomic_moves(step).await?)).await?;
    }
    Ok(is_cancelled)
}
