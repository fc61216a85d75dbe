//! Leader election: one of many candidates leads while its lease is valid.

pub(crate) mod leadership;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use crate::client::ClientHandle;
use crate::error::Result;
use crate::lock::leader::leadership::Leadership;
use crate::lock::leader::watch::LeaderWatch;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;
use crate::lock::status::Status;
use crate::protocol::CLIENT_ID_LEN;

/// An election that all clients of the cluster share by its name. At most one candidate leads.
///
/// Each leadership has a *term*, a number that only increases: the fencing token of its lease. The
/// leader passes the term to every store that it changes. The store must refuse a term lower than
/// the greatest it has seen.
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
/// An election is the write side of the [`RwLock`] with the same name. [`lock`](Self::lock) returns
/// that lock, for its queue and to remove a leader. `docs/leading.md` has more, including how to
/// publish the leader's address.
///
/// # Fairness
///
/// Candidates lead in the order in which they came, as writers of the lock.
#[derive(Clone, Debug)]
pub struct Leader {
    lock: RwLock,
}

/// The current leader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CurrentLeader {
    /// The [`Lease::id`](crate::Lease::id) of the leadership, new with each one.
    pub id: String,
    /// The term.
    pub term: u64,
    /// The time for which it has led, by the server's clock.
    pub age: Duration,
    /// The time left of its lease, by the server's clock. A live leader renews it.
    pub remaining: Duration,
}

impl CurrentLeader {
    /// The [`Locks::client_id`](crate::Locks::client_id) of the leader's client.
    pub fn client_id(&self) -> &str {
        self.id.get(..CLIENT_ID_LEN).unwrap_or(&self.id)
    }

    /// The leader of this lock, if the server knows one.
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
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Result<Self> {
        Ok(Leader { lock: RwLock::new(client, name)? })
    }

    /// The election's name, as given.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Stands for election and waits until this candidate leads, without a limit unless
    /// [`timeout`](Acquire::timeout) sets one. A leader that dies leads until its
    /// [`lease`](Acquire::lease) ends. [`max_hold`](Acquire::max_hold) limits the term.
    ///
    /// With [`run`](Acquire::run) the candidate leads while a closure runs. The closure is
    /// cancelled when the leadership is lost.
    pub fn campaign(&self) -> Acquire<'_, Leadership> {
        Acquire::new(&self.lock.client, &self.lock.lock, None)
    }

    /// Takes the leadership if nobody leads and nobody waits for it.
    pub fn try_campaign(&self) -> TryAcquire<'_, Leadership> {
        TryAcquire(self.campaign())
    }

    /// Returns the current leader. The answer may be outdated when it arrives: what makes a
    /// leader's actions safe is its term. One round trip.
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

    /// The lock that the leader holds for writing, for its [`status`](RwLock::status), and to
    /// [`revoke`](RwLock::revoke) the leadership or take it by force.
    pub fn lock(&self) -> &RwLock {
        &self.lock
    }

    async fn status(&self) -> Result<Status> {
        self.lock.status().page_size(1).await
    }
}
