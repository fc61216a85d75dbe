//! How many calls a free lock takes.

use super::hearing;
use testkit::{Cluster, ClusterConfig, Result, scripts_run};

#[tokio::test]
async fn acquire_and_release_of_a_free_lock_take_one_call_each() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    let lock = hearing(&cluster).await?.rwlock("free")?;
    let _ = lock.write().await?.release().await?; // the server knows the scripts from here on
    let _ = lock.read().await?.release().await?;
    cluster.node(0).reset_stats().await?;
    for before in [0, 4, 8] {
        let _ = lock.write().await?.release().await?;
        assert_eq!(scripts_run(&cluster.node(0).command_stats().await?), before + 2);
        let _ = lock.read().await?.release().await?;
        assert_eq!(scripts_run(&cluster.node(0).command_stats().await?), before + 4);
    }
    Ok(())
}
