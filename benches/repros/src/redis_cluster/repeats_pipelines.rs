//! A pipeline to one node increments two keys, and the slot of one has moved away. How often is the
//! other incremented?

use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const TRIES: usize = 5;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let mut connection = client(&cluster).build()?.get_async_connection().await?;
    let keys = keys_of(&cluster, 0, 2 * TRIES).await?;
    let (staying, moving) = keys.split_at(TRIES);

    let mut seen = Seen::default();
    for (staying, moving) in staying.iter().zip(moving) {
        cluster.move_slot(cluster.slot_of(moving).await?, 1).await?;
        let mut pipeline = redis::pipe();
        pipeline.cmd("INCR").arg(staying).cmd("INCR").arg(moving);
        let master = Route::new(cluster.slot_of(staying).await?, SlotAddr::Master);
        let to = SingleNodeRoutingInfo::SpecificNode(master);
        let _ = connection.route_pipeline(pipeline, 0, 2, to).await;
        let count: u64 = cluster.node(0).run_words(&format!("GET {staying}")).await?;
        seen.note(count > 1);
    }
    Ok(seen)
}

/// Some keys whose slots are the node's.
async fn keys_of(cluster: &Cluster, node: usize, count: usize) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    let mut number = 0;
    while keys.len() < count {
        number += 1;
        let key = format!("key{number}");
        if cluster.master_of(cluster.slot_of(&key).await?).await? == node {
            keys.push(key);
        }
    }
    Ok(keys)
}
