//! A lock on a server that sentinels watch. A replica confirms it, so that it outlives the master.
//!
//! `RWLEASE_URL=redis+sentinel://s1,s2,s3/mymaster`, and `SENTINEL_PASSWORD` if the sentinels have
//! one of their own; without a URL, on servers in this process.

use std::env::var;
use std::time::Duration;

use rwlease::{Client, Credentials, Result, SentinelConfig};

#[tokio::main]
async fn main() -> Result<()> {
    let client = match var("RWLEASE_URL") {
        Ok(url) => Client::builder().sentinel(sentinels(&url)?).connect().await?,
        Err(_) => Client::embedded().await?,
    };
    // Longer than a failover takes.
    let lease = Duration::from_secs(30);
    let order = client.rwlock("order:{42}")?.write().min_replicas(1).lease(lease).await?;
    println!("held, and a replica knows: token {}", order.fencing_token());
    assert!(order.release().await?.was_held());
    Ok(())
}

fn sentinels(url: &str) -> Result<SentinelConfig> {
    let sentinels: SentinelConfig = url.parse()?;
    Ok(match var("SENTINEL_PASSWORD") {
        Ok(password) => sentinels.credentials(Credentials::password(password)),
        Err(_) => sentinels,
    })
}
