//! A channel whose slot is at another server is left, while keys are read on the same connection.
//! The value of each key is its own name.

use fred::prelude::*;
use futures::future::join_all;
use tokio::join;

use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const KEYS: usize = 5;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let (here, elsewhere) = (tag_of(&cluster, 0).await?, tag_of(&cluster, 1).await?);
    let server = ServerConfig::new_centralized(cluster.node(0).host(), cluster.node(0).port());
    let client = Builder::from_config(Config { server, ..Config::default() }).build()?;
    client.init().await?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{here}{key}")).collect();
    for key in &keys {
        client.set::<(), _, _>(key, key, None, None, false).await?;
    }

    let reading = join_all(keys.iter().map(|key| client.get::<Option<String>, _>(key)));
    let (_, values) = join!(client.sunsubscribe(elsewhere.as_str()), reading);
    let mut seen = Seen::default();
    for (key, value) in keys.iter().zip(values) {
        seen.note(value.ok().flatten().as_ref() != Some(key));
    }
    Ok(seen)
}

/// A hash tag whose slot is at that node.
async fn tag_of(cluster: &Cluster, node: usize) -> Result<String> {
    let mut tag = String::new();
    for number in 0.. {
        tag = format!("{{{number}}}");
        let slot = cluster.slot_of(&tag).await?;
        if cluster.master_of(slot).await? == node {
            break;
        }
    }
    Ok(tag)
}
