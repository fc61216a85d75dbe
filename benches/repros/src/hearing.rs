//! Whether anybody hears what is published.

use crate::seen::Seen;
use crate::support::{Cluster, Patience, Result};

/// Waits until every one of the shard channels has a subscriber.
pub async fn all_heard(cluster: &Cluster, channels: &[String]) -> Result {
    let patience = Patience::new("the subscriptions");
    loop {
        match unheard(cluster, channels).await? {
            Seen { times: 0, .. } => return Ok(()),
            seen => patience.pause(format!("{} without", seen.times)).await?,
        }
    }
}

/// Those of the shard channels that have no subscriber at the owners of their slots.
pub async fn unheard(cluster: &Cluster, channels: &[String]) -> Result<Seen> {
    let mut seen = Seen::default();
    for channel in channels {
        let owner = cluster.owner(cluster.slot_of(channel).await?).await?;
        let hearing: u64 = cluster.node(owner).say(&format!("SPUBLISH {channel} word")).await?;
        seen.note(hearing == 0);
    }
    Ok(seen)
}
