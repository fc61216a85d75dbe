//! With the default settings alone, a command is sent to a server that is frozen.

use std::time::Duration;

use futures::future::join_all;
use redis::AsyncCommands;
use redis::cluster::ClusterClientBuilder;
use tokio::time::timeout;

use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 3;
const LONG: Duration = Duration::from_secs(10);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let client = ClusterClientBuilder::new(cluster.urls()).build()?;
    let connection = client.get_async_connection().await?;
    cluster.node(0).freeze()?;

    let unanswered = join_all((0..TRIES).map(|key| {
        let mut connection = connection.clone();
        async move { timeout(LONG, connection.set::<_, _, ()>(key, "")).await.is_err() }
    }));
    let mut seen = Seen::default();
    unanswered.await.into_iter().for_each(|unanswered| seen.note(unanswered));
    Ok(seen)
}
