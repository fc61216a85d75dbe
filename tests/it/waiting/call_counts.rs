//! How many calls a free lock takes, and the cost of a hand-off, which does not depend on the
//! number of waiters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, PushKind, cmd};
use redis::{IntoConnectionInfo, aio::MultiplexedConnection};
use tokio::task::JoinSet;

use super::queue::{until, until_listening};
use super::{hearing, soon};
use testkit::{Cluster, ClusterConfig, Result, Server, scripts_run};

/// The commands that a server runs for each grantee, by name. Commands inside scripts count too.
type PerGrantee = BTreeMap<String, f64>;

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

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_pushes_for_each_grantee_do_not_grow_with_the_queue() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let mut all: Vec<(usize, PerGrantee)> = Vec::new();
    for waiters in [1, 10, 100, 1_000] {
        all.push((waiters, drained(&cluster, waiters).await?));
    }
    // As if each waiter had claimed, which takes four commands. The number of claims varies.
    let commands = |costs: &PerGrantee| costs["commands"] + 4.0 * (2.0 - costs["scripts"]);
    for (waiters, costs) in &all {
        println!("{waiters}: {costs:?}");
        assert_eq!(costs["pushes"], 1.0, "{waiters} waiters");
        assert_eq!(costs["spublish"], 1.0, "{waiters} waiters");
        // The grantee's own release and its claim. A quick release makes the claim unnecessary.
        assert!(costs["scripts"] <= 2.0, "{waiters} waiters: {costs:?}");
        // The queue is a linked list: a hand-off touches the two entries at its head, whatever its
        // length. (All grantees share the last release, which ends the queue.)
        let end = 12.0 / *waiters as f64;
        assert!(commands(costs) <= 1.5 * commands(&all[1].1) + end, "{all:?}");
    }
    Ok(())
}

/// Makes this many requests wait on one lock, then hands the lock from one to the next until each
/// has had it.
async fn drained(cluster: &Cluster, waiters: usize) -> Result<PerGrantee> {
    let server = cluster.node(0);
    let lock = hearing(cluster).await?.rwlock(format!("{waiters} wait"))?;
    let theirs = hearing(cluster).await?.rwlock(lock.name())?;
    let held = lock.write().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let theirs = theirs.clone();
        tasks.spawn(async move { theirs.write().await?.release().await });
    }
    until_listening(cluster, &lock, waiters).await?;
    let pushes = Pushes::listen(server).await?;

    server.reset_stats().await?;
    let _ = held.release().await?;
    while let Some(done) = soon(tasks.join_next()).await? {
        let _ = done??;
    }
    let stats = server.command_stats().await?;
    until(cluster, &lock, "nothing is left", |queue| queue.is_idle()).await?;
    let calls = |name: &str| stats.get(name).map_or(0, |stat| stat.calls);
    let inner = ["time", "hmget", "hget", "hset", "hdel", "pexpireat", "exists", "spublish"];
    let of_scripts: u64 = inner.into_iter().map(calls).sum();
    // The first release belongs to no grantee.
    let scripts = scripts_run(&stats).saturating_sub(1);
    let counts = [
        ("pushes", pushes.heard().await?),
        ("spublish", calls("spublish")),
        ("scripts", scripts),
        ("commands", of_scripts),
    ];
    Ok(counts
        .into_iter()
        .map(|(name, count)| (name.into(), count as f64 / waiters as f64))
        .collect())
}

/// Receives what every client on a server receives.
struct Pushes {
    connection: MultiplexedConnection,
    heard: Arc<AtomicU64>,
}

impl Pushes {
    async fn listen(server: &Server) -> Result<Pushes> {
        let heard = Arc::new(AtomicU64::new(0));
        let count = heard.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(
            move |push: PushInfo| -> std::result::Result<(), ()> {
                count.fetch_add(u64::from(push.kind == PushKind::SMessage), Ordering::SeqCst);
                Ok(())
            },
        );
        let info = server.url().into_connection_info()?;
        let session = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(session))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let channels: Vec<String> = server.run_words("PUBSUB SHARDCHANNELS").await?;
        for channel in channels {
            cmd("SSUBSCRIBE").arg(channel).query_async::<redis::Value>(&mut connection).await?;
        }
        Ok(Pushes { connection, heard })
    }

    /// The number of messages so far.
    async fn heard(mut self) -> Result<u64> {
        // Messages that were published before arrive before the answer.
        let _: String = cmd("PING").query_async(&mut self.connection).await?;
        Ok(self.heard.load(Ordering::SeqCst))
    }
}
