//! When a server counts as silent: only after everything that it sent has been read.

use std::time::Duration;

use rwlease_core::time::LocalInstant;

use crate::clock::Clock;

/// How often the task that reads the connection gets to run first.
const READER_YIELDS: usize = 4;

/// The longest extra wait after the runtime stood still: there may be much to read then.
const MAX_EXTRA_WAIT: Duration = Duration::from_millis(100);

/// Resolves when the time is up and what arrived by then has been read.
///
/// After a runtime stood still, its timers and the replies of servers are ready at the same time. A
/// timer that runs first is no evidence against the server. So the readers get to run, and get as
/// much extra time as the timer was late.
///
/// Poll it after the work that it limits, each time.
pub(crate) async fn reply_timeout(clock: &dyn Clock, until: LocalInstant) {
    clock.sleep_until(until).await;
    for _ in 0..READER_YIELDS {
        tokio::task::yield_now().await;
    }
    let now = clock.now();
    let late = now.saturating_duration_since(until).min(MAX_EXTRA_WAIT);
    if !late.is_zero() {
        clock.sleep_until(now.saturating_add(late)).await;
    }
}
