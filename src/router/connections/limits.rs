//! The limits of connections, the errors that name them, and the pauses before a connection is
//! opened again.

use std::fmt;
use std::time::Duration;

use futures::future::{self, Either};
use rwlease_core::resp::Address;

use crate::backend::ConnectionError;
use crate::backoff::{Backoff, scale};
use crate::clock::Clock;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The limit for opening a connection, its first answers included.
    pub(crate) connect_timeout: Duration,
    /// How long a connection may be quiet while something is under way on it.
    pub(crate) response_timeout: Duration,
    /// The most calls under way at once.
    pub(crate) max_in_flight: usize,
}

impl ConnectionLimits {
    pub(crate) fn of_opening(&self) -> TimeLimit {
        TimeLimit { length: self.connect_timeout, setting: "connect_timeout" }
    }

    pub(crate) fn of_replies(&self) -> TimeLimit {
        TimeLimit { length: self.response_timeout, setting: "response_timeout" }
    }
}

/// A limit of time that an error names together with the setting that it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    pub(crate) length: Duration,
    /// The method of [`ClientBuilder`](crate::ClientBuilder) that sets it.
    pub(crate) setting: &'static str,
}

impl TimeLimit {
    /// Waits for `work` at a server for no longer than the limit.
    pub(crate) async fn apply<T>(
        &self,
        clock: &dyn Clock,
        address: &Address,
        work: impl Future<Output = Result<T, ConnectionError>> + Unpin,
    ) -> Result<T, ConnectionError> {
        let until = clock.now().saturating_add(self.length);
        match future::select(work, clock.sleep_until(until)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(self.no_reply(address)),
        }
    }

    /// The failure of a server that sent nothing for that long.
    pub(crate) fn no_reply(&self, address: &Address) -> ConnectionError {
        ConnectionError::not_sent(format!("{address}: no reply within {self}"))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.length, self.setting)
    }
}

/// After this many redirects in a row something is wrong: a call pauses between attempts, and a
/// subscription between joins.
pub(crate) const FREE_REDIRECTS: u32 = 3;

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
