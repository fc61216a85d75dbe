//! Shard channels of several slots are subscribed, and the connection is killed. The client
//! subscribes to all of them by one command, which the server refuses.

use std::time::Duration;

use redis::ProtocolVersion;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::client;
use crate::hearing::{all_heard, unheard};
use crate::seen::Seen;
use crate::support::{ClientKind, Cluster, ClusterConfig, Result};

const CHANNELS: usize = 5;
const LIMIT: Duration = Duration::from_secs(3);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let (pushes, _told) = mpsc::unbounded_channel();
    let client =
        client(&cluster).use_protocol(ProtocolVersion::RESP3).push_sender(pushes).build()?;
    let mut connection = client.get_async_connection().await?;
    let channels: Vec<String> = (0..CHANNELS).map(|number| format!("channel{number}")).collect();
    for channel in &channels {
        connection.ssubscribe(channel).await?;
    }
    all_heard(&cluster, &channels).await?;

    cluster.node(0).kill_clients(ClientKind::Subscribed).await?;
    sleep(LIMIT).await;
    unheard(&cluster, &channels).await
}
