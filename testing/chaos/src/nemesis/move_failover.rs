//! A replica takes over while a slot moves key by key, at each stage of the move; then an operator
//! finishes the move.

use std::time::Duration;

use tokio::time::sleep;

use super::ensure;
use super::moves::some_move;
use super::takeover::{Cause, Side, Takeover};
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{Cluster, ClusterNodes, PollLimit, Result, SlotMigration};

/// When the replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The target imports, the source does not know yet.
    Importing,
    /// Both know, and no key has moved.
    Migrating,
    /// The lock has moved, another key has not.
    LockMoved,
    /// Another key has moved, the lock has not.
    OtherMoved,
    AllMoved,
    /// The target was told that it has the slot, and nobody else was.
    Assigned,
    /// The target is told so while the replica takes over.
    Assigning,
}

/// The first ones show most.
const STAGES: [Stage; 7] = [
    Stage::LockMoved,
    Stage::Assigned,
    Stage::AllMoved,
    Stage::Assigning,
    Stage::OtherMoved,
    Stage::Migrating,
    Stage::Importing,
];

/// How long it takes the operator at most to come.
const UNREPAIRED: Duration = Duration::from_millis(1_500);
/// How long after the order of a failover the target is told at most: an election takes as long.
const ELECTION: Duration = Duration::from_millis(250);

pub async fn strike(scene: &mut Scene, side: Option<Side>, cause: Cause) -> Result {
    let side = side.unwrap_or_else(|| Side::random(scene));
    let mut stage = STAGES[scene.faults.len() % STAGES.len()];
    let is_redis = scene.cluster.version().name == "Redis";
    // The target raises its epoch when it is told that it has the slot. Redis 7.0.15 can then keep
    // both masters: the others do not see that its replica was elected. A killed one comes back
    // with the greater epoch and without data, and its promoted replica follows it.
    if side == Side::Target {
        stage = match (stage, cause) {
            (Stage::Assigning, Cause::Order) if is_redis => Stage::Assigned,
            (Stage::Assigning | Stage::Assigned, Cause::Kill) => Stage::AllMoved,
            _ => stage,
        };
    }
    let (name, from, to) = some_move(scene).await?;
    let step = SlotMigration { slot: scene.slot(name), from, to };
    let takeover = Takeover::prepare(scene, side.of(from, to), cause).await?;
    let lock = format!("rwlease:{}", scene.names[name]);
    let other = format!("{{{lock}}}other");
    let exists: bool = scene.cluster.node(from).run_words(&format!("EXISTS {lock}")).await?;
    let [_, left_behind] = keys_at(&scene.cluster, step).await?;
    if !exists || left_behind > 0 {
        return Ok(()); // nothing is at stake, or a forgotten move has left a key there
    }
    scene.cluster.node(from).run_words::<()>(&format!("SET {other} {other} EX 600")).await?;
    // A target that does not know the slot's master serves no slot at all.
    let mut struck =
        [scene.names_at(takeover.old).await?, scene.names_at(to).await?, vec![name]].concat();
    struck.sort_unstable();
    struck.dedup();

    let at = now();
    scene.order(Change::TakesSlot(to));
    let before = advance(&scene.cluster, step, stage, &lock, &other).await?;
    takeover.announce(scene);
    let during = match stage {
        Stage::Assigning => {
            let pause = ELECTION.mul_f64(scene.random.f64());
            assign_meanwhile(scene, takeover, step, pause).await?
        }
        _ => {
            takeover.strike(scene).await?;
            String::new()
        }
    };
    let left = left_over(&scene.cluster, step).await?;
    sleep(UNREPAIRED.mul_f64(scene.random.f64())).await;

    let new = match side {
        Side::Source => SlotMigration { from: takeover.new, ..step },
        Side::Target => SlotMigration { to: takeover.new, ..step },
    };
    if new.to != to {
        scene.order(Change::TakesSlot(new.to));
    }
    // A target of Valkey that comes back after the move and still imports the slot takes it, with a
    // greater epoch and without data, and its promoted replica follows it. So it comes back before,
    // and as a replica in step it hears of the end of the move. One of Redis hears of it later.
    let is_back_first = side == Side::Target && !is_redis;
    if is_back_first {
        takeover.clean_up(scene).await?;
    }
    let keys = finish(&scene.cluster, new).await?;
    if !is_back_first {
        takeover.clean_up(scene).await?;
    }
    scene.cluster.wait_for_agreement().await?;
    let master = scene.cluster.master_of(step.slot).await?;
    ensure(master == new.to, || format!("slot {} is at {master}, not at {}", step.slot, new.to))?;
    scene.cluster.node(master).run_words::<()>(&format!("UNLINK {other}")).await?;
    let proof = format!(
        "slot {} on the way from node {from} to node {to}, {stage:?}{during}: {before}; {}; after it \
         {left}; then it went to node {} with {keys} more keys",
        step.slot,
        takeover.proof(scene).await?,
        new.to,
    );
    scene.fault(format!("move, {side:?} {cause:?} {stage:?}"), at, struck.clone(), proof);
    scene.excuse(struck, now());
    Ok(())
}

/// Moves as far as the stage wants, and reads back that it is so.
async fn advance(
    cluster: &Cluster,
    step: SlotMigration,
    stage: Stage,
    lock: &str,
    other: &str,
) -> Result<String> {
    cluster.set_importing(step).await?;
    if stage != Stage::Importing {
        cluster.set_migrating(step).await?;
    }
    match stage {
        Stage::Importing | Stage::Migrating => {}
        Stage::LockMoved => cluster.move_key(step, lock).await?,
        Stage::OtherMoved => cluster.move_key(step, other).await?,
        Stage::AllMoved | Stage::Assigned | Stage::Assigning => {
            cluster.move_keys(step).await?;
        }
    }
    if stage == Stage::Assigned {
        cluster.assign_slot(step.to, step).await?;
    }
    let (from, to) = (cluster.moving_at(step.from).await?, cluster.moving_at(step.to).await?);
    let [left, moved] = keys_at(cluster, step).await?;
    let is_so = match stage {
        Stage::Importing => from.is_empty() && to.len() == 1 && moved == 0,
        Stage::Migrating => from.len() == 1 && to.len() == 1 && moved == 0,
        Stage::LockMoved | Stage::OtherMoved => from.len() == 1 && left > 0 && moved > 0,
        Stage::AllMoved | Stage::Assigning => from.len() == 1 && to.len() == 1 && left == 0,
        Stage::Assigned => to.is_empty() && left == 0 && moved > 0,
    };
    let told = format!("{from:?} and {left} keys there, {to:?} and {moved} keys here");
    ensure(is_so, || format!("{stage:?}: {told}"))?;
    Ok(told)
}

/// Tells the target that it has the slot, a while after the order of the failover.
async fn assign_meanwhile(
    scene: &Scene,
    takeover: Takeover,
    step: SlotMigration,
    pause: Duration,
) -> Result<String> {
    let assign = async {
        sleep(pause).await;
        // A target that is a replica by now refuses.
        scene.cluster.assign_slot(step.to, step).await
    };
    let (told, struck) = tokio::join!(assign, takeover.strike(scene));
    struck?;
    let told = told.map_or_else(|error| error.to_string(), |()| "the target agreed".into());
    Ok(format!(" after {pause:?}, {told}"))
}

/// What the nodes of both shards still say of the move, after the takeover.
async fn left_over(cluster: &Cluster, step: SlotMigration) -> Result<String> {
    let mut left = Vec::new();
    for number in cluster.running() {
        let moving = cluster.moving_at(number).await?;
        if !moving.is_empty() {
            left.push(format!("node {number} says {moving:?}"));
        }
    }
    let mut owners = Vec::new();
    for number in cluster.running() {
        owners.push((number, owner_by(cluster, number, step.slot).await?));
    }
    Ok(format!("{left:?}, masters by node {owners:?}"))
}

/// What an operator does: the move goes on between the masters of now. A key at both is the
/// source's, because the source has served the slot since.
async fn finish(cluster: &Cluster, step: SlotMigration) -> Result<usize> {
    let mut keys = 0;
    if owner_by(cluster, step.to, step.slot).await? != Some(step.to) {
        repair(cluster, step).await?;
        keys = cluster.replace_keys(step).await?;
    }
    let mut tell = vec![step.to, step.from];
    let others = cluster.masters().await?.into_iter();
    tell.extend(others.filter(|&number| number != step.to && number != step.from));
    for number in tell {
        cluster.assign_slot(number, step).await?;
    }
    Ok(keys)
}

/// Makes both masters know of the move between them. The target first forgets a move from another
/// node: as long as it knows of one, it does not learn which node has the slot now.
async fn repair(cluster: &Cluster, step: SlotMigration) -> Result {
    let wait_limit = PollLimit::new("both nodes to go on with a move");
    if cluster.moving_at(step.to).await? != [format!("[{}-<-{}]", step.slot, cluster.id(step.from))]
    {
        cluster.set_stable(step.to, step).await?;
        loop {
            match owner_by(cluster, step.to, step.slot).await? {
                Some(owner) if owner == step.from => break,
                other => wait_limit.pause(format!("the target says {other:?}")).await?,
            }
        }
        cluster.set_importing(step).await?;
    }
    // It may not know yet that the target is a master.
    wait_limit.until_ok(|| cluster.set_migrating(step)).await
}

/// The master of a slot, as one node says.
async fn owner_by(cluster: &Cluster, number: usize, slot: u16) -> Result<Option<usize>> {
    let view = ClusterNodes::of(cluster.node(number)).await?;
    Ok(view.master_of(slot).and_then(|id| cluster.number(id)))
}

/// The numbers of keys in the slot at the source and at the target.
async fn keys_at(cluster: &Cluster, step: SlotMigration) -> Result<[u64; 2]> {
    let count = format!("CLUSTER COUNTKEYSINSLOT {}", step.slot);
    let source = cluster.node(step.from).run_words(&count).await?;
    Ok([source, cluster.node(step.to).run_words(&count).await?])
}
