//! A replica takes over while a slot moves in one piece.

use std::time::Duration;

use tokio::time::sleep;

use super::moves::some_move;
use super::takeover::{Cause, Side, Takeover};
use super::{bulk, ensure};
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{AtomicMove, ClusterNodes, PollLimit, Result};

/// When the replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Right after the order of the move.
    Ordered,
    /// As soon as the source copies keys.
    Copying,
    /// Some time after the order: often while the slot is handed over.
    Late,
    /// As soon as the target says that it has the slot.
    Arrived,
}

const STAGES: [Stage; 4] = [Stage::Copying, Stage::Arrived, Stage::Ordered, Stage::Late];

/// The words of Redis and Valkey for `Copying`.
const COPIES: [&str; 2] = ["send-bulk-and-stream", "snapshotting"];

/// How late at most: a move of these keys takes as long.
const LATE: Duration = Duration::from_millis(600);

/// How long a move may go on after a failover, before the operator cancels it.
const GO_ON: Duration = Duration::from_secs(5);

pub async fn strike(scene: &mut Scene, side: Option<Side>, cause: Cause) -> Result {
    let side = side.unwrap_or_else(|| Side::random(scene));
    let mut stage = STAGES[scene.faults.len() % STAGES.len()];
    // Redis 8.6.2 stops with a failed assertion (`isPausedActions(PAUSE_ACTION_REPLICA)`) if its
    // failover begins while it hands over a slot: it deletes the slot's keys although it is paused.
    // The copying of these keys may be over by then. Valkey mended that:
    // <https://github.com/valkey-io/valkey/pull/1131>.
    if side == Side::Source && cause == Cause::Order && scene.cluster.version().name == "Redis" {
        stage = Stage::Arrived;
    }
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
    if !reach(scene, step, stage).await? {
        scene.cluster.wait_for_agreement().await?;
        let master = scene.cluster.master_of(slot).await?;
        return bulk::remove(scene.cluster.node(master), &lock).await;
    }
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

/// Waits for the stage. Returns false if the move was faster than its copying was seen.
async fn reach(scene: &mut Scene, step: AtomicMove, stage: Stage) -> Result<bool> {
    if stage == Stage::Late {
        sleep(LATE.mul_f64(scene.random.f64())).await;
    }
    let cluster = &scene.cluster;
    let wait_limit = PollLimit::new(format!("{stage:?}"));
    loop {
        let [source, target] = cluster.atomic_moves(step).await?;
        let is_reached = match stage {
            Stage::Ordered | Stage::Late => true,
            Stage::Copying => source.iter().any(|state| COPIES.contains(&state.as_str())),
            Stage::Arrived => {
                let view = ClusterNodes::of(cluster.node(step.to)).await?;
                view.master_of(step.first) == Some(cluster.id(step.to))
            }
        };
        if is_reached {
            return Ok(true);
        }
        if stage == Stage::Copying && cluster.has_no_atomic_move().await? {
            return Ok(false);
        }
        wait_limit.pause(format!("{source:?}, {target:?}")).await?;
    }
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
