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
fn clock_suspend_is_longer_is_true_once() {
    let known = AtomicU64::new(0);
    let reported = [0, 5, 60_000, 60_001, 60_019, 60_030, 60_030, 0].map(Duration::from_millis);
    let news = reported.map(|suspended| is_longer(&known, suspended));
    assert_eq!(news, [false, false, true, false, false, true, false, false]);
}

/// Where it is not known how long the machine was suspended.
#[test]
fn clock_notification_is_due_once_in_a_short_sleep() {
    let last = AtomicU64::new(0);
    let at = |ms| LocalInstant::from_duration(Duration::from_millis(ms));
    let due = [0, 999, 1_000, 1_000, 1_999, 2_001, 60_000, 60_999, 61_000].map(at);
    let due = due.map(|now| is_notification_due(&last, now));
    assert_eq!(due, [false, false, true, false, false, true, true, false, true]);
}

#[test]
fn lease_time_rounded_down_is_a_multiple_of_the_period() {
    let at = |ms| LocalInstant::from_duration(Duration::from_millis(ms));
    assert_eq!(at(59).rounded_down(Duration::from_millis(20)), at(40));
    assert_eq!(at(60).rounded_down(Duration::from_millis(20)), at(60));
    assert_eq!(at(59).rounded_down(Duration::ZERO), at(59));
}
