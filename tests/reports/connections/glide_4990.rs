//! valkey-io/valkey-glide#4990: one shard fails, and the throughput of all the others drops to
//! nothing until it has been replaced, because their calls wait behind its reconnection.
//!
//! A shard that stands still delays no call to another one, however many wait for it.

use tokio::task::JoinSet;

use crate::support::{Cluster, ClusterConfig, connect};
use crate::{SECOND, soon};

#[tokio::test(flavor = "multi_thread")]
async fn silent_shard_delays_no_call_to_another() {
    let cluster =
        Cluster::start_with(ClusterConfig { node_timeout: 60_000, ..ClusterConfig::of(3, 0) });
    let cluster = cluster.await.unwrap();
    let locks = connect(&cluster.urls()).await.unwrap();
    let mut names = (0..).map(|number| format!("doc:{number}"));
    let mut at = async |node: usize| loop {
        let lock = locks.rwlock(names.next().unwrap()).unwrap();
        if cluster.master_of(lock.slot().get()).await.unwrap() == node {
            return lock;
        }
    };
    let (sick, healthy) = (at(0).await, [at(1).await, at(2).await]);
    for lock in &healthy {
        let _ = lock.write().await.unwrap().release().await.unwrap();
    }
    cluster.node(0).freeze().unwrap();
    let mut stuck = JoinSet::new();
    for _ in 0..300 {
        let lock = sick.clone();
        stuck.spawn(async move { lock.write().timeout(15 * SECOND).await.map(drop) });
    }
    let rounds = async {
        for _ in 0..100 {
            for lock in &healthy {
                let _ = lock.write().await.unwrap().release().await.unwrap();
            }
        }
    };
    soon(rounds).await;
    assert_eq!(stuck.len(), 300, "the sick shard answered");
    stuck.shutdown().await;
    cluster.node(0).thaw().unwrap();
    let _ = soon(sick.write()).await.unwrap().release().await.unwrap();
}
