//! Shard channels are subscribed, and their slots move. A command to each slot shows that to the
//! client.

use std::time::Duration;

use redis::{AsyncCommands, ProtocolVersion, RedisResult};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::client;
use crate::hearing::{all_heard, unheard};
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const CHANNELS: usize = 5;
const LIMIT: Duration = Duration::from_secs(2);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let (pushes, _told) = mpsc::unbounded_channel();
    let client =
        client(&cluster).use_protocol(ProtocolVersion::RESP3).push_sender(pushes).build()?;
    let mut connection = client.get_async_connection().await?;
    let channels: Vec<String> = (0..CHANNELS).map(|number| format!("channel{number}")).collect();
    for channel in &channels {
        connection.ssubscribe(channel).await?;
    }
    all_heard(&cluster, &channels).await?;

    for channel in &channels {
        let slot = cluster.slot_of(channel).await?;
        cluster.move_slot(slot, 1 - cluster.master_of(slot).await?).await?;
        let _: RedisResult<()> = connection.set(channel, "").await;
    }
    sleep(LIMIT).await;
    unheard(&cluster, &channels).await
}
