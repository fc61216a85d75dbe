//! Nodes whose address another server has taken.

use std::fs;
use std::time::Duration;

use redis::cmd;
use rwlease::{Client, ErrorKind};
use tokio::time::Instant;

use super::{PATIENCE, on_each_master, serves};
use testkit::{
    Cluster, ClusterConfig, ClusterNodes, ConnectBuilder, Error, PollLimit, Result, Server, connect,
};

/// How many new clients try.
const CLIENTS: usize = 10;

/// Makes a new node a cluster of its own.
async fn serve_all(node: &Server, epoch: u64) -> Result {
    node.run_words::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {epoch}")).await?;
    node.run::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg((0..16_384).collect::<Vec<u16>>())).await?;
    serves(node).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_an_address_costs_only_its_own_shard() -> Result {
    let shape = ClusterConfig::of(3, 1).line("cluster-require-full-coverage no");
    let cluster = Cluster::start_with(shape).await?;
    let names = on_each_master(&cluster, "addressless", 30).await?;
    let locks = patient().connect_to(&cluster.urls()).await?;
    for name in names.concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }

    let heirs = cluster.replicas_of(1).await?;
    // A shard dies, and the address of its master is another cluster's now.
    let replica = cluster.replicas_of(0).await?[0];
    cluster.node(replica).kill()?;
    let taken = cluster.node(0);
    taken.kill()?;
    fs::remove_file(taken.folder().join("nodes.conf"))?;
    taken.restart().await?;
    serve_all(taken, 100).await?;
    let healthy: Vec<usize> = (1..6).filter(|number| *number != replica).collect();
    for &number in &healthy {
        has_no_address(cluster.node(number), cluster.id(0)).await?;
    }

    // Another shard fails over. Clients follow.
    let heir = heirs[0];
    cluster.node(heir).run_words::<()>("CLUSTER FAILOVER").await?;
    PollLimit::new("the replica to be promoted").until(|| cluster.is_master(heir)).await?;
    cluster.node(1).kill()?;
    let began = Instant::now();
    for name in names[1].iter().chain(&names[2]) {
        let _ = locks.rwlock(name)?.write().timeout(PATIENCE / 4).await?.release().await?;
    }
    println!("the locks of the healthy shards: {:?}", began.elapsed());
    let urls: Vec<String> =
        healthy.iter().filter(|&&it| it != 1).map(|&it| cluster.node(it).url()).collect();
    for _ in 0..CLIENTS {
        let newcomer = patient().connect_to(&urls).await?;
        for name in [&names[1][0], &names[2][0]] {
            let _ = newcomer.rwlock(name)?.write().timeout(PATIENCE / 4).await?.release().await?;
        }
        let outcome = newcomer.rwlock(&names[0][0])?.try_write().await;
        let error = outcome.err().ok_or_else(|| Error::new("it was granted"))?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    // Clients that are told of both deployments choose none.
    for _ in 0..CLIENTS {
        let error = refused(connect(&[taken.url(), urls[0].clone()]).await)?;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
    }
    let outcome = locks.rwlock(&names[0][0])?.try_write().await;
    assert!(outcome.is_err(), "{outcome:?}");
    let keys: Vec<String> = taken.run_words("KEYS *").await?;
    assert!(keys.is_empty(), "{keys:?} at the stranger");
    Ok(())
}

/// Waits until a node lists that one without an address.
async fn has_no_address(node: &Server, id: &str) -> Result {
    let wait_limit = PollLimit::new(format!("{} to find that {id} is gone", node.address()));
    let is_gone = || async {
        let view = ClusterNodes::of(node).await?;
        Ok(view.0.get(id).is_some_and(|entry| entry.flags.join(",").contains("noaddr")))
    };
    wait_limit.until(is_gone).await
}

/// A builder of clients whose calls fail after a few seconds.
fn patient() -> rwlease::ClientBuilder {
    Client::builder().call_timeout(Duration::from_secs(5))
}

fn refused(outcome: rwlease::Result<Client>) -> Result<rwlease::Error> {
    outcome.err().ok_or_else(|| Error::new("it connected"))
}
