//! A master and the clients beside it are cut off from the rest, where its replica takes over.
//! Later the partition ends.
//!
//! The minority is in a network namespace: the master and some of the workers.

use std::time::Duration;

use futures::future::try_join_all;
use tokio::time::sleep;

use super::ensure;
use crate::history::now;
use crate::ledger::Change;
use crate::scenario::Scene;
use testkit::{
    Cluster, ClusterConfig, FailoverMode, NetworkNamespace, PollLimit, Result, Server,
    ServerSettings,
};

/// The node of the minority.
const FAR: usize = 0;

/// A cluster whose first master is on the other side.
pub async fn prepare(shape: &ClusterConfig, space: &NetworkNamespace) -> Result<Cluster> {
    let place = |number| match number {
        FAR => (space.namespace_addr(), space.before()),
        _ => (space.host_addr(), Vec::new()),
    };
    start_at(shape, place, |_| None).await
}

/// A cluster whose nodes have these hosts, words before their commands, and further settings.
pub async fn start_at(
    shape: &ClusterConfig,
    place: impl Fn(usize) -> (String, Vec<String>),
    line: impl Fn(usize) -> Option<String>,
) -> Result<Cluster> {
    let settings = |number| {
        let (host, before) = place(number);
        let timeout = format!("cluster-node-timeout {}", shape.node_timeout);
        let lines = line(number).into_iter().chain([timeout]).collect();
        let host = Some(host);
        ServerSettings { cluster: true, host, before, lines, ..ServerSettings::default() }
    };
    let count = shape.masters * (1 + shape.replicas_of_each);
    let starts = (0..count).map(async |number| Server::start(&settings(number)).await);
    Cluster::join(try_join_all(starts).await?, shape.masters).await
}

pub async fn strike(scene: &mut Scene) -> Result {
    let struck = scene.names_at(FAR).await?;
    let before = scene.epoch(FAR).await?;
    let near = scene.heir(FAR).await?;
    let lasts = scene.load.lease.mul_f64(scene.random.f64() * 1.5);
    let at = now();
    scene.order(Change::TakesOver { from: FAR, to: near });
    scene.space()?.cut()?;
    let state = scene.space()?.state()?;
    ensure(state == "down", || format!("the cable is {state}"))?;
    let wait_limit = PollLimit::new("the replica to be promoted");
    while !scene.cluster.is_master(near).await.unwrap_or(false) {
        wait_limit.pause("it is a replica").await?;
    }
    let promoted = now();
    sleep(lasts.max(Duration::from_millis(100))).await;
    scene.space()?.restore()?;
    let until = now();
    scene.cluster.wait_for_agreement().await?;
    let agreed = now();
    let (master, after) =
        (scene.cluster.master_of(scene.slot(struck[0])).await?, scene.epoch(near).await?);
    ensure(master == near && after > before, || {
        format!("node {master} has the slots at epoch {after}")
    })?;
    let far = scene.far_workers();
    let proof = format!(
        "the cable was down, node {near} was promoted on this side, epoch {before} to {after}"
    );
    scene.fault("partition", at, struck.clone(), proof);
    scene.excuse(struck, if scene.load.replicas > 0 { agreed } else { promoted });
    if let Some(fault) = scene.faults.last_mut() {
        fault.until = until;
        fault.far = far;
    }
    scene.order(Change::TakesOver { from: near, to: FAR });
    scene.cluster.fail_over(FAR, FailoverMode::Orderly).await
}
