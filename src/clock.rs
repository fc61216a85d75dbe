//! The seam to local time. Only this file may ask the operating system for it (clippy enforces that).
//!
//! Leases must also run down while the machine is suspended, which [`std::time::Instant`] does not promise:
//! the system clock here is `CLOCK_BOOTTIME` where there is one.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

/// A local moment: time since an arbitrary origin that is fixed for one [`Clock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) const fn from_origin(since: Duration) -> Self {
        Moment(since)
    }

    pub(crate) const fn since_origin(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment, zero if `earlier` is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn after(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_add(wait))
    }

    pub(crate) fn before(self, margin: Duration) -> Moment {
        Moment(self.0.saturating_sub(margin))
    }
}

/// Local time and sleep. One clock serves a whole client.
pub(crate) trait Clock: Debug + Send + Sync + 'static {
    fn now(&self) -> Moment;

    /// Ends when `now()` has reached `until`, and may end a little later.
    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()>;
}
