//! Cached locks: granted in memory, called back when another client wants them.

pub(crate) mod guard;
pub(crate) mod request;
pub(crate) mod settings;
pub(crate) mod watch;

use std::fmt;
use std::sync::Arc;

use crate::client::Handle;
use crate::client::cache::{Entry, PlainBecause, SHORTEST_LEASE};
use crate::error::{Error, Result};
use crate::lock::cached::guard::{CachedReadGuard, CachedWriteGuard};
use crate::lock::cached::request::{CachedAcquire, TryCached};
use crate::lock::rwlock::RwLock;
use crate::protocol::Mode;
use crate::slot::Slot;

/// A [`RwLock`] whose lease stays with this client after the last guard is gone: while no other
/// client wants the lock, it is granted in memory, without a message. When another client wants it,
/// the server calls it back.
///
/// Use it for a lock that this process takes again and again, and others seldom: a configuration
/// that is read on every request, a shard that one worker owns for hours. Below some three uses a
/// second it does not pay.
///
/// The first request is a plain one. From the second within a second on the lease is kept. A lease
/// that was not used for a second is given back, and so is one that others ask for: at once if no
/// guard is out, else after the guards that are out, and after 5 ms in which local requests may
/// still go first ([`Cache::min_hold`](crate::Cache::min_hold)). A lock that others call back too
/// soon is plain for a while. It is always plain where recalls cannot come: without sharded
/// channels (Redis 6.2, no right to them), over a cluster connection of the application, beyond
/// [`Cache::max_cached`](crate::Cache::max_cached).
///
/// # What it costs others
///
/// A process that is stopped or cut off keeps others from what it used in the last two seconds, for
/// at most a lease; without the cache it keeps only what it held. A shorter
/// [`lease`](crate::Builder::lease) makes that shorter.
///
/// # Fairness
///
/// Local requests are served in the order of the server's queue; a remote request waits for at most
/// the guards that are out, and the minimum hold.
///
/// # Cost
///
/// A local grant is no message. While the lock is used, one call a second; none while it is not.
pub struct CachedRwLock {
    client: Arc<Handle>,
    entry: Arc<Entry>,
}

/// How a cached lock stands here, as [`CachedRwLock::local`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalStatus {
    /// Guards that read by the lease that is cached.
    pub readers: u64,
    /// Whether a guard writes by it.
    pub writer: bool,
    /// Requests of this client that wait for their turn.
    pub waiting: usize,
    /// The lease that is cached, if there is one.
    pub hold: Option<Mode>,
    /// Why there is none, and will be none by the next request.
    pub plain_because: Option<PlainBecause>,
}

impl RwLock {
    /// The same lock, cached by this client.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if the client's [lease](crate::Builder::lease) is
    /// shorter than a second.
    pub fn cached(&self) -> Result<CachedRwLock> {
        if self.client.settings.lease < SHORTEST_LEASE {
            let lease = self.client.settings.lease;
            let message = format!(
                "the lease of cached locks must be at least {SHORTEST_LEASE:?}, not {lease:?}"
            );
            return Err(self.lock.with_lock(Error::invalid(message)));
        }
        let entry = self.client.cache_entry(&self.lock);
        entry.add_handle();
        Ok(CachedRwLock { client: self.client.clone(), entry })
    }
}

impl CachedRwLock {
    /// The lock's name, as it was given.
    pub fn name(&self) -> &str {
        self.entry.name()
    }

    /// The slot of the lock's key.
    pub fn slot(&self) -> Slot {
        self.entry.slot()
    }

    /// Acquires the lock for reading, and waits for its turn: without a limit unless
    /// [`timeout`](CachedAcquire::timeout) gives one.
    ///
    /// Acquiring it while this task holds the lock for writing deadlocks.
    pub fn read(&self) -> CachedAcquire<'_, CachedReadGuard> {
        CachedAcquire::new(&self.entry)
    }

    /// Acquires the lock for writing, and waits for its turn: without a limit unless
    /// [`timeout`](CachedAcquire::timeout) gives one.
    ///
    /// Acquiring it while this task holds the lock, for reading or writing, deadlocks.
    pub fn write(&self) -> CachedAcquire<'_, CachedWriteGuard> {
        CachedAcquire::new(&self.entry)
    }

    /// Acquires the lock for reading if nobody is in the way, but for clients that have it cached:
    /// for those it waits, [50 ms](crate::Cache::try_wait) at the most.
    pub fn try_read(&self) -> TryCached<'_, CachedReadGuard> {
        TryCached::new(&self.entry)
    }

    /// Acquires the lock for writing if nobody is in the way, but for clients that have it cached:
    /// for those it waits, [50 ms](crate::Cache::try_wait) at the most.
    pub fn try_write(&self) -> TryCached<'_, CachedWriteGuard> {
        TryCached::new(&self.entry)
    }

    /// How the lock stands in this client. No round trip.
    pub fn local(&self) -> LocalStatus {
        let state = self.entry.status();
        LocalStatus {
            readers: state.readers,
            writer: state.writer,
            waiting: state.waiting,
            hold: state.hold,
            plain_because: state.plain_because,
        }
    }
}

impl Clone for CachedRwLock {
    fn clone(&self) -> Self {
        self.entry.add_handle();
        CachedRwLock { client: self.client.clone(), entry: self.entry.clone() }
    }
}

impl Drop for CachedRwLock {
    fn drop(&mut self) {
        self.entry.drop_handle();
    }
}

impl fmt::Debug for CachedRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedRwLock")
            .field("name", &self.name())
            .field("slot", &self.slot())
            .field("local", &self.local())
            .finish_non_exhaustive()
    }
}
