//! Masters that die, stop, return, or report a wrong map.

use std::error::Error as _;
use std::time::Duration;

use rwlease::{ErrorKind, Locks, Slot};
use tokio::time::Instant;

use super::book::{Book, Overlaps};
use super::load::Load;
use super::{PATIENCE, client, key, raw, settings};
use crate::support::{Cluster, ClusterConfig, ConnectBuilder, Error, PollLimit, Result};

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_killed_stops_nobody_for_good() -> Result {
    // With the servers' default settings, the healthy shards do not serve for a while either, after
    // the death is noticed.
    let cluster = Cluster::start().await?;
    let mut shards = Shards::start(&cluster).await?;
    raw::reset_errors(&cluster).await?;
    cluster.node(shards.sick).kill()?;
    shards.outlive(&cluster).await?;
    assert!(raw::errors(&cluster, "CLUSTERDOWN").await? > 0, "there was nothing to wait out");
    cluster.node(shards.sick).restart().await?;
    shards.finish(&cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_stopped_delays_only_its_own_shard() -> Result {
    let cluster =
        Cluster::start_with(ClusterConfig::default().line("cluster-require-full-coverage no"))
            .await?;
    let mut shards = Shards::start(&cluster).await?;
    cluster.node(shards.sick).freeze()?;
    let meanwhile = shards.outlive(&cluster).await?;
    assert!(meanwhile >= 200, "{meanwhile} rounds while the shard had no master");
    // It resumes as if no time had passed. It handles the commands that were sent to it, and acts
    // as a master until it hears from the others.
    cluster.node(shards.sick).thaw()?;
    shards.advance(200).await?;
    shards.finish(&cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_masters_that_name_each_other_end_in_an_error() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let brief = Duration::from_secs(3);
    let locks = settings().call_timeout(2 * brief).connect_to(&cluster.urls()).await?;
    let lock = locks.rwlock("odd")?;
    let master = cluster.master_of(lock.slot().get()).await?;
    let other = (master + 1) % 3;
    let assign =
        |to: usize| format!("CLUSTER SETSLOT {} NODE {}", lock.slot().get(), cluster.id(to));

    // From here on no node claims the slot, so no node corrects the maps.
    cluster.node(master).run_words::<()>(&assign(other)).await?;
    for (at, named) in [(master, other), (other, master)] {
        let said = cluster.node(at).run_words::<()>(&format!("GET {}", key("odd"))).await;
        let said = said.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains(&cluster.node(named).address()), "{at} says {said}");
    }
    for _ in 0..2 {
        let began = Instant::now();
        let outcome = lock.write().timeout(brief).await;
        let error = outcome.err().ok_or_else(|| Error::new("it was granted"))?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(error.lock(), Some("odd"));
        assert!(error.to_string().contains("redirects"), "{error}");
        assert!(error.source().is_none(), "{error:?}");
        assert!(began.elapsed() >= brief, "they might have agreed until then");
        let error = lock.try_read().await.err().ok_or_else(|| Error::new("it was granted"))?;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
    // The other slots of both masters still work.
    for name in on_each_master(&cluster, "well", 2).await?.concat() {
        let _ = locks.rwlock(name)?.write().await?.release().await?;
    }
    // A request that waits is granted as soon as they agree.
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().timeout(PATIENCE).await }
    });
    tokio::time::sleep(2 * brief).await;
    assert!(!waiting.is_finished(), "it waits for them");
    for number in [master, other] {
        cluster.node(number).run_words::<()>(&assign(master)).await?;
    }
    let _ = waiting.await??.release().await?;
    Ok(())
}

/// A load on every shard. The first shard will lose its master.
struct Shards {
    sick: usize,
    names: Vec<String>,
    loads: Vec<Load>,
    _clients: Vec<Locks>,
}

impl Shards {
    async fn start(cluster: &Cluster) -> Result<Shards> {
        let clients = vec![client(cluster).await?, client(cluster).await?];
        let shards = on_each_master(cluster, "shard", 3).await?;
        let book = Book::new(Overlaps::InFailovers);
        let mut loads = Vec::new();
        for names in &shards {
            let mut load = Load::start(&clients, 2, names, &book, None);
            load.advance(20).await?;
            loads.push(load);
        }
        Ok(Shards { sick: 0, names: shards.concat(), loads, _clients: clients })
    }

    /// Runs the load from the fault until long after the promotion. Returns the number of rounds of
    /// the healthy shards before the promotion.
    async fn outlive(&mut self, cluster: &Cluster) -> Result<u64> {
        let slot = Slot::of(key(&self.names[0])).get();
        let before = self.healthy();
        let mut meanwhile = before;
        let wait_limit = PollLimit::new("a replica to be promoted");
        while cluster.master_of(slot).await? == self.sick {
            meanwhile = self.healthy();
            for load in &mut self.loads {
                load.check()?;
            }
            wait_limit.pause("the old master still has the slot").await?;
        }
        self.advance(100).await?;
        cluster.new_master(slot, self.sick).await?;
        self.advance(100).await?;
        Ok(meanwhile - before)
    }

    async fn advance(&mut self, rounds: u64) -> Result {
        for load in &mut self.loads {
            load.advance(rounds).await?;
        }
        Ok(())
    }

    fn healthy(&self) -> u64 {
        self.loads[1..].iter().map(Load::rounds).sum()
    }

    async fn finish(mut self, cluster: &Cluster) -> Result {
        cluster.wait_for_agreement().await?;
        self.advance(50).await?;
        for load in self.loads {
            load.finish().await?;
        }
        raw::vacant(cluster, &self.names).await
    }
}

/// `count` names of locks for each of the first three nodes, in slots that the node serves.
pub async fn on_each_master(
    cluster: &Cluster,
    prefix: &str,
    count: usize,
) -> Result<Vec<Vec<String>>> {
    let view = cluster.view().await?;
    let mut names = vec![Vec::new(); 3];
    let mut numbers = 0..;
    while names.iter().any(|of_it| of_it.len() < count) {
        let name = format!("{prefix}:{}", numbers.next().unwrap_or(0));
        let master = view.master_of(Slot::of(key(&name)).get());
        if let Some(at) = (0..3).find(|&node| master == Some(cluster.id(node)))
            && names[at].len() < count
        {
            names[at].push(name);
        }
    }
    Ok(names)
}
