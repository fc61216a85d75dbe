//! Retry policies: how often to try again, and for how long.

use std::time::Duration;

use crate::backoff::{Backoff, DEFAULT_JITTER, scale};
use crate::client::config::MIN_BLAMED_SILENCE;
use crate::clock::{Clock, LocalInstant};
use crate::error::{Error, ErrorKind, Result};

const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(500);
const SHORTEST: Duration = Duration::from_millis(1);

/// How a request tries again for a lock that does not report when it is free: the pauses between
/// tries, and the limits.
///
/// ```
/// use std::time::Duration;
/// use rwlease::Retry;
///
/// let steady = Retry::every(Duration::from_millis(100)).tries(20);
/// let patient = Retry::exponential(Duration::from_millis(10), Duration::from_secs(1))
///     .timeout(Duration::from_secs(30));
/// # let _ = (steady, patient);
/// ```
///
/// This is neither fair nor fast: whoever tries first after the release wins, and during each pause
/// the lock may be free and unused. An [`RwLock`](crate::RwLock) has a queue instead, and tries
/// again only if [`Acquire::retry`](crate::Acquire::retry) is set.
///
/// Default: pauses from 25 ms, doubled up to 500 ms, half of each random, without a limit.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Retry {
    pauses: Backoff,
    jitter: f64,
    tries: Option<u32>,
    timeout: Option<Duration>,
}

impl Default for Retry {
    fn default() -> Self {
        Retry::exponential(FIRST, LONGEST)
    }
}

impl Retry {
    /// Pauses for this long after each try, at least 1 ms.
    pub fn every(interval: Duration) -> Self {
        Retry::exponential(interval, interval)
    }

    /// Pauses for `first` at first, at least 1 ms, and doubles the pause up to `longest`.
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        let first = first.max(SHORTEST);
        let pauses = Backoff::new(first, longest.max(first));
        Retry { pauses, jitter: DEFAULT_JITTER, tries: None, timeout: None }
    }

    /// The fraction of each pause that is random, from 0 to 1, so that clients do not retry in
    /// step. Default: 0.5, so each pause is between half and all of its length.
    pub fn jitter(mut self, part: f64) -> Self {
        self.jitter = if part.is_nan() { DEFAULT_JITTER } else { part.clamp(0.0, 1.0) };
        self
    }

    /// The maximum number of tries, including the first, at least one. After that the request fails
    /// with [`TriesUsedUp`](ErrorKind::TriesUsedUp). Default: no limit.
    pub fn tries(mut self, most: u32) -> Self {
        self.tries = Some(most.max(1));
        self
    }

    /// The longest time for all tries and pauses. After that the request fails with
    /// [`TimedOut`](ErrorKind::TimedOut). Default: no limit.
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
    retry: &'a Retry,
    made: u32,
    until: Option<LocalInstant>,
}

impl Tries<'_> {
    /// The deadline for the answer to a try that begins now.
    pub(crate) fn answer_by(&self, now: LocalInstant, call_timeout: Duration) -> LocalInstant {
        let by = now.saturating_add(call_timeout);
        self.until.map_or(by, |until| until.min(by))
    }

    /// Sleeps until the next try is due. Fails if there is none.
    pub(crate) async fn pause(&mut self, clock: &dyn Clock) -> Result<()> {
        self.made = self.made.saturating_add(1);
        if self.retry.tries.is_some_and(|most| self.made >= most) {
            let message = format!("others held it at each of {} tries", self.made);
            return Err(Error::new(ErrorKind::TriesUsedUp, message));
        }
        let due = clock.now().saturating_add(self.retry.pause(self.made, fastrand::f64()));
        clock.sleep_until(self.until.map_or(due, |until| until.min(due))).await;
        match self.until {
            Some(until) if clock.now() >= until => Err(self.out_of_time()),
            _ => Ok(()),
        }
    }

    /// Whether a try is unanswered only because the time limit passed soon after it began. The try
    /// before it was answered, so the server is not to blame.
    pub(crate) fn was_cut_short(&self, began: LocalInstant, now: LocalInstant) -> bool {
        self.made > 0
            && self.until.is_some_and(|until| {
                now >= until && until.saturating_duration_since(began) < MIN_BLAMED_SILENCE
            })
    }

    pub(crate) fn out_of_time(&self) -> Error {
        let message =
            format!("others held it at each of {} tries in the time that was given", self.made);
        Error::new(ErrorKind::TimedOut, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let retry = Retry::exponential(ms(10), ms(100)).jitter(0.5);
        let pauses: Vec<_> = (1..7).map(|made| retry.pause(made, 0.0)).collect();
        assert_eq!(pauses, [ms(10), ms(20), ms(40), ms(80), ms(100), ms(100)]);
        assert_eq!(retry.pause(1, 1.0), ms(5));
        assert_eq!(retry.pause(u32::MAX, 0.0), ms(100));
        let steady = Retry::every(ms(70)).jitter(0.0);
        assert_eq!((steady.pause(1, 1.0), steady.pause(9, 1.0)), (ms(70), ms(70)));
    }

    #[test]
    fn retry_with_settings_out_of_range_clamps_them() {
        let retry = Retry::exponential(Duration::ZERO, Duration::ZERO).jitter(7.0).tries(0);
        assert_eq!(retry.pause(1, 0.0), SHORTEST);
        assert_eq!((retry.jitter, retry.tries), (1.0, Some(1)));
        assert_eq!(retry.jitter(f64::NAN).jitter, DEFAULT_JITTER);
        let longest = Retry::every(Duration::MAX).jitter(0.0);
        assert_eq!(longest.pause(1, 0.0), Duration::MAX);
        assert_eq!(longest.pause(u32::MAX, 1.0), Duration::MAX);
    }

    #[tokio::test]
    async fn tries_end_by_their_number_or_their_time() {
        let retry = Retry::every(ms(1)).tries(3).timeout(ms(60_000));
        let mut tries = retry.begin(SystemClock.now(), Some(ms(90_000)));
        assert_eq!(
            tries.answer_by(LocalInstant::default(), ms(5)),
            LocalInstant::default().saturating_add(ms(5))
        );
        tries.pause(&SystemClock).await.unwrap();
        tries.pause(&SystemClock).await.unwrap();
        let error = tries.pause(&SystemClock).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TriesUsedUp);

        let retry = Retry::every(ms(60_000));
        let now = SystemClock.now();
        let mut tries = retry.begin(now, Some(ms(5)));
        assert_eq!(tries.answer_by(now, ms(60_000)), now.saturating_add(ms(5)));
        assert!(!tries.was_cut_short(now, now.saturating_add(ms(5))), "no server has answered yet");
        assert_eq!(tries.pause(&SystemClock).await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(tries.was_cut_short(now, now.saturating_add(ms(5))));
        assert!(!tries.was_cut_short(now, now.saturating_add(ms(4))), "there was time left");
        let mut long = retry.begin(now, Some(ms(600)));
        long.made = 1;
        assert!(!long.was_cut_short(now, now.saturating_add(ms(600))), "it had time enough");
        assert!(long.was_cut_short(now.saturating_add(ms(590)), now.saturating_add(ms(600))));
    }
}
