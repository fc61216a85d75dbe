//! What the times in a server's replies say about its clock.
//!
//! A request was sent at local `t0`, answered with the server's time `S`, and received at local
//! `t1`. So the server's clock read `S` at some local moment between `t0` and `t1`. Each further
//! answer narrows the bounds.

use std::time::Duration;

use crate::time::LocalInstant;

/// How long a generation of answers lasts. Answers are kept in two generations, because clocks
/// drift and are set.
const GENERATION_LEN: Duration = Duration::from_secs(5);

/// The oldest answer that counts where the drift of the clocks matters.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(10);

/// How far the two clocks can drift apart, in microseconds, within the age of the oldest answer
/// that counts, if one of them is off by 500 parts in a million.
const MAX_DRIFT_MICROS: i64 = MAX_SAMPLE_AGE.as_micros() as i64 / 2_000;

/// Bounds for the difference between local time and the clock of one server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockBounds {
    previous: OffsetRange,
    current: OffsetRange,
    newest: OffsetRange,
    /// When the calls of the first answers were sent, in the previous generation and in this one.
    previous_began: LocalInstant,
    current_began: LocalInstant,
}

impl ClockBounds {
    /// Takes the time in a reply into account.
    pub fn observe(&mut self, sent: LocalInstant, received: LocalInstant, server_ms: u64) {
        let age = received.saturating_duration_since(self.current_began);
        if age >= GENERATION_LEN {
            self.previous =
                if age >= 2 * GENERATION_LEN { OffsetRange::ANYTHING } else { self.current };
            self.current = OffsetRange::ANYTHING;
            (self.previous_began, self.current_began) = (self.current_began, sent);
        }
        self.current_began = self.current_began.min(sent); // answers need not come in the order of their requests
        self.newest = OffsetRange::observed(sent, received, server_ms);
        self.current = self.current.intersect(self.newest);
    }

    /// The earliest local moment at which the server's clock can reach `server_ms`, if the clocks
    /// run at the same speed from `now` on. `None` if nothing is known, if the answers contradict
    /// each other (one of the clocks was set), or if the last answer is so old that the clock can
    /// have drifted away.
    pub fn not_before(&self, server_ms: u64, now: LocalInstant) -> Option<LocalInstant> {
        let young = |span, since| {
            if now.saturating_duration_since(since) <= MAX_SAMPLE_AGE {
                span
            } else {
                OffsetRange::ANYTHING
            }
        };
        let previous = young(self.previous, self.previous_began);
        let span = previous.intersect(young(self.current, self.current_began));
        (span.is_bounded() && span.is_consistent()).then(|| {
            moment(
                micros_of_ms(server_ms)
                    .saturating_add(span.earliest)
                    .saturating_sub(MAX_DRIFT_MICROS),
            )
        })
    }

    /// The most that the server's clock can read at local moment `at`. `None` if nothing is known.
    pub fn max_server_ms(&self, at: LocalInstant) -> Option<u64> {
        let span = if self.is_consistent() { self.span() } else { self.newest };
        span.is_bounded()
            .then(|| micros(at).saturating_sub(span.earliest).max(0).unsigned_abs() / 1000)
    }

    /// False if the answers contradict each other: one of the two clocks was set.
    pub fn is_consistent(&self) -> bool {
        self.span().is_consistent()
    }

    fn span(&self) -> OffsetRange {
        self.previous.intersect(self.current)
    }
}

/// Bounds of (local time - server time), in microseconds.
#[derive(Clone, Copy, Debug)]
struct OffsetRange {
    earliest: i64,
    latest: i64,
}

impl OffsetRange {
    const ANYTHING: OffsetRange = OffsetRange { earliest: i64::MIN, latest: i64::MAX };

    fn observed(sent: LocalInstant, received: LocalInstant, server_ms: u64) -> OffsetRange {
        let server = micros_of_ms(server_ms);
        // A server that reports `S` ms may be almost a millisecond past it.
        OffsetRange {
            earliest: micros(sent).saturating_sub(server.saturating_add(1000)),
            latest: micros(received).saturating_sub(server),
        }
    }

    fn intersect(self, other: OffsetRange) -> OffsetRange {
        OffsetRange {
            earliest: self.earliest.max(other.earliest),
            latest: self.latest.min(other.latest),
        }
    }

    fn is_bounded(self) -> bool {
        self.earliest != i64::MIN
    }

    fn is_consistent(self) -> bool {
        self.earliest <= self.latest
    }
}

impl Default for OffsetRange {
    fn default() -> Self {
        OffsetRange::ANYTHING
    }
}

fn micros(at: LocalInstant) -> i64 {
    // A thousandth of 64 bits fits.
    at.as_micros() as i64
}

fn micros_of_ms(server_ms: u64) -> i64 {
    i64::try_from(server_ms.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn moment(micros: i64) -> LocalInstant {
    LocalInstant::from_duration(Duration::from_micros(micros.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests;
