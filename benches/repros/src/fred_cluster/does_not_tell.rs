//! Shard channels are subscribed, and their slots move. Afterwards the client's own view is
//! checked.

use std::time::Duration;

use tokio::time::sleep;

use super::subscribed;
use crate::hearing::unheard;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const LIMIT: Duration = Duration::from_secs(3);

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let (subscriber, channels) = subscribed(&cluster).await?;
    let mut seen = Seen::default();
    for channel in &channels {
        let slot = cluster.slot_of(channel).await?;
        cluster.move_slot(slot, 1 - cluster.master_of(slot).await?).await?;
    }
    sleep(LIMIT).await;
    let believed = subscriber.tracked_shard_channels();
    for channel in channels {
        let gone = unheard(&cluster, std::slice::from_ref(&channel)).await?.times > 0;
        seen.note(gone && believed.contains(&*channel));
    }
    Ok(seen)
}
