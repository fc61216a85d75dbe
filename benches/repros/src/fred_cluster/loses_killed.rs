//! Shard channels are subscribed, and the connections are killed.

use std::time::Duration;

use tokio::time::sleep;

use super::subscribed;
use crate::hearing::unheard;
use crate::seen::Seen;
use crate::support::{Clients, Cluster, Result, Shape};

const LIMIT: Duration = Duration::from_secs(3);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let (_subscriber, channels) = subscribed(&cluster).await?;
    for node in cluster.nodes() {
        node.kill_clients(Clients::Subscribed).await?;
        node.kill_clients(Clients::Commanding).await?;
    }
    sleep(LIMIT).await;
    unheard(&cluster, &channels).await
}
