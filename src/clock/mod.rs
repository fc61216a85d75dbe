//! The seam to local time. Only this file may read it from the operating system (clippy enforces
//! that).
//!
//! Leases must also run down while the machine is suspended, which [`std::time::Instant`] does not
//! guarantee. So the system clock here is `CLOCK_BOOTTIME` where that exists.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, select};
use rwlease_core::time::LocalInstant;
#[cfg(feature = "embedded")]
use rwlease_embedded::manual_clock::ManualClock;
use tokio::sync::Notify;

/// Local time and sleep. One clock serves a whole client.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> LocalInstant;

    /// Resolves when `now()` has reached `until`, or a little later.
    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()>;

    /// As `sleep_until`, for a task that wakes now and then for the others: see `SystemClock`.
    fn watch_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        self.sleep_until(until)
    }
}

/// The machine's own clock.
///
/// A sleep of tokio stands still while the machine is suspended. So the tasks in
/// [`watch_until`](Clock::watch_until) wake once a second. After a suspend they wake all other
/// sleepers, which then compute the time left. The workers of the clients watch. A short sleep
/// needs nobody.
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
        LocalInstant::from_nanos(
            seconds.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.unsigned_abs()),
        )
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> LocalInstant {
        static ORIGIN: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        LocalInstant::from_duration(ORIGIN.elapsed())
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

#[cfg(feature = "embedded")]
impl Clock for ManualClock {
    fn now(&self) -> LocalInstant {
        self.now()
    }

    fn sleep_until(&self, until: LocalInstant) -> BoxFuture<'static, ()> {
        self.sleep_until(until)
    }
}

/// Wakes the long sleeps of the process if the machine may have been suspended since the last call.
fn wake_after_suspend() {
    static SUSPENDED_MS: AtomicU64 = AtomicU64::new(0);
    static NOTIFIED_NANOS: AtomicU64 = AtomicU64::new(0);
    let must_notify = match suspended() {
        Some(suspended) => is_longer(&SUSPENDED_MS, suspended),
        None => is_notification_due(&NOTIFIED_NANOS, SystemClock.now()),
    };
    if must_notify {
        RESUMED.notify_waiters();
    }
}

/// Notes the moment of a notification. Returns false within a short sleep after the last one: the
/// tasks that watch do so at each of their turns, and a notification wakes every long sleep.
fn is_notification_due(last_nanos: &AtomicU64, now: LocalInstant) -> bool {
    let is_due = |last| {
        let due = LocalInstant::from_nanos(last).saturating_add(SHORT_SLEEP);
        (now >= due).then_some(now.as_nanos())
    };
    last_nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok()
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
    let all = Duration::from_nanos(SystemClock.now().as_nanos());
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let awake = Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32);
    Some(all.saturating_sub(awake))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn suspended() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests;
