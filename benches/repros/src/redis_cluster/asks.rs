//! A slot is moving, and its keys are at the target: the source answers every command with ASK. The
//! client sends `ASKING` and the command separately, other commands get in between, and the target
//! answers MOVED. This repeats until the attempts are used up.

use futures::future::join_all;
use redis::AsyncCommands;
use redis::cluster_async::ClusterConnection;

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TASKS: usize = 64;
const EACH: usize = 4;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let connection = client(&cluster).build()?.get_async_connection().await?;
    let slot = cluster.slot_of("{moving}").await?;
    cluster.begin_migration(slot, 1 - cluster.master_of(slot).await?).await?;

    let written = join_all((0..TASKS).map(|task| write(connection.clone(), task))).await;
    Ok(written.into_iter().sum())
}

async fn write(mut connection: ClusterConnection, task: usize) -> Seen {
    let mut seen = Seen::default();
    for count in 0..EACH {
        let answer = connection.set::<_, _, ()>(format!("{{moving}}{task}"), count).await;
        seen.note(answer.is_err());
    }
    seen
}
