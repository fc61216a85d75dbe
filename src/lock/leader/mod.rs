//! Leader election: one of many candidates leads, for as long as its lease is good.

pub(crate) mod leadership;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use crate::client::Handle;
use crate::error::Result;
use crate::lock::leader::leadership::Leadership;
use crate::lock::leader::watch::LeaderWatch;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;
use crate::lock::status::Status;
use crate::protocol::CLIENT;

/// An election that all clients of the cluster share by its name: at most one of its candidates
/// leads.
///
/// Each lead has a *term*, a number that only rises: the fencing token of a lease. The leader hands
/// it to whatever it changes, and that refuses a lower term than the greatest it has seen.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let locks = rwlease::Locks::embedded().await?;
/// let scheduler = locks.leader("scheduler")?;
/// let lead = scheduler.campaign().await?; // waits for its turn
/// println!("term {}", lead.term());
/// let leader = scheduler.current().await?.expect("somebody leads");
/// assert_eq!(leader.term, lead.term());
/// lead.resign().await?; // the next candidate leads at once
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// It is the write side of the [`RwLock`] of that name: [`lock`](Self::lock) has its queue, and
/// takes the lead from a leader that must go. `docs/leading.md` has more, also on what an address
/// of the leader is to be found by.
///
/// # Fairness
///
/// First come, first served, as the lock is.
#[derive(Clone, Debug)]
pub struct Leader {
    lock: RwLock,
}

/// Who leads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CurrentLeader {
    /// [`Lease::id`](crate::Lease::id) of the lead, new with each.
    pub id: String,
    /// The term.
    pub term: u64,
    /// How long it has led, by the server's clock.
    pub age: Duration,
    /// What is left of its lease, by the server's clock. A leader that lives renews it.
    pub remaining: Duration,
}

impl CurrentLeader {
    /// The [`Locks::client_id`](crate::Locks::client_id) of the leader's client.
    pub fn client_id(&self) -> &str {
        self.id.get(..CLIENT).unwrap_or(&self.id)
    }

    /// The leader of this lock, as far as the server knows one.
    fn of(status: Status) -> Option<CurrentLeader> {
        let writer = status.writer?;
        Some(CurrentLeader {
            id: writer.id,
            term: writer.token,
            age: writer.age,
            remaining: writer.remaining,
        })
    }
}

impl Leader {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Result<Self> {
        Ok(Leader { lock: RwLock::new(client, name)? })
    }

    /// The election's name, as it was given.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Stands for election, and waits until this candidate leads: without a limit unless
    /// [`timeout`](Acquire::timeout) gives one. The [`lease`](Acquire::lease) is how long a leader
    /// that died is still taken for one, and [`max_hold`](Acquire::max_hold) the longest term.
    ///
    /// With [`run`](Acquire::run) it leads while a closure runs, and the closure is cancelled when
    /// the lead is lost.
    pub fn campaign(&self) -> Acquire<'_, Leadership> {
        Acquire::new(&self.lock.client, &self.lock.lock, None)
    }

    /// Takes the lead if nobody has it, or waits for it.
    pub fn try_campaign(&self) -> TryAcquire<'_, Leadership> {
        TryAcquire(self.campaign())
    }

    /// Queries who leads. By the time the answer is here it may be wrong: what a leader does is
    /// safe by its term, not by this. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`RwLock::status`].
    pub async fn current(&self) -> Result<Option<CurrentLeader>> {
        Ok(CurrentLeader::of(self.status().await?))
    }

    /// Watches who leads. Nothing is sent before it is read.
    pub fn watch(&self) -> LeaderWatch {
        LeaderWatch::new(self.clone())
    }

    /// The lock that the leader holds for writing: for its [`status`](RwLock::status), and to
    /// [`revoke`](RwLock::revoke) a lead or take it by force.
    pub fn lock(&self) -> &RwLock {
        &self.lock
    }

    async fn status(&self) -> Result<Status> {
        self.lock.status().page_size(1).await
    }
}
