//! The only replica of a master always lags: it is stopped, goes on for a moment at each look, and
//! is stopped again.

use std::time::Duration;

use tokio::time::sleep;

use super::{Touched, ensure};
use crate::process;
use crate::scenario::Scene;
use testkit::{PollLimit, Result};

const MASTER: usize = 0;

/// How long the replica goes on at each look.
const MOMENT: Duration = Duration::from_millis(50);

pub async fn strike(scene: &Scene) -> Result<Touched> {
    let names = scene.names_at(MASTER).await?;
    scene.cluster.node(replica(scene)).freeze()?;
    let wait_limit = PollLimit::new("the replica to be behind");
    wait_limit.until(|| async { Ok(behind(scene).await? > 0) }).await?;
    // A grant that the replica has confirmed in such a moment makes others wait.
    let errors = &["Unavailable", "TimedOut"];
    Ok(Touched { names, worker: None, errors, is_all_refused: false })
}

pub async fn look(scene: &Scene) -> Result<String> {
    let node = scene.cluster.node(replica(scene));
    let state = node.id().and_then(process::state);
    ensure(state == Some('T'), || format!("the replica is {state:?}"))?;
    let bytes = behind(scene).await?;
    ensure(bytes > 0, || "the replica is in step".into())?;
    node.thaw()?;
    sleep(MOMENT).await;
    node.freeze()?;
    Ok(format!("the replica stood stopped, {bytes} bytes behind"))
}

pub async fn lift(scene: &Scene) -> Result {
    scene.cluster.node(replica(scene)).thaw()?;
    scene.cluster.wait_for_agreement().await
}

/// It has the number that it got at the start of the cluster.
fn replica(scene: &Scene) -> usize {
    MASTER + scene.cluster.nodes().len() / 2
}

/// How many bytes the replica lacks, as the master knows.
async fn behind(scene: &Scene) -> Result<u64> {
    let info = scene.cluster.node(MASTER).info("replication").await?;
    let end: u64 = info.get("master_repl_offset").map_or("", String::as_str).parse()?;
    let slave = info.get("slave0").map_or("", String::as_str);
    let has = slave.split(',').find_map(|field| field.strip_prefix("offset="));
    Ok(end.saturating_sub(has.unwrap_or("0").parse()?))
}
