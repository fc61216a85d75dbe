pub(crate) mod guard;
pub(crate) mod lease_watcher;
pub(crate) mod request;

use std::sync::Arc;

use crate::client::ClientHandle;
use crate::client::cache::{CacheStatus, CachedLock, MIN_CACHED_LEASE};
use crate::error::{AddContext, Error, Result};
use crate::lock::cached::guard::{CachedReadGuard, CachedWriteGuard};
use crate::lock::cached::request::{CachedAcquire, TryCachedAcquire};
use crate::lock::rwlock::RwLock;

/// An [`RwLock`] whose lease stays with this client after the last guard is dropped.
///
/// While no other client wants the lock, it is granted in memory, without a message. When another
/// client wants it, the server recalls it. [`RwLock::cached`] makes it.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let config = client.rwlock("config")?.cached()?; // once, and kept
/// for _request in 0..100 {
///     let guard = config.read().await?; // from the third one on without a message
///     assert!(guard.is_held());
/// }
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// Use it for a lock that this process takes often and others seldom, such as a configuration that
/// is read on every request, or a shard that one worker owns for hours. Below some three uses a
/// second it does not pay off. `docs/caching.md` has more.
///
/// The first request is sent to the server and caches nothing. The second request within a second
/// caches the lease. A lease that is not used for a second is released. A lease that another client
/// wants is released at once if there is no guard. Otherwise it is released after the current
/// guards and after a minimum hold of 5 ms
/// ([`CacheConfig::min_hold`](crate::CacheConfig::min_hold)), during which local requests go first.
/// A lock that is recalled too soon is not cached for a while. A lock is never cached where recalls
/// cannot arrive: without sharded channels (on Redis 6.2, or without the right to use them), over a
/// cluster connection of the application, and beyond
/// [`CacheConfig::max_cached`](crate::CacheConfig::max_cached).
///
/// # What it costs others
///
/// A process that is stopped or cut off keeps others from the locks that it used in the last two
/// seconds, for at most a lease. Without the cache it would keep only those that it held. A shorter
/// [`lease`](crate::ClientBuilder::lease) shortens that time.
///
/// # Fairness
///
/// Local requests are served phase-fair: readers and writers take turns, whatever the builder sets.
/// A remote request waits at most for the current guards and the minimum hold.
///
/// # Cost
///
/// A local grant sends no message. The client makes one call a second while the lock is used, and
/// no calls while it is unused.
pub struct CachedRwLock {
    client: Arc<ClientHandle>,
    entry: Arc<CachedLock>,
}

impl CachedRwLock {
    pub(crate) fn new(lock: &RwLock) -> Result<CachedRwLock> {
        let RwLock { client, lock } = lock;
        let lease = client.settings.lease;
        Error::ensure(lease >= MIN_CACHED_LEASE, || {
            format!(
                "the lease of a cached lock must be at least {MIN_CACHED_LEASE:?}, not {lease:?}"
            )
        })
        .map_err(|error| lock.add_context(error))?;
        let entry = client.cached_lock(lock);
        entry.add_handle();
        Ok(CachedRwLock { client: client.clone(), entry })
    }

    /// Acquires the lock for reading. It waits without a limit unless
    /// [`timeout`](CachedAcquire::timeout) sets one.
    ///
    /// Acquiring it while this task holds the lock deadlocks: if it writes, always; if it reads, as
    /// soon as a writer waits.
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

    /// Acquires the lock for reading if it is available now. A lock that another client only has
    /// cached counts as available: the request waits for its recall for up to
    /// [`CacheConfig::try_wait`](crate::CacheConfig::try_wait), 50 ms by default.
    pub fn try_read(&self) -> TryCachedAcquire<'_, CachedReadGuard> {
        TryCachedAcquire::new(&self.entry)
    }

    /// Acquires the lock for writing if it is available now. A lock that another client only has
    /// cached counts as available: the request waits for its recall for up to
    /// [`CacheConfig::try_wait`](crate::CacheConfig::try_wait), 50 ms by default.
    pub fn try_write(&self) -> TryCachedAcquire<'_, CachedWriteGuard> {
        TryCachedAcquire::new(&self.entry)
    }

    /// Returns the state of the lock in this client. No round trip.
    pub fn cache_status(&self) -> CacheStatus {
        self.entry.status()
    }

    name_and_slot!("lock", entry.lock);
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

debug_fields!(|lock| CachedRwLock {
    name: lock.name(),
    slot: lock.slot(),
    local: lock.cache_status(),
    ..
});
