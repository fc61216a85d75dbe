//! The seam to local time. Only this file may read it from the operating system (clippy enforces
//! that).
//!
//! Leases must also run down while the machine is suspended, which [`std::time::Instant`] does not
//! guarantee. So the system clock here is `CLOCK_BOOTTIME` where that exists.

#[cfg(feature = "embedded")]
mod manual;

use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, select};
use tokio::sync::Notify;

#[cfg(feature = "embedded")]
pub(crate) use manual::ManualClock;

/// A local moment: nanoseconds since an arbitrary origin that is fixed for one [`Clock`], for up to
/// 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalInstant(u64);

impl LocalInstant {
    pub(crate) const fn from_duration(since: Duration) -> Self {
        LocalInstant(nanos(since))
    }

    #[cfg(any(test, feature = "embedded"))]
    pub(crate) const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        LocalInstant(nanos)
    }

    pub(crate) const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The time from `earlier` to this moment, zero if `earlier` is not earlier.
    pub(crate) fn saturating_duration_since(self, earlier: LocalInstant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn saturating_add(self, wait: Duration) -> LocalInstant {
        LocalInstant(self.0.saturating_add(nanos(wait)))
    }

    /// The latest multiple of a period, counted from the origin, that is not later.
    pub(crate) fn rounded_down(self, period: Duration) -> LocalInstant {
        LocalInstant(self.0 - self.0.checked_rem(nanos(period)).unwrap_or(0))
    }

    pub(crate) fn saturating_sub(self, margin: Duration) -> LocalInstant {
        LocalInstant(self.0.saturating_sub(nanos(margin)))
    }
}

/// The time in nanoseconds, limited to what fits.
const fn nanos(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(time.subsec_nanos() as u64)
}

/// Local time and sleep. One clock serves a whole client.
pub(crate) trait Clock: Debug + Send + Sync + 'static {
    fn now(&self) -> LocalInstant;

    /// Resolves when `now()` has reached `until`, or a little later.
    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()>;

    /// As `sleep_until`, for a task that wakes now and then for the others: see [`SystemClock`].
    fn watch_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        self.sleep_until(until)
    }
}

/// The machine's own clock.
///
/// A sleep of tokio stands still while the machine is suspended. So whoever watches
/// ([`watch_until`](Clock::watch_until)) wakes once a second, and after a suspend all others, which
/// then see how much is left. The workers of the clients watch. A short sleep needs nobody.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

/// The longest sleep that nobody else has to end after a suspend, and the period of who watches.
const SHORT_SLEEP: Duration = Duration::from_secs(1);

/// Wakes all long sleeps of the process.
static RESUMED: Notify = Notify::const_new();

impl Clock for SystemClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> LocalInstant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = time.tv_sec.unsigned_abs();
        LocalInstant(
            seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs()),
        )
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> LocalInstant {
        static ORIGIN: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        LocalInstant::from_origin(ORIGIN.elapsed())
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let resumed = RESUMED.notified();
                let left = until.saturating_duration_since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                let sleep = tokio::time::sleep(left);
                if left <= SHORT_SLEEP {
                    sleep.await;
                } else {
                    select(pin!(sleep), pin!(resumed)).await;
                }
            }
        })
    }

    #[allow(clippy::disallowed_methods)]
    fn watch_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                wake_after_suspend();
                let left = until.saturating_duration_since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(SHORT_SLEEP)).await;
            }
        })
    }
}

/// Wakes the long sleeps of the process if the machine may have been suspended since the last call.
fn wake_after_suspend() {
    static SUSPENDED_MS: AtomicU64 = AtomicU64::new(0);
    if suspended().is_none_or(|suspended| is_longer(&SUSPENDED_MS, suspended)) {
        RESUMED.notify_waiters();
    }
}

/// Notes how long the machine was suspended in total. Returns true if that is news. (The two clocks
/// are not read at the same time.)
fn is_longer(known_ms: &AtomicU64, suspended: Duration) -> bool {
    const INEXACT_MS: u64 = 20;
    let suspended_ms = suspended.as_millis() as u64;
    let news = |known| (suspended_ms > known + INEXACT_MS).then_some(suspended_ms);
    known_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, news).is_ok()
}

/// How long the machine was suspended in total: what the clock of tokio's timers does not count.
/// `None` if it is not known.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn suspended() -> Option<Duration> {
    // In this order a stop between the two readings makes the result too low, never too high: a
    // later suspend must not seem to be known already.
    let all = Duration::from_nanos(SystemClock.now().0);
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let awake = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32);
    Some(all.saturating_sub(awake))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn suspended() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Whether a task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn the_system_clock_runs_and_sleeps() {
        let start = SystemClock.now();
        let until = start.saturating_add(Duration::from_millis(5));
        SystemClock.sleep_until(until).await;
        assert!(SystemClock.now() >= until);
        SystemClock.sleep_until(start).await;
        SystemClock.watch_until(SystemClock.now().saturating_add(Duration::from_millis(5))).await;
    }

    #[tokio::test]
    async fn sleep_until_is_polled_again_after_a_suspend() {
        let hour = SystemClock.now().saturating_add(Duration::from_secs(3600));
        let mut sleep = SystemClock.sleep_until(hour);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        for _ in 0..3 {
            assert!(sleep.as_mut().poll(&mut context).is_pending(), "its time has not come");
            RESUMED.notify_waiters();
            assert!(woken.0.swap(false, Ordering::Relaxed));
        }
    }

    #[test]
    fn is_longer_of_each_suspend_is_true_once() {
        let known = AtomicU64::new(0);
        let told = [0, 5, 60_000, 60_001, 60_019, 60_030, 60_030, 0].map(Duration::from_millis);
        let news = told.map(|suspended| is_longer(&known, suspended));
        assert_eq!(news, [false, false, true, false, false, true, false, false]);
    }

    #[test]
    fn rounded_down_is_a_multiple_of_the_period() {
        let at = |ms| LocalInstant::from_duration(Duration::from_millis(ms));
        assert_eq!(at(59).rounded_down(Duration::from_millis(20)), at(40));
        assert_eq!(at(60).rounded_down(Duration::from_millis(20)), at(60));
        assert_eq!(at(59).rounded_down(Duration::ZERO), at(59));
    }
}
