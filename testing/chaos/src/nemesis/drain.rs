//! A node joins, a whole shard moves to it while its keys are in use, and the shard's old node is
//! removed.

use redis::{Pipeline, cmd};

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{Cluster, PollLimit, Result, ServerSettings};

/// A number that a server handles quickly.
const AT_ONCE: usize = 200;

pub async fn strike(scene: &mut Scene) -> Result {
    let old = scene.some_master().await?;
    let struck = scene.names_at(old).await?;
    let at = now();
    scene.order(Change::Joins(scene.cluster.nodes().len()));
    let new = add_node(&mut scene.cluster).await?;
    let slots: Vec<u16> = scene.cluster.slots_of(old).await?;
    let (live, empty) = with_keys(&scene.cluster, old, &slots).await?;
    order(scene, (old, new), live.len() + runs(&empty).count()).await?;
    let cluster = &scene.cluster;
    for &slot in &live {
        cluster.move_slot(slot, new).await?;
    }
    if cluster.version().has_atomic_moves() {
        for run in runs(&empty) {
            cluster.migrate_slots_atomically(run[0], run[run.len() - 1], new).await?;
        }
    } else {
        assign(cluster, &empty, old, new).await?;
    }
    let followers = cluster.replicas_of(old).await?;
    for replica in followers {
        let follow = format!("CLUSTER REPLICATE {}", cluster.id(new));
        cluster.node(replica).run_words::<()>(&follow).await?;
    }
    cluster.wait_for_agreement().await?;
    let (left, has) = (cluster.slots_of(old).await?.len(), cluster.slots_of(new).await?.len());
    ensure(left == 0 && has == slots.len(), || {
        format!("{left} slots are at the old node, {has} at the new one")
    })?;
    remove_node(cluster, old).await?;
    let proof = format!(
        "all {has} slots of node {old} went to the new node {new}, {} of them with keys",
        live.len()
    );
    scene.fault("drain", at, struck, proof);
    Ok(())
}

/// The orders of the servers once the new one has joined, with that many moves.
async fn order(scene: &mut Scene, (old, new): (usize, usize), moves: usize) -> Result {
    for _ in 0..moves {
        scene.order(Change::TakesSlot(new));
    }
    for replica in scene.cluster.replicas_of(old).await? {
        scene.order(Change::Follows { replica, master: new });
    }
    scene.order(Change::Leaves(old));
    Ok(())
}

/// Consecutive slots.
fn runs(slots: &[u16]) -> impl Iterator<Item = &[u16]> {
    slots.chunk_by(|slot, next| slot + 1 == *next)
}

/// Adds a node without slots that knows all others.
async fn add_node(cluster: &mut Cluster) -> Result<usize> {
    let known = cluster.node(cluster.running()[0]);
    let meet = format!("CLUSTER MEET {} {} {}", known.host(), known.port(), known.bus_port());
    let settings = ServerSettings {
        cluster: true,
        ..ServerSettings::default().line("cluster-node-timeout 15000")
    };
    let new = cluster.add(settings).await?;
    cluster.node(new).run_words::<()>(&meet).await?;
    cluster.wait_for_agreement().await?;
    Ok(new)
}

/// Splits slots into those with keys and those without.
async fn with_keys(cluster: &Cluster, node: usize, slots: &[u16]) -> Result<(Vec<u16>, Vec<u16>)> {
    let mut counts = Pipeline::new();
    for slot in slots {
        counts.add_command(cmd("CLUSTER").arg("COUNTKEYSINSLOT").arg(slot).to_owned());
    }
    let counts: Vec<usize> = counts.query_async(&mut cluster.node(node).connect().await?).await?;
    let (live, empty): (Vec<_>, Vec<_>) =
        slots.iter().zip(counts).partition(|(_, count)| *count > 0);
    let only = |slots: Vec<(&u16, usize)>| slots.into_iter().map(|(slot, _)| *slot).collect();
    Ok((only(live), only(empty)))
}

/// Gives slots without keys to another node. The new node hears of it first, the old one last.
async fn assign(cluster: &Cluster, slots: &[u16], old: usize, new: usize) -> Result {
    let others = cluster.masters().await?.into_iter();
    let mut tell = vec![new];
    tell.extend(others.filter(|&master| master != new && master != old));
    for some in slots.chunks(AT_ONCE) {
        let mut assign = Pipeline::new();
        for slot in some {
            let mut command = cmd("CLUSTER");
            command.arg("SETSLOT").arg(slot).arg("NODE").arg(cluster.id(new));
            assign.add_command(command).ignore();
        }
        for &number in &tell {
            assign.query_async::<()>(&mut cluster.node(number).connect().await?).await?;
        }
        // It also hears of it from the others. With its last slot gone, it becomes a replica, which
        // refuses the command.
        let _ = assign.query_async::<()>(&mut cluster.node(old).connect().await?).await;
    }
    Ok(())
}

/// All nodes forget the node, and it ends. For a moment, a replica refuses to forget its master.
async fn remove_node(cluster: &Cluster, node: usize) -> Result {
    cluster.node(node).kill()?;
    for number in cluster.running() {
        let wait_limit = PollLimit::new("a node to forget another");
        let forget = format!("CLUSTER FORGET {}", cluster.id(node));
        while let Err(error) = cluster.node(number).run_words::<()>(&forget).await {
            if error.to_string().contains("Unknown node") {
                break;
            }
            wait_limit.pause(error).await?;
        }
    }
    cluster.wait_for_agreement().await
}
