//! Redlock: one lock on several independent deployments, held by a client that a majority granted
//! it.

pub(crate) mod guard;
mod member_leases;
pub(crate) mod request;
mod round;
mod telemetry;
mod watch;

use std::sync::Arc;

use rwlease_core::protocol::{LockKind, LockMode};

use crate::error::{Error, Result};
use crate::lock::client::Client;
use crate::lock::redlock::request::RedlockAcquire;

/// A lock over several independent deployments, held if a majority grants it: the Redlock
/// algorithm.
///
/// Each member is a [`Client`] of its own, over a single server without replicas as in
/// Redlock, or over a cluster.
///
/// ```no_run
/// # #[cfg(feature = "native")]
/// # async fn example() -> rwlease::Result<()> {
/// use rwlease::{Client, Redlock};
///
/// let mut members = Vec::new();
/// for url in ["redis://a", "redis://b", "redis://c", "redis://d", "redis://e"] {
///     members.push(Client::connect([url]).await?);
/// }
/// let quorum = Redlock::new(members)?;
/// let held = quorum.write("order:{42}").await?;
/// # Ok(()) }
/// ```
///
/// # How it works
///
/// All members are tried at the same time, each with a timeout far shorter than the lease. The lock
/// is held if a majority granted it and some time is left. Each lease counts from before its
/// request was sent, and the lock ends when less than a majority of the leases is valid, less the
/// drift of clocks. Without a majority, the lock is released on all members, including members that
/// did not reply, and tried again after a random pause. Each lease is renewed independently, and
/// the lock is held while a majority of the leases is held. There is no queue.
///
/// # What it can and cannot do
///
/// It stays available while a minority of the members is dead or cut off, without a failover. While
/// a majority holds the lock, the guard reacquires the lock at members that did not grant it or
/// have lost it, such as a restarted member. It tries several times in a lease, if the client
/// renews the leases, and in each [`renew`](crate::RedlockGuard::renew). So members may be
/// restarted one after the other without the loss of a held lock. The guard never reacquires the
/// lock at a member that revoked its lease, or that has a wrong clock.
///
/// A loss is final: after the loss of the majority, the guard reacquires no member. The client
/// releases the members that are left when the [drift](crate::request::RedlockAcquire::drift) has
/// passed, also while the guard lives, so that other clients can have a majority. The
/// [listener](crate::ClientBuilder::on_lease_lost) of the first member's client is told of the
/// loss. It is not told of a member that has lost its lease, because the lock is held without that
/// member.
///
/// It is as safe as the members' clocks: each must run at about the speed of this process's clock,
/// and none may jump ahead. A member that restarts without its data must stay away for the longest
/// lease. Otherwise a second client can get a majority. As with every lease, a process that was
/// stopped does not know that it lost the lock. Then only a store that checks
/// [tokens](crate::RedlockGuard::fencing_token) protects the data, unless a second writer cannot
/// harm it.
///
/// The clocks of the members should agree within seconds. A member refuses a token that is more
/// than a minute ahead of its clock. Otherwise one member with a wrong clock would give the lock's
/// key a life of years on all others. If no majority accepts the token of a read/write lock, the
/// member that issued the token is left out of that lock, as if it had not replied, and the lock is
/// released there. The event `rwlease.clock` names that member. If less than a majority is left,
/// the error names it, too.
///
/// For both sides of the debate, see the [description of the
/// algorithm](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/) and Martin
/// Kleppmann's [How to do distributed
/// locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). If one
/// cluster is enough, use its [`RwLock`](crate::RwLock): it has a queue, costs less, and also
/// survives the loss of a master.
#[derive(Clone, Debug)]
pub struct Redlock {
    members: Arc<[Client]>,
}

impl Redlock {
    /// Makes a quorum of these members: an odd number, usually five. Two clients of one deployment
    /// are not independent, and make the quorum worthless. This is not checked.
    ///
    /// The settings of the first member apply to the locks of all: the lease, `min_replicas` and
    /// `fsync`, `call_timeout`, `on_lease_lost`. The quorum needs the runtime on which the first
    /// member was connected.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for less than three members, which would
    /// survive no loss.
    pub fn new(members: impl IntoIterator<Item = Client>) -> Result<Redlock> {
        let members: Arc<[Client]> = members.into_iter().collect();
        Error::ensure(members.len() >= 3, || "a quorum needs at least three members")?;
        Ok(Redlock { members })
    }

    /// Acquires a [`SetNxMutex`](crate::SetNxMutex) with this name. It is compatible with other
    /// Redlock clients, and has no fencing token.
    pub fn set_nx_mutex(&self, name: impl AsRef<str>) -> RedlockAcquire {
        RedlockAcquire::new(self, LockKind::SetNxMutex, name.as_ref(), LockMode::Write)
    }

    /// Acquires the read/write lock with this name, for reading.
    pub fn read(&self, name: impl AsRef<str>) -> RedlockAcquire {
        RedlockAcquire::new(self, LockKind::ReadWrite, name.as_ref(), LockMode::Read)
    }

    /// Acquires the read/write lock with this name, for writing.
    pub fn write(&self, name: impl AsRef<str>) -> RedlockAcquire {
        RedlockAcquire::new(self, LockKind::ReadWrite, name.as_ref(), LockMode::Write)
    }

    /// Returns the number of members that must grant a lock: more than half of them.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }
}
