//! Faults of `redis::cluster_async::ClusterConnection`.

pub mod asks;
pub mod cannot_load;
pub mod loses_subscriptions;
pub mod pauses_long;
pub mod repeats_pipelines;
pub mod runs_twice;
pub mod stalls;
pub mod stays_with_the_frozen;
pub mod subscribes_together;
pub mod waits_for_ever;

use std::time::Duration;

use redis::cluster::ClusterClientBuilder;

use crate::support::Cluster;

/// With the default settings, but for time limits.
fn client(cluster: &Cluster) -> ClusterClientBuilder {
    ClusterClientBuilder::new(cluster.urls())
        .connection_timeout(Duration::from_secs(1))
        .response_timeout(Duration::from_secs(1))
}
