//! Leader election: one of many candidates leads while its lease is valid.

pub(crate) mod leader_guard;
pub(crate) mod leader_watcher;

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::CLIENT_ID_LEN;

use crate::client::ClientHandle;
use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::election::leader_guard::LeaderGuard;
use crate::lock::election::leader_watcher::LeaderWatcher;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;
use crate::lock::status::LockStatus;

/// An election that all clients of the cluster share by its name. At most one candidate leads.
///
/// Each leadership has a *term*, a number that only increases: the fencing token of its lease. The
/// leader passes the term to every store that it changes. The store must refuse a term lower than
/// the greatest it has seen.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let scheduler = client.election("scheduler")?;
/// let lead = scheduler.campaign().await?; // waits for its turn
/// println!("term {}", lead.term());
/// let leader = scheduler.leader().await?.expect("somebody leads");
/// assert_eq!(leader.term, lead.term());
/// let _ = lead.resign().await?; // the next candidate leads at once
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// An election is the write side of the [`RwLock`] with the same name. [`lock`](Self::lock) returns
/// that lock, for its queue and to remove a leader. `docs/leader-election.md` has more, including
/// how to publish the leader's address.
///
/// # Fairness
///
/// Candidates lead in the order in which they came, as writers of the lock.
#[derive(Clone, Debug)]
pub struct Election {
    lock: RwLock,
}

/// The current leader.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaderInfo {
    /// The [`Lease::id`](crate::Lease::id) of the leadership, new with each one.
    pub id: String,
    /// The term.
    pub term: FencingToken,
    /// The time for which it has led, by the server's clock.
    pub held_for: Duration,
    /// The time left of its lease, by the server's clock. A live leader renews it.
    pub lease_remaining: Duration,
}

impl LeaderInfo {
    /// Returns the [`Client::client_id`](crate::Client::client_id) of the leader's client.
    pub fn client_id(&self) -> &str {
        self.id.get(..CLIENT_ID_LEN).unwrap_or(&self.id)
    }

    /// The leader of this lock, if the server knows one.
    fn of(status: LockStatus) -> Option<LeaderInfo> {
        let writer = status.writer?;
        Some(LeaderInfo {
            id: writer.id,
            term: writer.fencing_token,
            held_for: writer.held_for,
            lease_remaining: writer.lease_remaining,
        })
    }
}

impl Election {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Result<Self> {
        Ok(Election { lock: RwLock::new(client, name)? })
    }

    /// Stands for election and waits until this candidate leads, without a limit unless
    /// [`timeout`](Acquire::timeout) sets one. A leader that dies leads until its
    /// [`lease`](Acquire::lease) ends. [`max_hold`](Acquire::max_hold) limits the term.
    ///
    /// With [`run_while_held`](Acquire::run_while_held) the candidate leads while a closure runs.
    /// The closure is cancelled when the leadership is lost.
    pub fn campaign(&self) -> Acquire<'_, LeaderGuard> {
        Acquire::new(&self.lock.client, &self.lock.lock, None)
    }

    /// Becomes leader if there is no leader and no other candidate waits.
    pub fn try_campaign(&self) -> TryAcquire<'_, LeaderGuard> {
        TryAcquire(self.campaign())
    }

    /// Returns the current leader. The answer may be outdated when it arrives: what makes a
    /// leader's actions safe is its term. One round trip. The [`status`](RwLock::status) of the
    /// [`lock`](Self::lock) also says who the leader's client is.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`RwLock::status`].
    pub async fn leader(&self) -> Result<Option<LeaderInfo>> {
        Ok(LeaderInfo::of(self.status().await?))
    }

    /// Watches who leads. Nothing is sent before it is read.
    pub fn observe(&self) -> LeaderWatcher {
        LeaderWatcher::new(self.clone())
    }

    /// Returns the lock that the leader holds for writing, for its [`status`](RwLock::status), and
    /// to [`revoke`](RwLock::revoke) the leadership or take it by force.
    pub fn lock(&self) -> &RwLock {
        &self.lock
    }

    /// Returns the election's name, as given.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    async fn status(&self) -> Result<LockStatus> {
        self.lock.status().page_size(1).clients(false).await
    }
}
