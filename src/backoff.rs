//! Pauses between attempts. They double up to a maximum, and a part of each is random.

use std::time::Duration;

/// The part of a pause that is random by default.
pub(crate) const DEFAULT_JITTER: f64 = 0.5;

/// How pauses grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backoff {
    pub(crate) initial: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Backoff { initial: first, max: most }
    }

    /// The pause after a failure that follows `before` failures in a row.
    pub(crate) fn delay(self, before: u32) -> Duration {
        with_jitter(self.without_jitter(before))
    }

    pub(crate) fn without_jitter(self, before: u32) -> Duration {
        self.initial.saturating_mul(2u32.saturating_pow(before)).min(self.max)
    }
}

/// A random duration from half of `whole` to all of it, so that clients do not retry in step.
pub(crate) fn with_jitter(delay: Duration) -> Duration {
    scale(delay, 1.0 - DEFAULT_JITTER + DEFAULT_JITTER * fastrand::f64())
}

/// A fraction of the duration, from 0 to 1.
pub(crate) fn scale(whole: Duration, part: f64) -> Duration {
    // The longest durations, rounded to an `f64`, can exceed the range of a `Duration`.
    Duration::try_from_secs_f64(whole.as_secs_f64() * part).unwrap_or(whole)
}

#[cfg(test)]
mod tests;
