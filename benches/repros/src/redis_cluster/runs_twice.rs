//! The connection ends after the server has run a command and before its reply arrives.

use redis::cluster::NodeAddress;
use redis::{AsyncCommands, RedisResult};

use super::client;
use crate::seen::Seen;
use crate::support::{Cluster, ClusterConfig, CutPoint, Proxies, Result};

const TRIES: usize = 5;

pub async fn run() -> Result<Seen> {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let proxies = Proxies::start(&cluster).await?;
    let address = |port| NodeAddress::new("127.0.0.1", port);
    let proxied = [(address(cluster.node(0).port()), address(proxies.at(0).port()))];
    let client = client(&cluster).node_address_map(proxied.into()).build()?;
    let mut connection = client.get_async_connection().await?;

    let mut seen = Seen::default();
    for key in 0..TRIES {
        let sprung = proxies.at(0).trap("hincrby", CutPoint::AfterIt);
        let _: RedisResult<u64> = connection.hincr(key, "count", 1).await;
        sprung.await?;
        let count: u64 = cluster.node(0).run_words(&format!("HGET {key} count")).await?;
        seen.note(count > 1);
    }
    Ok(seen)
}
