//! How long to wait before a connection is opened again.

use std::time::Duration;

use crate::backoff::{Backoff, scale};

/// How long a server is left alone after a failed dial, and a channel after a failed join.
pub(crate) const DIAL_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The longest pause before a connection that broke under a call is opened again. A server or a
/// proxy that restarts cuts the connections of all clients at once, and should not get all their
/// dials at once.
const FIRST_REDIAL: Duration = Duration::from_millis(100);

/// The pause before a subscription that ended, or failed that many times in a row, is opened again.
pub(crate) fn redial_pause(failures: u32) -> Duration {
    match failures {
        0 => first_redial(),
        failures => DIAL_BACKOFF.delay(failures),
    }
}

/// The pause before a connection that broke is opened again for the first time.
pub(crate) fn first_redial() -> Duration {
    scale(FIRST_REDIAL, fastrand::f64())
}
