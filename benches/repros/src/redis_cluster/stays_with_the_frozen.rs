//! A master is stopped, its replica takes over, and all other nodes know. Then commands are sent to
//! its slots.

use redis::AsyncCommands;

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, Result};

const TRIES: usize = 5;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start().await?;
    let mut connection = client(&cluster).build()?.get_async_connection().await?;
    connection.set::<_, _, ()>("key", "").await?;
    let slot = cluster.slot_of("key").await?;
    let master = cluster.master_of(slot).await?;
    cluster.node(master).freeze()?;
    cluster.new_master(slot, master).await?;

    let mut seen = Seen::default();
    for count in 0..TRIES {
        seen.note(connection.set::<_, _, ()>("key", count).await.is_err());
    }
    Ok(seen)
}
