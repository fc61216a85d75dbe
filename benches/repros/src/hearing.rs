//! Whether a published message reaches any subscriber.

use crate::seen::Seen;
use crate::support::{Cluster, PollLimit, Result};

/// Waits until every one of the shard channels has a subscriber.
pub async fn all_heard(cluster: &Cluster, channels: &[String]) -> Result {
    let wait_limit = PollLimit::new("the subscriptions");
    loop {
        match unheard(cluster, channels).await? {
            Seen { times: 0, .. } => return Ok(()),
            seen => wait_limit.pause(format!("{} without", seen.times)).await?,
        }
    }
}

/// Those of the shard channels that have no subscriber at the masters of their slots.
pub async fn unheard(cluster: &Cluster, channels: &[String]) -> Result<Seen> {
    let mut seen = Seen::default();
    for channel in channels {
        seen.note(subscribers(cluster, channel).await? == 0);
    }
    Ok(seen)
}

/// How many subscribers the shard channel has at the master of its slot.
pub async fn subscribers(cluster: &Cluster, channel: &str) -> Result<u64> {
    let master = cluster.master_of(cluster.slot_of(channel).await?).await?;
    cluster.node(master).run_words(&format!("SPUBLISH {channel} word")).await
}
