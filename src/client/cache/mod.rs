//! Cached locks: a lease that stays with the client after the last local guard is gone, and out of
//! which the client grants the lock in memory until another client wants it.
//!
//! An [`Entry`] is one lock of this client; it has at most one [`Hold`] whose gate is open, and a
//! queue of local requests. Its keeper is a task that acquires holds, keeps them in contact with
//! the server, and gives them back.

mod entries;
mod entry;
mod hold;
mod keeper;
mod losing;
mod policy;
mod queue;
pub(crate) mod stray;
pub(crate) mod telemetry;
#[cfg(all(test, feature = "embedded"))]
mod tests;
mod word;

use std::fmt;
use std::time::Duration;

pub(crate) use entries::Entries;
pub(crate) use entry::{Begun, Entry, Granted, Place};
pub(crate) use hold::Share;
pub(crate) use queue::Turn;

/// How long a hold goes without a contact, at the most: what bounds a lost recall.
const CONTACT: Duration = Duration::from_secs(1);

/// How long after a contact was sent the lock is still granted here: less than a usual promotion
/// takes.
const FRESH: Duration = Duration::from_secs(3);

/// The shortest lease of a cached lock. Below, a contact is too near to a round trip.
pub(crate) const SHORTEST_LEASE: Duration = Duration::from_secs(1);

/// Why a lock is not cached at the moment: each request for it goes to the server by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlainBecause {
    /// It was not used in the last second.
    Unused,
    /// Others called it back too soon, and it is not cached again for a while.
    CalledBack,
    /// The client has no subscription by which it could be called back.
    Unsubscribed,
    /// As many locks are cached as may be.
    Limit,
}

impl PlainBecause {
    /// As metrics name it.
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

/// The times of holds with a lease of this length.
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
