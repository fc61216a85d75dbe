//! The seam to local time. Only this file may read it from the operating system (clippy enforces
//! that).
//!
//! Leases must also run down while the machine is suspended, which [`std::time::Instant`] does not
//! guarantee. So the system clock here is `CLOCK_BOOTTIME` where that exists.

#[cfg(feature = "embedded")]
mod manual;

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

#[cfg(feature = "embedded")]
pub(crate) use manual::ManualClock;

/// A local moment: nanoseconds since an arbitrary origin that is fixed for one [`Clock`], for up to
/// 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    pub(crate) const fn from_origin(since: Duration) -> Self {
        Moment(nanos(since))
    }

    #[cfg(any(test, feature = "embedded"))]
    pub(crate) const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    pub(crate) const fn micros_since_origin(self) -> u64 {
        self.0 / 1_000
    }

    /// The time from `earlier` to this moment, zero if `earlier` is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn after(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(wait)))
    }

    pub(crate) fn before(self, margin: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(margin)))
    }
}

/// The time in nanoseconds, limited to what fits.
const fn nanos(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(time.subsec_nanos() as u64)
}

/// Local time and sleep. One clock serves a whole client.
pub(crate) trait Clock: Debug + Send + Sync + 'static {
    fn now(&self) -> Moment;

    /// Resolves when `now()` has reached `until`, or a little later.
    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

/// A sleep of tokio stands still while the machine is suspended. So a long sleep is cut into
/// pieces, and local time is checked between them: then it ends soon after the machine wakes.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = time.tv_sec.unsigned_abs();
        Moment(seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs()))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        Moment::from_origin(ORIGIN.elapsed())
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = until.since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_clock_runs_and_sleeps() {
        let start = SystemClock.now();
        let until = start.after(Duration::from_millis(5));
        SystemClock.sleep_until(until).await;
        assert!(SystemClock.now() >= until);
        SystemClock.sleep_until(start).await;
    }
}
