//! When a server counts as silent: not before what it has said was read.

use std::time::Duration;

use crate::clock::{Clock, Moment};

/// How often the task that reads the connection may go first.
const TURNS: usize = 4;

/// The longest that is waited on after a runtime stood still: then there can be a great deal to
/// read.
const LONGEST: Duration = Duration::from_millis(100);

/// Ends when the time is up and whatever came by then has been read.
///
/// A runtime that stands still, by work that blocks it or on a machine that is overloaded or was
/// suspended, finds its timers and the servers' answers at the same time, and may have a timer's
/// turn come first: that says nothing about the server. So the readers get a turn, and as much time
/// again as the timer was late.
///
/// To be polled after the work that it limits, each time.
pub(super) async fn time_out(clock: &dyn Clock, until: Moment) {
    clock.sleep_until(until).await;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    let now = clock.now();
    let late = now.since(until).min(LONGEST);
    if !late.is_zero() {
        clock.sleep_until(now.after(late)).await;
    }
}
