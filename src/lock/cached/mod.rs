//! Cached locks: granted in memory, and recalled when another client wants them.

pub(crate) mod config;
pub(crate) mod guard;
pub(crate) mod lease_watcher;
pub(crate) mod request;

use std::fmt;
use std::sync::Arc;

use crate::client::ClientHandle;
use crate::client::cache::{CachedLock, MIN_CACHED_LEASE, UncachedReason};
use crate::error::{Error, Result};
use crate::lock::cached::guard::{CachedReadGuard, CachedWriteGuard};
use crate::lock::cached::request::{CachedAcquire, TryCached};
use crate::lock::rwlock::RwLock;
use crate::protocol::LockMode;
use crate::slot::Slot;

/// An [`RwLock`] whose lease stays with this client after the last guard is dropped. While no other
/// client wants the lock, it is granted in memory, without a message. When another client wants it,
/// the server recalls it.
///
/// Use it for a lock that this process takes often and others seldom, such as a configuration that
/// is read on every request, or a shard that one worker owns for hours. Below some three uses a
/// second it does not pay off. `docs/caching.md` has more.
///
/// The first request is a plain one. The second one within a second caches the lease. A lease that
/// is not used for a second is released. So is a lease that others want: at once if there is no
/// guard, otherwise after the current guards and after 5 ms, in which local requests still go first
/// ([`Cache::min_hold`](crate::Cache::min_hold)). A lock that others recall too soon is not cached
/// for a while. A lock is never cached where recalls cannot arrive: without sharded channels (on
/// Redis 6.2, or without the right to use them), over a cluster connection of the application, and
/// beyond [`Cache::max_cached`](crate::Cache::max_cached).
///
/// # What it costs others
///
/// A process that is stopped or cut off keeps others from the locks that it used in the last two
/// seconds, for at most a lease. Without the cache it would keep only those that it held. A shorter
/// [`lease`](crate::Builder::lease) shortens that time.
///
/// # Fairness
///
/// Local requests are served in the order of the server's queue. A remote request waits at most for
/// the current guards and the minimum hold.
///
/// # Cost
///
/// A local grant sends no message. One call a second while the lock is used; none while it is not.
pub struct CachedRwLock {
    client: Arc<ClientHandle>,
    entry: Arc<CachedLock>,
}

/// The state of a cached lock in this client, as returned by [`CachedRwLock::local`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalStatus {
    /// The number of guards that read by the cached lease.
    pub readers: u64,
    /// Whether a guard writes by the cached lease.
    pub writer: bool,
    /// The number of requests of this client that wait.
    pub waiting: usize,
    /// The mode of the cached lease, or `None` if there is none.
    pub hold: Option<LockMode>,
    /// Why no lease is cached, nor will be at the next request.
    pub plain_because: Option<UncachedReason>,
}

impl RwLock {
    /// The same lock, cached by this client.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) if the client's [lease](crate::Builder::lease) is
    /// shorter than a second.
    pub fn cached(&self) -> Result<CachedRwLock> {
        if self.client.settings.lease < MIN_CACHED_LEASE {
            let lease = self.client.settings.lease;
            let message = format!(
                "the lease of cached locks must be at least {MIN_CACHED_LEASE:?}, not {lease:?}"
            );
            return Err(self.lock.add_context(Error::invalid(message)));
        }
        let entry = self.client.cached_lock(&self.lock);
        entry.add_handle();
        Ok(CachedRwLock { client: self.client.clone(), entry })
    }
}

impl CachedRwLock {
    /// The lock's name, as given.
    pub fn name(&self) -> &str {
        self.entry.name()
    }

    /// The slot of the lock's key.
    pub fn slot(&self) -> Slot {
        self.entry.slot()
    }

    /// Acquires the lock for reading. It waits without a limit unless
    /// [`timeout`](CachedAcquire::timeout) sets one.
    ///
    /// Acquiring it while this task holds the lock for writing deadlocks.
    pub fn read(&self) -> CachedAcquire<'_, CachedReadGuard> {
        CachedAcquire::new(&self.entry)
    }

    /// Acquires the lock for writing. It waits without a limit unless
    /// [`timeout`](CachedAcquire::timeout) sets one.
    ///
    /// Acquiring it while this task holds the lock, for reading or writing, deadlocks.
    pub fn write(&self) -> CachedAcquire<'_, CachedWriteGuard> {
        CachedAcquire::new(&self.entry)
    }

    /// Acquires the lock for reading if nobody is in the way. Clients that only have it cached do
    /// not count: it waits for them for up to [`Cache::try_wait`](crate::Cache::try_wait), 50 ms by
    /// default.
    pub fn try_read(&self) -> TryCached<'_, CachedReadGuard> {
        TryCached::new(&self.entry)
    }

    /// Acquires the lock for writing if nobody is in the way. Clients that only have it cached do
    /// not count: it waits for them for up to [`Cache::try_wait`](crate::Cache::try_wait), 50 ms by
    /// default.
    pub fn try_write(&self) -> TryCached<'_, CachedWriteGuard> {
        TryCached::new(&self.entry)
    }

    /// The state of the lock in this client. No round trip.
    pub fn local(&self) -> LocalStatus {
        let state = self.entry.status();
        LocalStatus {
            readers: state.readers,
            writer: state.writer,
            waiting: state.waiter_count,
            hold: state.cached_mode,
            plain_because: state.uncached_reason,
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
