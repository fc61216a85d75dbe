//! Failovers: ordered ones, and those after a death.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{Cluster, ClusterNodes, Error, PollLimit, Result};

/// How a replica is told to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverMode {
    /// In agreement with its master: no acknowledged write is lost.
    Orderly,
    /// Without the master's consent, but with the votes of the other masters.
    Force,
    /// Without anybody's consent.
    Takeover,
}

/// A server gives up a manual failover after five seconds.
const FAILOVER_RETRY: Duration = Duration::from_secs(6);

/// The least time for which an election counts, however short the node timeout.
const MIN_ELECTION_MEMORY: Duration = Duration::from_secs(4);
/// How precisely servers know when it began.
const ELECTION_CLOCK_SLACK: Duration = Duration::from_millis(500);

impl Cluster {
    /// Promotes a replica, and waits until all nodes agree. Before that, waits until the replica's
    /// last election is forgotten.
    pub async fn fail_over(&self, replica: usize, how: FailoverMode) -> Result {
        self.promote(replica, how).await?;
        self.wait_for_agreement().await
    }

    /// The same, but waits for no other node. While a slot moves, nodes do not agree.
    pub async fn promote(&self, replica: usize, how: FailoverMode) -> Result {
        if how != FailoverMode::Takeover {
            self.forget_election(replica).await?;
        }
        let wait_limit = PollLimit::new(format!("node {replica} to become a master"));
        let mut ordered: Option<Instant> = None;
        while !self.is_master(replica).await? {
            if ordered.is_none_or(|at| at.elapsed() > FAILOVER_RETRY) {
                match self.node(replica).run_words::<()>(how.command()).await {
                    // The replica connects to its master again.
                    Err(error) if error.to_string().contains("Master is down or failed") => {}
                    order => {
                        order?;
                        ordered = Some(Instant::now());
                    }
                }
            }
            wait_limit.pause("it is still a replica").await?;
        }
        self.elections().insert(replica, Instant::now());
        Ok(())
    }

    /// Waits until a replica that was promoted by order can be promoted again.
    ///
    /// For twice the node timeout after an election, Redis counts its votes for the same replica
    /// again: the replica becomes a master without a vote, at an old epoch, and accepts writes that
    /// are lost when it learns of the newer epoch (<https://github.com/redis/redis/pull/8753>). For
    /// as long again it starts no new election while its master is paused
    /// (<https://github.com/valkey-io/valkey/pull/1274>).
    pub async fn forget_election(&self, replica: usize) -> Result {
        if let Some(last) = self.last_election(replica) {
            let (_, node_timeout): (String, u64) =
                self.node(replica).run_words("CONFIG GET cluster-node-timeout").await?;
            let forgotten = Duration::from_millis(4 * node_timeout).max(MIN_ELECTION_MEMORY);
            sleep_until(last + forgotten + ELECTION_CLOCK_SLACK).await;
        }
        Ok(())
    }

    /// When it was last promoted by order.
    pub fn last_election(&self, replica: usize) -> Option<Instant> {
        self.elections().get(&replica).copied()
    }

    /// Waits until another node than `old`, which was killed or frozen, has the slot and all
    /// running nodes agree. Returns its number.
    pub async fn new_master(&self, slot: u16, old: usize) -> Result<usize> {
        let wait_limit = PollLimit::new(format!("a new master of slot {slot}"));
        wait_limit.until_ok(|| self.check_is_no_master(old, slot)).await?;
        self.wait_for_agreement().await?;
        self.master_of(slot).await
    }

    /// Whether the node reports that it is a master.
    pub async fn is_master(&self, number: usize) -> Result<bool> {
        let view = ClusterNodes::of(self.node(number)).await?;
        Ok(view.0.get(self.id(number)).is_some_and(|entry| entry.is_master()))
    }

    /// Fails if any node takes this one for the master of the slot.
    async fn check_is_no_master(&self, number: usize, slot: u16) -> Result {
        for running in self.running() {
            if ClusterNodes::of(self.node(running)).await?.master_of(slot) == Some(self.id(number))
            {
                return Err(Error::new(format!("node {number} still has it")));
            }
        }
        Ok(())
    }
}

impl FailoverMode {
    fn command(self) -> &'static str {
        match self {
            FailoverMode::Orderly => "CLUSTER FAILOVER",
            FailoverMode::Force => "CLUSTER FAILOVER FORCE",
            FailoverMode::Takeover => "CLUSTER FAILOVER TAKEOVER",
        }
    }
}
