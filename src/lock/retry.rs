use std::time::Duration;

use rwlease_core::acquisition::config::MIN_BLAMED_SILENCE;
use rwlease_core::time::LocalInstant;

use crate::backoff::{Backoff, DEFAULT_JITTER, scale};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_millis(1);

/// How a request tries again for a lock that does not report when it is free: the pauses between
/// tries, and the limits.
///
/// ```
/// use std::time::Duration;
/// use rwlease::RetryPolicy;
///
/// let steady = RetryPolicy::fixed(Duration::from_millis(100)).max_attempts(20);
/// let patient = RetryPolicy::exponential(Duration::from_millis(10), Duration::from_secs(1))
///     .timeout(Duration::from_secs(30));
/// # let _ = (steady, patient);
/// ```
///
/// Retries are not fair and not fast. The first client that tries after a release wins, and during
/// each pause the lock may be free and unused. An [`RwLock`](crate::RwLock) has a queue instead,
/// and tries again only if [`Acquire::retry_policy`](crate::Acquire::retry_policy) is set.
///
/// Default: pauses from 25 ms, doubled up to 500 ms, half of each random, without a limit.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct RetryPolicy {
    pauses: Backoff,
    jitter: f64,
    tries: Option<u32>,
    pub(super) timeout: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy::exponential(FIRST, LONGEST)
    }
}

impl RetryPolicy {
    /// Returns a policy that pauses for `interval`, at least 1 ms, after each try.
    pub fn fixed(interval: Duration) -> Self {
        RetryPolicy::exponential(interval, interval)
    }

    /// Returns a policy that pauses for `first` at first, at least 1 ms, and doubles the pause up
    /// to `longest`.
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        let first = first.max(SHORTEST);
        let pauses = Backoff::new(first, longest.max(first));
        RetryPolicy { pauses, jitter: DEFAULT_JITTER, tries: None, timeout: None }
    }

    /// Sets the fraction of each pause that is random, from 0 to 1, so that clients do not retry in
    /// step. Default: 0.5, so each pause is between half and all of its length.
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = if part.is_nan() { DEFAULT_JITTER } else { part.clamp(0.0, 1.0) };
        self
    }

    /// Sets the maximum number of tries, including the first, at least one. Default: no limit.
    ///
    /// After that the request fails with [`AttemptsExhausted`](ErrorKind::AttemptsExhausted).
    pub fn max_attempts(mut self, most: u32) -> Self {
        self.tries = Some(most.max(1));
        self
    }

    /// Sets the longest time for all tries and pauses. Default: no limit.
    ///
    /// After that the request fails with [`TimedOut`](ErrorKind::TimedOut). A request with a limit
    /// of zero fails with [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Begins to try, within the caller's timeout as well.
    pub(crate) fn begin(&self, now: LocalInstant, timeout: Option<Duration>) -> Tries<'_> {
        let timeout = match (self.timeout, timeout) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Tries { retry: self, made: 0, until: timeout.map(|timeout| now.saturating_add(timeout)) }
    }

    /// The pause after `made` tries; `random` is from 0 to 1.
    fn pause(&self, made: u32, random: f64) -> Duration {
        scale(self.pauses.without_jitter(made.saturating_sub(1)), 1.0 - self.jitter * random)
    }
}

/// A series of tries.
#[derive(Debug)]
pub(crate) struct Tries<'a> {
    retry: &'a RetryPolicy,
    made: u32,
    until: Option<LocalInstant>,
}

impl Tries<'_> {
    /// The deadline for the answer to a try that may take until `by`.
    pub(crate) fn answer_by(&self, by: LocalInstant) -> LocalInstant {
        self.until.map_or(by, |until| until.min(by))
    }

    /// Sleeps until the next try is due. Fails if there is none.
    pub(crate) async fn pause(&mut self, clock: &dyn Clock) -> Result<()> {
        self.made = self.made.saturating_add(1);
        if self.retry.tries.is_some_and(|most| self.made >= most) {
            let message = format!("others held the lock at each of {} tries", self.made);
            return Err(Error::new(ErrorKind::AttemptsExhausted, message));
        }
        let due = clock.now().saturating_add(self.retry.pause(self.made, fastrand::f64()));
        clock.sleep_until(self.until.map_or(due, |until| until.min(due))).await;
        match self.until {
            Some(until) if clock.now() >= until => Err(self.out_of_time()),
            _ => Ok(()),
        }
    }

    /// Returns true if a try has no reply only because the time limit passed soon after its start.
    /// The previous try got a reply, so the server is not to blame.
    pub(crate) fn was_cut_short(&self, began: LocalInstant, now: LocalInstant) -> bool {
        self.made > 0 && was_cut_short(self.until, began, now)
    }

    pub(crate) fn out_of_time(&self) -> Error {
        let message = format!("timed out: others held the lock at each of {} tries", self.made);
        Error::new(ErrorKind::TimedOut, message)
    }
}

/// Returns true if a call that began at `began` has no reply only because the time limit passed
/// soon after its start.
pub(crate) fn was_cut_short(
    until: Option<LocalInstant>,
    began: LocalInstant,
    now: LocalInstant,
) -> bool {
    until.is_some_and(|until| {
        now >= until && until.saturating_duration_since(began) < MIN_BLAMED_SILENCE
    })
}

#[cfg(test)]
mod tests;
