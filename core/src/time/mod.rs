//! Time: moments of the local clock, and bounds of a server's clock. Both come from the caller.

mod clock_bounds;

use std::time::Duration;

pub use clock_bounds::ClockBounds;

/// A local moment: nanoseconds since an arbitrary origin that is fixed for one `Clock`, for up to
/// 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalInstant(u64);

impl LocalInstant {
    pub const fn from_duration(since: Duration) -> Self {
        LocalInstant(nanos(since))
    }

    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    pub const fn from_nanos(nanos: u64) -> Self {
        LocalInstant(nanos)
    }

    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The time from `earlier` to this moment, zero if `earlier` is not earlier.
    pub fn saturating_duration_since(self, earlier: LocalInstant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub fn saturating_add(self, wait: Duration) -> LocalInstant {
        LocalInstant(self.0.saturating_add(nanos(wait)))
    }

    /// The latest multiple of a period, counted from the origin, that is not later.
    pub fn rounded_down(self, period: Duration) -> LocalInstant {
        LocalInstant(self.0 - self.0.checked_rem(nanos(period)).unwrap_or(0))
    }

    pub fn saturating_sub(self, margin: Duration) -> LocalInstant {
        LocalInstant(self.0.saturating_sub(nanos(margin)))
    }
}

/// The time in nanoseconds, limited to what fits.
const fn nanos(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(time.subsec_nanos() as u64)
}
