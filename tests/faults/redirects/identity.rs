//! Servers of another cluster at known addresses, two histories of one cluster, and nodes with an
//! old or empty slot map.

use std::error::Error as _;
use std::fs;
use std::time::Duration;

use redis::cmd;
use rwlease::{ErrorKind, Locks, Slot};

use super::bus::Bus;
use super::masters::on_each_master;
use super::{LONG, client, key, raw};
use crate::support::{
    Cluster, ClusterConfig, ClusterNodes, ConnectBuilder, Error, PollLimit, Result, Server,
    StandaloneServer, connect,
};

const SLOTS: u16 = 16_384;

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_that_comes_back_without_cluster_mode_is_given_no_lock() -> Result {
    let cluster = Cluster::start_with(healthy_shards_serve(ClusterConfig::of(3, 0))).await?;
    let names = on_each_master(&cluster, "seed", 2).await?;
    let locks = patient_for(2).connect_to(&cluster.urls()).await?;
    for name in names.concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }
    let sick = cluster.node(2);
    sick.kill()?;
    without_cluster_mode(sick)?;
    sick.restart().await?;
    is_left_alone(sick, &locks, &names[2][0], "without cluster mode").await?;
    // Nor does the client look there for the slots of the others.
    for name in names[..2].concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }
    is_empty(sick).await?;
    // It is a seed of new clients, and the first one that they query.
    let newcomer = patient_for(2).connect_to(&[sick.url(), cluster.node(0).url()]).await?;
    let _ = newcomer.rwlock(&names[0][0])?.write().await?.release().await?;
    is_left_alone(sick, &newcomer, &names[2][0], "without cluster mode").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_without_a_cluster_are_an_error() -> Result {
    let (one, other) = (StandaloneServer::start().await?, StandaloneServer::start().await?);
    for urls in [[one.url(), other.url()], [other.url(), one.url()]] {
        let error = refused(connect(&urls).await)?;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains("without cluster mode"), "{error}");
    }
    // One of them is stopped: the client does not take the other one for all of the deployment.
    for (still, urls) in [
        (&one, [one.url(), other.url()]),
        (&one, [other.url(), one.url()]),
        (&other, [one.url(), other.url()]),
    ] {
        still.freeze()?;
        let error = refused(connect(&urls).await)?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        still.thaw()?;
    }
    // One server may have two names.
    let local = format!("redis://localhost:{}", one.port());
    let locks = connect(&[one.url(), local]).await?;
    let _ = locks.rwlock("one")?.write().await?.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_another_cluster_at_a_known_address_is_given_no_lock() -> Result {
    let cluster = Cluster::start_with(healthy_shards_serve(ClusterConfig::of(3, 0))).await?;
    let names = on_each_master(&cluster, "foreign", 2).await?;
    let locks = patient_for(2).connect_to(&cluster.urls()).await?;
    for name in names.concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }
    // Another node takes over the address. It has all slots of its own cluster.
    let sick = cluster.node(2);
    sick.kill()?;
    fs::remove_file(sick.folder().join("nodes.conf"))?;
    sick.restart().await?;
    sick.run::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg((0..SLOTS).collect::<Vec<_>>())).await?;
    serves(sick).await?;
    is_left_alone(sick, &locks, &names[2][0], "another cluster").await?;
    for name in names[..2].concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }
    is_empty(sick).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_takeover_nobody_locks_at_the_old_master_of_a_partition() -> Result {
    let shape = ClusterConfig { node_timeout: 60_000, ..ClusterConfig::of(3, 1) };
    let (bus, cluster) = Bus::cluster(shape).await?;
    let names = on_each_master(&cluster, "history", 3).await?;
    let (old, lock) = (1, &names[1]);
    let slot = Slot::of(key(&lock[0])).get();
    let replica = cluster.replicas_of(old).await?[0];
    bus.cut_off(cluster.id(old));
    cluster.node(replica).run_words::<()>("CLUSTER FAILOVER TAKEOVER").await?;
    let wait_limit = PollLimit::new("all others to know the new master");
    for number in (0..6).filter(|&number| number != old) {
        while ClusterNodes::of(cluster.node(number)).await?.master_of(slot)
            != Some(cluster.id(replica))
        {
            wait_limit.pause(number).await?;
        }
    }
    // Each side serves, and claims the slot.
    for number in [old, replica] {
        serves(cluster.node(number)).await?;
        let view = ClusterNodes::of(cluster.node(number)).await?;
        assert_eq!(view.master_of(slot), Some(cluster.id(number)));
    }

    // The result does not depend on the node that a client queries first.
    let at_old = connect(&[cluster.node(old).url()]).await?;
    let at_new = connect(&[cluster.node(0).url()]).await?;
    for name in lock {
        let held = at_old.rwlock(name)?.write().lease(LONG).await?;
        assert!(at_new.rwlock(name)?.try_write().await?.is_none(), "{name} is held twice");
        let _ = held.release().await?;
    }
    is_empty(cluster.node(old)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lags_misleads_nobody() -> Result {
    let shape = ClusterConfig { node_timeout: 60_000, ..ClusterConfig::of(3, 0) };
    let (bus, cluster) = Bus::cluster(shape).await?;
    let names = on_each_master(&cluster, "lagging", 1).await?;
    let slot = Slot::of(key(&names[0][0])).get();
    bus.cut_off(cluster.id(2));
    for number in [1, 0] {
        let assign = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(1));
        cluster.node(number).run_words::<()>(&assign).await?;
    }
    assert_eq!(
        ClusterNodes::of(cluster.node(2)).await?.master_of(slot),
        Some(cluster.id(0)),
        "it lags"
    );
    raw::reset_errors(&cluster).await?;
    for _ in 0..10 {
        let locks = connect(&[cluster.node(2).url()]).await?;
        let _ = locks.rwlock(&names[0][0])?.write().await?.release().await?;
    }
    assert_eq!(raw::errors(&cluster, "MOVED").await?, 0, "it was believed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_node_takes_nothing_over() -> Result {
    let mut cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let names = on_each_master(&cluster, "fresh", 2).await?.concat();
    let settings = crate::support::ServerSettings { cluster: true, ..Default::default() };
    let fresh = cluster.add(settings.line("cluster-require-full-coverage no")).await?;
    let slots: Vec<u16> = names.iter().step_by(2).map(|name| Slot::of(key(name)).get()).collect();
    let fresh = cluster.node(fresh);
    let seeds = [fresh.url(), cluster.node(0).url()];
    let locks = connect(&seeds).await?;
    // It has no slots yet. As soon as it serves some, it is a cluster of its own.
    fresh.run::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(slots)).await?;
    serves(fresh).await?;
    for name in &names {
        let _ =
            locks.rwlock(name)?.write().timeout(Duration::from_secs(5)).await?.release().await?;
    }
    let error = refused(connect(&seeds).await)?;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    is_empty(fresh).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_may_start_again() -> Result {
    let server = StandaloneServer::start().await?;
    for host in ["127.0.0.1", "localhost"] {
        let locks = connect(&[format!("redis://{host}:{}", server.port())]).await?;
        let _ = locks.rwlock("again")?.write().await?.release().await?;
        server.restart().await?;
        let _ = locks.rwlock("again")?.write().await?.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_known_is_known_again() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let names = on_each_master(&cluster, "again", 1).await?.concat();
    let locks = client(&cluster).await?;
    for number in 0..3 {
        // The same node in a new process.
        cluster.node(number).restart().await?;
        cluster.wait_for_agreement().await?;
        for name in &names {
            let _ = locks.rwlock(name)?.write().await?.release().await?;
        }
    }
    Ok(())
}

/// A builder of clients whose calls fail after this many seconds.
fn patient_for(seconds: u64) -> rwlease::Builder {
    Locks::builder().call_timeout(Duration::from_secs(seconds))
}

fn healthy_shards_serve(shape: ClusterConfig) -> ClusterConfig {
    shape.line("cluster-require-full-coverage no")
}

/// Changes the configuration, so that the server's next start is without cluster mode.
fn without_cluster_mode(server: &Server) -> Result {
    let file = server.folder().join("server.conf");
    let lines = fs::read_to_string(&file)?;
    let kept: Vec<&str> = lines.lines().filter(|line| !line.starts_with("cluster-")).collect();
    Ok(fs::write(file, kept.join("\n") + "\n")?)
}

/// Waits until a node reports that it serves.
async fn serves(server: &Server) -> Result {
    let wait_limit = PollLimit::new(format!("{} to serve", server.address()));
    loop {
        let said: String = server.run_words("CLUSTER INFO").await?;
        if said.contains("cluster_state:ok") {
            return Ok(());
        }
        wait_limit.pause(said).await?;
    }
}

/// Checks that a try for its lock fails for this reason, and that the server has no key.
async fn is_left_alone(server: &Server, locks: &Locks, name: &str, why: &str) -> Result {
    let outcome = locks.rwlock(name)?.try_write().await;
    let error = outcome.err().ok_or_else(|| Error::new(format!("{name} was granted")))?;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        said = format!("{said}: {inner}");
        source = inner.source();
    }
    assert!(said.contains(why), "{said}");
    is_empty(server).await
}

async fn is_empty(server: &Server) -> Result {
    let keys: Vec<String> = server.run_words("KEYS *").await?;
    assert!(keys.is_empty(), "{keys:?} at {}", server.address());
    Ok(())
}

fn refused(outcome: rwlease::Result<Locks>) -> Result<rwlease::Error> {
    outcome.err().ok_or_else(|| Error::new("it connected"))
}
