//! Cached locks: a lease stays with the client after the last local guard is gone, and the client
//! grants the lock from it in memory until another client wants the lock.
//!
//! An [`Entry`] is one lock of this client. It has at most one [`Hold`] with an open gate, and a
//! queue of local requests. Its keeper is a task that acquires holds, keeps them in contact with
//! the server, and releases them.

mod atomic;
mod entries;
mod entry;
mod gate;
mod hold;
#[cfg(all(test, rwlease_loom))]
mod interleavings;
mod keeper;
mod losing;
mod policy;
mod queue;
pub(crate) mod stray;
pub(crate) mod telemetry;
#[cfg(all(test, feature = "embedded", not(rwlease_loom)))]
mod tests;
mod word;

use std::fmt;
use std::time::Duration;

pub(crate) use entries::Entries;
pub(crate) use entry::{Begun, Entry, Granted, Place};
pub(crate) use hold::Share;
pub(crate) use queue::Turn;

/// The longest time between contacts, which limits the effect of a lost recall.
const CONTACT: Duration = Duration::from_secs(1);

/// How long after a contact was sent the lock is still granted locally: less than a usual promotion
/// takes.
const FRESH: Duration = Duration::from_secs(3);

/// The shortest lease of a cached lock. With a shorter one, contacts would be too frequent for a
/// round trip.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Why a lock is not cached at the moment. Each request for it then goes to the server by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlainBecause {
    /// It was not used in the last second.
    Unused,
    /// Others recalled it too soon, and it is not cached again for a while.
    CalledBack,
    /// The client has no subscription by which the lock could be recalled.
    Unsubscribed,
    /// The maximum number of locks is cached.
    Limit,
}

impl PlainBecause {
    /// Its name in metrics.
    fn word(self) -> &'static str {
        match self {
            PlainBecause::Unused => "unused",
            PlainBecause::CalledBack => "called_back",
            PlainBecause::Unsubscribed => "unsubscribed",
            PlainBecause::Limit => "limit",
        }
    }
}

impl fmt::Display for PlainBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlainBecause::Unused => "it was not used in the last second",
            PlainBecause::CalledBack => "others called it back too soon",
            PlainBecause::Unsubscribed => {
                "there is no subscription by which it could be called back"
            }
            PlainBecause::Limit => "as many locks are cached as may be",
        })
    }
}

/// The times of a hold, derived from its lease.
#[derive(Clone, Copy, Debug)]
struct Times {
    contact: Duration,
    fresh: Duration,
}

impl Times {
    fn of(lease: Duration) -> Times {
        Times { contact: CONTACT.min(lease / 6), fresh: FRESH.min(lease / 2) }
    }
}
