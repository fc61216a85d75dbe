//! When a server counts as silent: only after everything that it sent has been read.

use std::time::Duration;

use crate::clock::{Clock, Moment};

/// How often the task that reads the connection gets to run first.
const TURNS: usize = 4;

/// The longest extra wait after the runtime stood still: there may be much to read then.
const LONGEST: Duration = Duration::from_millis(100);

/// Resolves when the time is up and what arrived by then has been read.
///
/// A runtime stands still if work blocks it, or if its machine is overloaded or suspended.
/// Afterwards its timers and the servers' answers are ready at the same time, and the timer may run
/// first, which says nothing about the server. So the readers get to run, and get as much extra
/// time as the timer was late.
///
/// Poll it after the work that it limits, each time.
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
