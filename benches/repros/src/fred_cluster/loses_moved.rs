//! Shard channels are subscribed, and their slots move.

use std::time::Duration;

use tokio::time::sleep;

use super::subscribed;
use crate::hearing::unheard;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const LIMIT: Duration = Duration::from_secs(3);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let (_subscriber, channels) = subscribed(&cluster).await?;
    for channel in &channels {
        let slot = cluster.slot_of(channel).await?;
        cluster.move_slot(slot, 1 - cluster.master_of(slot).await?).await?;
    }
    sleep(LIMIT).await;
    unheard(&cluster, &channels).await
}
