//! Cached locks: a lease stays with the client after the last local guard is gone, and the client
//! grants the lock from it in memory until another client wants the lock.
//!
//! A [`CachedLock`] is one lock of this client. It has at most one
//! [`CachedLease`](cached_lease::CachedLease) with an open gate, and a queue of local requests. Its
//! task (`lease_task`) acquires leases, sends keep-alives, and releases leases.

mod atomic_gate;
pub(crate) mod cache_config;
mod cache_policy;
mod cached_lease;
mod cached_lock;
mod cached_lock_map;
mod gate;
#[cfg(all(test, rwlease_loom))]
mod interleavings;
mod lease_task;
mod local_queue;
pub(crate) mod stale_recall;
pub(crate) mod telemetry;
#[cfg(all(test, feature = "embedded", not(rwlease_loom)))]
mod tests;

use std::fmt;
use std::time::Duration;

use rwlease_core::protocol::LockMode;

pub(crate) use cached_lease::LeaseShare;
pub(crate) use cached_lock::{CachedGrant, CachedLock, LocalAcquire};
pub(crate) use cached_lock_map::CachedLockMap;
pub(crate) use local_queue::{LocalWait, LocalWaitOutcome};

/// The longest time between keep-alives, which limits the effect of a lost recall.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after the last keep-alive was sent the lock is still granted locally: less than a usual
/// promotion takes.
const LOCAL_GRANT_WINDOW: Duration = Duration::from_secs(3);

/// The shortest lease of a cached lock. With a shorter one, keep-alives would be too frequent for a
/// round trip.
pub(crate) const MIN_CACHED_LEASE: Duration = Duration::from_secs(1);

/// The state of a cached lock in this client, as returned by
/// [`CachedRwLock::cache_status`](crate::CachedRwLock::cache_status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatus {
    /// The number of guards that read by the cached lease.
    pub readers: u64,
    /// Whether a guard writes by the cached lease.
    pub writer: bool,
    /// The number of requests of this client that wait.
    pub waiting: usize,
    /// The mode of the cached lease, or `None` if there is none.
    pub hold: Option<LockMode>,
    /// Why no lease is cached, and the next request does not cache one.
    pub uncached_reason: Option<UncachedReason>,
}

/// Why a lock is not cached at the moment. The client sends each request for the lock to the
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncachedReason {
    /// It was not used in the last second.
    NotReused,
    /// Others recalled it too soon, and it is not cached again for a while.
    RecalledEarly,
    /// The client has no subscription for recalls.
    NotSubscribed,
    /// The maximum number of locks is cached.
    CacheFull,
}

impl UncachedReason {
    /// The label in metrics.
    fn label(self) -> &'static str {
        match self {
            UncachedReason::NotReused => "not_reused",
            UncachedReason::RecalledEarly => "recalled_early",
            UncachedReason::NotSubscribed => "not_subscribed",
            UncachedReason::CacheFull => "cache_full",
        }
    }
}

impl fmt::Display for UncachedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UncachedReason::NotReused => "it was not used in the last second",
            UncachedReason::RecalledEarly => "others recalled it too soon",
            UncachedReason::NotSubscribed => {
                "there is no subscription by which the server could recall it"
            }
            UncachedReason::CacheFull => "the maximum number of locks is cached",
        })
    }
}

/// The times of a lease, derived from its lease.
#[derive(Clone, Copy, Debug)]
struct CacheTimes {
    keepalive_interval: Duration,
    local_grant_window: Duration,
}

impl CacheTimes {
    fn from_lease(lease: Duration) -> CacheTimes {
        CacheTimes {
            keepalive_interval: KEEPALIVE_INTERVAL.min(lease / 6),
            local_grant_window: LOCAL_GRANT_WINDOW.min(lease / 2),
        }
    }
}
