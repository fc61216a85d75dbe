//! Shard channels are subscribed by several clients, and the connections are killed. Which client
//! loses a subscription depends on its id, so there are many.

use std::time::Duration;

use tokio::time::sleep;

use super::subscribed;
use crate::hearing::subscribers;
use crate::seen::Seen;
use crate::support::{ClientKind, Cluster, ClusterConfig, Result};

const CLIENTS: u64 = 10;
const ROUNDS: usize = 4;
const LIMIT: Duration = Duration::from_secs(5);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(subscribed(&cluster).await?);
    }
    let mut seen = Seen::default();
    for _ in 0..ROUNDS {
        for node in cluster.nodes() {
            node.kill_clients(ClientKind::Subscribed).await?;
            node.kill_clients(ClientKind::Commands).await?;
        }
        sleep(LIMIT).await;
        for channel in &clients[0].1 {
            let heard = subscribers(&cluster, channel).await?;
            (0..CLIENTS).for_each(|client| seen.note(client >= heard));
        }
    }
    Ok(seen)
}
