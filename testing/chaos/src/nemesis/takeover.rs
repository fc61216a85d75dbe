//! One of the two shards between which a slot moves gets another master, in the middle of the move.

use super::ensure;
use crate::ledger::Change;
use crate::process;
use crate::scenario::Scene;
use testkit::{FailoverMode, PollLimit, Result};

/// The shard whose replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Target,
}

/// What makes the replica take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `CLUSTER FAILOVER`, in agreement with the master.
    Order,
    /// `kill -9` of the master.
    Kill,
}

impl Side {
    pub fn random(scene: &mut Scene) -> Side {
        if scene.random.bool() { Side::Source } else { Side::Target }
    }

    pub fn of<T>(self, from: T, to: T) -> T {
        match self {
            Side::Source => from,
            Side::Target => to,
        }
    }
}

/// A takeover that is prepared, and then carried out at a chosen moment.
#[derive(Clone, Copy, Debug)]
pub struct Takeover {
    pub old: usize,
    pub new: usize,
    epoch: u64,
    cause: Cause,
}

impl Takeover {
    /// Finds the replica, waits until it can be promoted, and announces the change.
    pub async fn prepare(scene: &mut Scene, old: usize, cause: Cause) -> Result<Takeover> {
        let new = scene.heir(old).await?;
        let epoch = scene.epoch(old).await?;
        if cause == Cause::Order {
            scene.cluster.forget_election(new).await?;
        }
        Ok(Takeover { old, new, epoch, cause })
    }

    /// Announces the takeover. It is carried out next.
    pub fn announce(self, scene: &mut Scene) {
        scene.order(Change::TakesOver { from: self.old, to: self.new });
        if self.cause == Cause::Kill {
            scene.order(Change::Restarts(self.old));
        }
    }

    /// Makes the replica take over, and waits until all masters that run say so.
    pub async fn strike(self, scene: &Scene) -> Result {
        let cluster = &scene.cluster;
        let node = cluster.node(self.old);
        match self.cause {
            Cause::Order => cluster.promote(self.new, FailoverMode::Orderly).await?,
            Cause::Kill => {
                let process = node.id();
                node.kill()?;
                let gone = process.is_some_and(|id| process::state(id).is_none());
                ensure(gone, || format!("process {process:?} is there"))?;
            }
        }
        let wait_limit = PollLimit::new(format!("all to know that node {} took over", self.new));
        for number in cluster.running() {
            while !self.is_known_at(scene, number).await.unwrap_or(false) {
                wait_limit.pause(format!("node {number} does not")).await?;
            }
        }
        Ok(())
    }

    /// Starts a killed master again, as a replica of the new one, and waits until it is in step. By
    /// itself it may stay a master without slots, or follow the node that has got its last slot.
    pub async fn clean_up(self, scene: &Scene) -> Result {
        if self.cause == Cause::Order {
            return Ok(());
        }
        let cluster = &scene.cluster;
        cluster.node(self.old).restart().await?;
        let follow = format!("CLUSTER REPLICATE {}", cluster.id(self.new));
        let limit = PollLimit::new(format!("node {} to follow node {}", self.old, self.new));
        loop {
            let view = testkit::ClusterNodes::of(cluster.node(self.old)).await?;
            let own = view.0.get(cluster.id(self.old));
            match own {
                Some(own) if own.master.as_deref() == Some(cluster.id(self.new)) => {
                    let link = cluster.node(self.old).info("replication").await?;
                    let is_up = link.get("master_link_status").is_some_and(|link| link == "up");
                    // A master can count a replica that still loads what it was sent.
                    if is_up && cluster.node(self.new).replicas_in_step().await? > 0 {
                        return Ok(());
                    }
                }
                // It does not know yet that its slots have another master.
                Some(own) if own.is_master() && !own.slots.is_empty() => {}
                _ => {
                    // It follows nobody while it has keys, which are of no slot of its own. A node
                    // that has become a replica meanwhile refuses.
                    let _ = cluster.node(self.old).run_words::<()>("FLUSHALL").await;
                    let _ = cluster.node(self.old).run_words::<()>(&follow).await;
                }
            }
            limit.pause(format!("{own:?}")).await?;
        }
    }

    /// Reads back that it has happened, in words.
    pub async fn proof(self, scene: &Scene) -> Result<String> {
        let after = scene.epoch(self.new).await?;
        let is_so = scene.cluster.is_master(self.new).await?
            && !scene.cluster.is_master(self.old).await?
            && after > self.epoch;
        ensure(is_so, || format!("node {} is at epoch {after}", self.new))?;
        Ok(format!(
            "node {} took over from {}, epoch {} to {after}",
            self.new, self.old, self.epoch
        ))
    }

    /// Whether a node sees the new master, at a new epoch, and no old one.
    async fn is_known_at(self, scene: &Scene, number: usize) -> Result<bool> {
        let view = testkit::ClusterNodes::of(scene.cluster.node(number)).await?;
        let entry = |node: usize| view.0.get(scene.cluster.id(node));
        let has_taken_over = entry(self.new)
            .is_some_and(|new| new.is_master() && !new.slots.is_empty() && new.epoch > self.epoch);
        let is_alone = match self.cause {
            Cause::Order => entry(self.old).is_some_and(|old| !old.is_master()),
            Cause::Kill => true, // nobody hears of it until it comes back
        };
        Ok(has_taken_over && is_alone)
    }
}
