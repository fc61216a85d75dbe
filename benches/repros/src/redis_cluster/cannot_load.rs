//! A script is loaded, for a key of a healthy shard.

use redis::{RedisResult, cmd};

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 3;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let mut connection = client(&cluster).build()?.get_async_connection().await?;
    cluster.node(1).freeze()?;

    let mut seen = Seen::default();
    for count in 0..TRIES {
        let script = format!("return {count}");
        let answer: RedisResult<String> =
            cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await;
        seen.note(answer.is_err());
    }
    Ok(seen)
}
