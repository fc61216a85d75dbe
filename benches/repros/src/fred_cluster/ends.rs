//! A slot is moving, with its key at the target, and the key is read once. Then keys of other slots
//! are read, at both nodes.

use fred::prelude::*;

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, Result};

const AFTERWARDS: usize = 6;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let client = client(&cluster).build()?;
    client.init().await?;
    let slot = cluster.slot_of("moving").await?;
    cluster.begin_migration(slot, 1 - cluster.master_of(slot).await?).await?;
    let _: FredResult<Option<String>> = client.get("moving").await;

    let mut seen = Seen::default();
    for key in 0..AFTERWARDS {
        let answer: FredResult<Option<String>> = client.get(format!("staying{key}")).await;
        seen.note(answer.is_err());
    }
    Ok(seen)
}
