//! How far the clock of a node is ahead of the clock of this process, measured by a few round
//! trips.

use std::time::Duration;

/// Microseconds; the true value is between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    pub least: i64,
    pub most: i64,
}

impl ClockOffset {
    /// The server's clock read `time` between the two local moments.
    pub fn new(time: i64, sent: i64, received: i64) -> Self {
        ClockOffset { least: time - received, most: time - sent }
    }

    /// The range that both measurements allow.
    pub fn intersect(self, other: ClockOffset) -> ClockOffset {
        ClockOffset { least: self.least.max(other.least), most: self.most.min(other.most) }
    }
}

/// How far two clocks are apart: at least, and at most.
pub fn distance(one: ClockOffset, other: ClockOffset) -> (Duration, Duration) {
    let least = (one.least - other.most).max(other.least - one.most).max(0);
    let most = (one.most - other.least).max(other.most - one.least).max(0);
    (micros(least), micros(most))
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

#[cfg(test)]
mod tests;
