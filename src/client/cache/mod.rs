//! Cached locks: a lease stays with the client after the last local guard is gone, and the client
//! grants the lock from it in memory until another client wants the lock.
//!
//! A [`CachedLock`] is one lock of this client. It has at most one
//! [`CachedLease`](hold::CachedLease) with an open gate, and a queue of local requests. Its task
//! (`lease_task`) acquires leases, keeps them in contact with the server, and releases them.

mod atomic;
mod atomic_gate;
mod cache_policy;
mod cached_lease;
mod cached_lock_map;
mod entry;
mod gate;
mod hold;
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

pub(crate) use cached_lock_map::CachedLockMap;
pub(crate) use entry::{CachedGrant, CachedLock, LocalAcquire, LocalWait};
pub(crate) use hold::LeaseShare;
pub(crate) use local_queue::LocalWaitOutcome;

/// The longest time between contacts, which limits the effect of a lost recall.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a contact was sent the lock is still granted locally: less than a usual promotion
/// takes.
const LOCAL_GRANT_WINDOW: Duration = Duration::from_secs(3);

/// The shortest lease of a cached lock. With a shorter one, contacts would be too frequent for a
/// round trip.
pub(crate) const MIN_CACHED_LEASE: Duration = Duration::from_secs(1);

/// Why a lock is not cached at the moment. Each request for it then goes to the server by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UncachedReason {
    /// It was not used in the last second.
    NotReused,
    /// Others recalled it too soon, and it is not cached again for a while.
    RecalledEarly,
    /// The client has no subscription by which the lock could be recalled.
    NotSubscribed,
    /// The maximum number of locks is cached.
    CacheFull,
}

impl UncachedReason {
    /// Its name in metrics.
    fn label(self) -> &'static str {
        match self {
            UncachedReason::NotReused => "unused",
            UncachedReason::RecalledEarly => "called_back",
            UncachedReason::NotSubscribed => "unsubscribed",
            UncachedReason::CacheFull => "limit",
        }
    }
}

impl fmt::Display for UncachedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UncachedReason::NotReused => "it was not used in the last second",
            UncachedReason::RecalledEarly => "others called it back too soon",
            UncachedReason::NotSubscribed => {
                "there is no subscription by which it could be called back"
            }
            UncachedReason::CacheFull => "as many locks are cached as may be",
        })
    }
}

/// The times of a hold, derived from its lease.
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
