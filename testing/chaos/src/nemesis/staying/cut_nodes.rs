//! One master cannot send to another one. So no connection between the two lasts, and each suspects
//! the other to be gone. All other nodes and all clients reach both.
//!
//! The first is in a network namespace, and the other one has an address of its own: a route there
//! drops what is sent to it.

use std::time::Duration;

use super::{Props, Touched, ensure};
use crate::nemesis::partition::start_at;
use crate::scenario::Scene;
use testkit::{
    Cluster, ClusterConfig, ClusterNodes, Error, NetworkNamespace, PollLimit, Result, Version,
};

const FROM: usize = 0;
const TO: usize = 1;

/// Three times `cluster-node-timeout`.
const LOOK: Duration = Duration::from_secs(9);

pub async fn prepare(shape: &ClusterConfig) -> Result<Option<(Cluster, Props)>> {
    let Some(space) = NetworkNamespace::create_if_allowed()? else { return Ok(None) };
    let second = space.add_host_addr()?;
    let has_source = Version::found()?.major >= 7;
    let place = |number| match number {
        FROM => (space.namespace_addr(), space.before()),
        TO => (second.clone(), Vec::new()),
        _ => (space.host_addr(), Vec::new()),
    };
    // Its own connections come from its own address, too.
    let source =
        |number| (number == TO && has_source).then(|| format!("bind-source-addr {second}"));
    let cluster = start_at(shape, place, source).await?;
    Ok(Some((cluster, Props { space: Some(space), ..Props::default() })))
}

pub async fn strike(scene: &Scene) -> Result<Touched> {
    space(scene)?.drop_to_second_addr()?;
    let wait_limit = PollLimit::new("two masters to miss each other");
    wait_limit.until_ok(|| look_once(scene)).await?;
    Ok(Touched::default())
}

/// Each of the two suspects the other, and nobody else does. On a busy machine a node can suspect a
/// third one for a moment.
pub async fn look(scene: &Scene) -> Result<String> {
    let wait_limit = PollLimit::limited("only two masters to miss each other", LOOK);
    wait_limit.until_ok(|| look_once(scene)).await
}

async fn look_once(scene: &Scene) -> Result<String> {
    for number in scene.cluster.running() {
        let view = ClusterNodes::of(scene.cluster.node(number)).await?;
        for other in [FROM, TO] {
            let flags = view.0.get(scene.cluster.id(other)).map(|entry| entry.flags.clone());
            let flags = flags.unwrap_or_default();
            let is_suspect = flags.iter().any(|flag| flag == "fail?");
            let misses = [(FROM, TO), (TO, FROM)].contains(&(number, other));
            let is_gone = flags.iter().any(|flag| flag == "fail");
            ensure(is_suspect == misses && !is_gone, || {
                format!("node {number} says of node {other}: {flags:?}")
            })?;
        }
    }
    Ok(format!("nodes {FROM} and {TO} suspect each other, and the others neither"))
}

pub async fn lift(scene: &Scene) -> Result {
    space(scene)?.reach_second_addr()?;
    scene.cluster.wait_for_agreement().await
}

fn space(scene: &Scene) -> Result<&NetworkNamespace> {
    scene.props.space.as_ref().ok_or_else(|| Error::new("all are in one network"))
}
