//! Faults of `fred`'s clustered clients.

pub mod does_not_tell;
pub mod ends;
pub mod loses_killed;
pub mod loses_moved;
pub mod mixes_up;
pub mod waits_for_ever;

use std::time::Duration;

use fred::clients::SubscriberClient;
use fred::prelude::*;

use crate::hearing::all_heard;
use crate::support::{self, Cluster};

const CHANNELS: usize = 3;

/// With the default settings, but for a time limit, and reconnecting at once and without end.
fn client(cluster: &Cluster) -> Builder {
    let mut builder = Builder::from_config(config(cluster));
    builder
        .with_performance_config(|config| config.default_command_timeout = Duration::from_secs(1))
        .set_policy(ReconnectPolicy::new_constant(0, 100));
    builder
}

fn config(cluster: &Cluster) -> Config {
    let nodes = cluster.nodes().iter().map(|node| (node.host(), node.port()));
    Config { server: ServerConfig::new_clustered(nodes.collect()), ..Config::default() }
}

/// Some shard channels, with the crate's own task that subscribes to them again.
async fn subscribed(cluster: &Cluster) -> support::Result<(SubscriberClient, Vec<String>)> {
    let subscriber = client(cluster).build_subscriber_client()?;
    subscriber.init().await?;
    subscriber.manage_subscriptions();
    let channels: Vec<String> = (0..CHANNELS).map(|number| format!("channel{number}")).collect();
    for channel in &channels {
        subscriber.ssubscribe(channel.as_str()).await?;
    }
    all_heard(cluster, &channels).await?;
    Ok((subscriber, channels))
}
