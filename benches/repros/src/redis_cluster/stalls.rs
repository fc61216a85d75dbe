//! Connections are killed under load, ten times. Then the load ends, and single commands are sent
//! for several times the client's first backoff (1.28 s).

use std::time::Duration;

use redis::cluster_async::ClusterConnection;
use redis::{AsyncCommands, RedisResult};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client;
use crate::seen::Seen;
use crate::support::{ClientKind, Cluster, ClusterConfig, Result};

const RUNS: usize = 4;
const TASKS: usize = 64;
const KILLS: usize = 10;
const LIMIT: Duration = Duration::from_secs(6);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let mut seen = Seen::default();
    for _ in 0..RUNS {
        let connection = client(&cluster).build()?.get_async_connection().await?;
        let mut load: JoinSet<()> =
            (0..TASKS).map(|task| write(connection.clone(), task)).collect();
        for _ in 0..KILLS {
            sleep(Duration::from_millis(50)).await;
            for node in cluster.nodes() {
                node.kill_clients(ClientKind::Commands).await?;
            }
        }
        load.shutdown().await;
        seen.note(!answers(connection).await);
    }
    Ok(seen)
}

async fn write(mut connection: ClusterConnection, task: usize) {
    for count in 0.. {
        let _: RedisResult<()> = connection.set(format!("{task}:{}", count % 64), count).await;
    }
}

/// Whether any command to any shard is answered before the limit ends.
async fn answers(mut connection: ClusterConnection) -> bool {
    let end = Instant::now() + LIMIT;
    let mut key = 0;
    while Instant::now() < end {
        key += 1;
        if connection.set::<_, _, ()>(key, key).await.is_ok() {
            return true;
        }
    }
    false
}
