//! Redlock: one lock on several independent deployments. A client holds it that holds it on most of
//! them.

pub(crate) mod guard;
pub(crate) mod request;
mod round;
mod telemetry;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::lock::locks::Locks;
use crate::lock::quorum::request::QuorumAcquire;
use crate::protocol::{Kind, Mode};

/// Several independent deployments, on most of which a lock must be held: the Redlock algorithm.
/// Each is a [`Locks`] of its own, over single servers without replicas as Redlock has them, or
/// over clusters.
///
/// ```no_run
/// # #[cfg(any(feature = "native", feature = "redis"))]
/// # async fn example() -> rwlease::Result<()> {
/// use rwlease::{Locks, Quorum};
///
/// let mut members = Vec::new();
/// for url in ["redis://a", "redis://b", "redis://c", "redis://d", "redis://e"] {
///     members.push(Locks::connect([url]).await?);
/// }
/// let quorum = Quorum::new(members)?;
/// let held = quorum.write("order:{42}").await?;
/// # Ok(()) }
/// ```
///
/// # What it does
///
/// All members are tried at the same time, each for a time far shorter than the lease. The lock is
/// held if a majority of them granted it and time is left: until the moment at which less than a
/// majority of the leases is good, each counted from before its request was sent, less the drift of
/// clocks. Otherwise it is given back everywhere, also where no answer came, and tried again after
/// a random pause. Each member's lease is renewed by itself, and the lock is held for as long as a
/// majority is. There is no queue.
///
/// # What it is good for, and what not
///
/// It goes on while a minority of the members is dead or cut off, without a failover. It is as safe
/// as the members' clocks: each must run at about the speed of this process's, and none may jump
/// ahead. A member that comes back with its locks forgotten must stay away for as long as the
/// longest lease, or a second majority can be found. And as with every lease, a process that was
/// stopped in between does not know that its lock has passed on: what protects data then is a store
/// that checks [tokens](crate::QuorumGuard::token), or data that a second writer cannot spoil. A
/// member that was missed, or is lost later, is not taken again: the lock lives on the others.
///
/// The clocks of the members should agree within seconds. A token that is more than a minute ahead
/// of a member's clock is not taken there: otherwise one member with a wrong clock would give the
/// lock a life of years on all others. Where so many refuse a read/write lock's token, or would,
/// that no majority takes it, the member that gave it is left out of that lock, as if it had not
/// answered, and the lock is given back there. The event `rwlease.clock` names it, and so does the
/// error if less than a majority is left.
///
/// Both sides of that argument: the [description of the
/// algorithm](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), and Martin
/// Kleppmann's [How to do distributed
/// locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). Where one
/// cluster is enough, its lock with [`RwLock`](crate::RwLock) has a queue, costs less, and survives
/// the loss of a master as well.
#[derive(Clone, Debug)]
pub struct Quorum {
    members: Arc<[Locks]>,
}

impl Quorum {
    /// A quorum of these members: an odd number, usually five. Two clients of one deployment are
    /// not independent, and make the quorum worthless; that is not checked.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for less than three members: with one or two, no loss
    /// is survived.
    pub fn new(members: impl IntoIterator<Item = Locks>) -> Result<Quorum> {
        let members: Arc<[Locks]> = members.into_iter().collect();
        if members.len() < 3 {
            return Err(Error::invalid("a quorum needs at least three members"));
        }
        Ok(Quorum { members })
    }

    /// How many members must grant a lock: more than half of them.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Acquires a [`Mutex`](crate::Mutex) of this name: on each member what every other Redlock
    /// client does, so that they exclude each other. It has no fencing token.
    pub fn mutex(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::Mutex, name.as_ref(), Mode::Write)
    }

    /// Acquires a read/write lock of this name, for reading.
    pub fn read(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::ReadWrite, name.as_ref(), Mode::Read)
    }

    /// Acquires a read/write lock of this name, for writing.
    pub fn write(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::ReadWrite, name.as_ref(), Mode::Write)
    }
}
