//! What the times in a server's replies say about its clock.
//!
//! A request was sent at local `t0`, answered with the server's time `S`, and received at local
//! `t1`. So the server's clock read `S` at some local moment between `t0` and `t1`. Each further
//! answer narrows the bounds.

use std::time::Duration;

use crate::clock::Moment;

/// How long a generation of answers lasts. Answers are kept in two generations, because clocks
/// drift and are set.
const GENERATION: Duration = Duration::from_secs(5);

/// The oldest answer that counts where the drift of the clocks matters.
const OLDEST: Duration = Duration::from_secs(10);

/// How far the two clocks can drift apart, in microseconds, within the age of the oldest answer
/// that counts, if one of them is off by 500 parts in a million.
const DRIFT: i64 = OLDEST.as_micros() as i64 / 2_000;

/// Bounds for the difference between local time and the clock of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockBound {
    previous: Span,
    current: Span,
    newest: Span,
    /// When the calls of the first answers were sent, in the previous generation and in this one.
    previous_since: Moment,
    since: Moment,
}

impl ClockBound {
    /// Takes the time in a reply into account.
    pub(crate) fn observe(&mut self, sent: Moment, received: Moment, server_ms: u64) {
        let age = received.since(self.since);
        if age >= GENERATION {
            self.previous = if age >= 2 * GENERATION { Span::ANYTHING } else { self.current };
            self.current = Span::ANYTHING;
            (self.previous_since, self.since) = (self.since, sent);
        }
        self.since = self.since.min(sent); // answers need not come in the order of their requests
        self.newest = Span::observed(sent, received, server_ms);
        self.current = self.current.narrowed(self.newest);
    }

    /// The earliest local moment at which the server's clock can reach `server_ms`, if the clocks
    /// run at the same speed from `now` on. `None` if nothing is known, if the answers contradict
    /// each other (one of the clocks was set), or if the last answer is so old that the clock can
    /// have drifted away.
    pub(crate) fn not_before(&self, server_ms: u64, now: Moment) -> Option<Moment> {
        let young = |span, since| {
            if now.since(since) <= OLDEST { span } else { Span::ANYTHING }
        };
        let previous = young(self.previous, self.previous_since);
        let span = previous.narrowed(young(self.current, self.since));
        (span.is_bounded() && span.is_consistent()).then(|| {
            moment(micros_of_ms(server_ms).saturating_add(span.earliest).saturating_sub(DRIFT))
        })
    }

    /// The most that the server's clock can read at local moment `at`. `None` if nothing is known.
    pub(crate) fn server_ms_at_most(&self, at: Moment) -> Option<u64> {
        let span = if self.is_consistent() { self.span() } else { self.newest };
        span.is_bounded()
            .then(|| micros(at).saturating_sub(span.earliest).max(0).unsigned_abs() / 1000)
    }

    /// False if the answers contradict each other: one of the two clocks was set.
    pub(crate) fn is_consistent(&self) -> bool {
        self.span().is_consistent()
    }

    fn span(&self) -> Span {
        self.previous.narrowed(self.current)
    }
}

/// Bounds of (local time - server time), in microseconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    earliest: i64,
    latest: i64,
}

impl Span {
    const ANYTHING: Span = Span { earliest: i64::MIN, latest: i64::MAX };

    fn observed(sent: Moment, received: Moment, server_ms: u64) -> Span {
        let server = micros_of_ms(server_ms);
        // A server that reports `S` ms may be almost a millisecond past it.
        Span {
            earliest: micros(sent).saturating_sub(server.saturating_add(1000)),
            latest: micros(received).saturating_sub(server),
        }
    }

    fn narrowed(self, other: Span) -> Span {
        Span { earliest: self.earliest.max(other.earliest), latest: self.latest.min(other.latest) }
    }

    fn is_bounded(self) -> bool {
        self.earliest != i64::MIN
    }

    fn is_consistent(self) -> bool {
        self.earliest <= self.latest
    }
}

impl Default for Span {
    fn default() -> Self {
        Span::ANYTHING
    }
}

fn micros(at: Moment) -> i64 {
    // A thousandth of 64 bits fits.
    at.micros_since_origin() as i64
}

fn micros_of_ms(server_ms: u64) -> i64 {
    i64::try_from(server_ms.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn moment(micros: i64) -> Moment {
    Moment::from_origin(Duration::from_micros(micros.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn clock_bound_before_the_first_reply_is_unknown() {
        let bound = ClockBound::default();
        assert_eq!(bound.not_before(1, at(1)), None);
        assert_eq!(bound.server_ms_at_most(at(1)), None);
        assert!(bound.is_consistent());
    }

    #[test]
    fn clock_bound_after_first_reply_is_within_its_round_trip() {
        let mut bound = ClockBound::default();
        bound.observe(at(100), at(140), 1_000_000);
        // It read 1,000,000 to 1,000,000.999 between 100 and 140.
        assert_eq!(bound.not_before(1_000_500, at(140)), Some(at(594)));
        assert_eq!(bound.server_ms_at_most(at(600)), Some(1_000_501));
    }

    #[test]
    fn answers_narrow_it_down() {
        let mut bound = ClockBound::default();
        bound.observe(at(100), at(140), 1_000_000); // the offset is 99 ms to 140 ms below
        bound.observe(at(200), at(201), 1_000_070);
        assert_eq!(bound.not_before(1_001_000, at(400)), Some(at(1124)));
        assert!(bound.is_consistent());
        // A slower answer does not widen the bounds again.
        bound.observe(at(300), at(400), 1_000_250);
        assert_eq!(bound.not_before(1_001_000, at(400)), Some(at(1124)));
    }

    #[test]
    fn the_true_moment_is_never_before_the_bound() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..1000 {
            let offset = random.u64(1_000..1_000_000); // the server's µs at local 0
            let mut bound = ClockBound::default();
            let mut now = 0;
            for _ in 0..20 {
                let sent = now + random.u64(0..50_000);
                let served = sent + random.u64(0..20_000);
                now = served + random.u64(0..20_000);
                let moment = |micros| Moment::from_origin(Duration::from_micros(micros));
                bound.observe(moment(sent), moment(now), (served + offset) / 1000);
                assert!(bound.is_consistent());
                let deadline_ms = (now + offset) / 1000 + random.u64(1..5000);
                let truly = moment(deadline_ms * 1000 - offset);
                assert!(bound.not_before(deadline_ms, moment(now)).unwrap() <= truly);
                assert!(bound.server_ms_at_most(truly).unwrap() >= deadline_ms);
            }
        }
    }

    #[test]
    fn clock_bound_of_an_older_reply_allows_for_drift() {
        let mut bound = ClockBound::default();
        bound.observe(at(0), at(0), 1_000_000);
        // The server's clock is fast by 500 parts in a million, so after nine seconds it reads this
        // at 8999.5.
        assert!(bound.not_before(1_009_004, at(8_999)).unwrap() <= at(8_999));
    }

    #[test]
    fn clock_bound_not_before_ignores_replies_past_the_drift_limit() {
        let mut bound = ClockBound::default();
        bound.observe(at(3), at(3), 1_000_003);
        assert_eq!(bound.not_before(1_009_004, at(10_000)), Some(at(8_998)));
        assert_eq!(bound.not_before(1_009_004, at(10_004)), None);
        assert!(bound.server_ms_at_most(at(10_004)).is_some(), "a limit is better than none");
        // A second generation that says less is used alone as soon as the first one is too old.
        bound.observe(at(6_000), at(6_100), 1_006_090);
        assert_eq!(bound.not_before(1_009_004, at(9_000)), Some(at(8_998)));
        assert_eq!(bound.not_before(1_009_004, at(11_000)), Some(at(8_908)));
        assert_eq!(bound.not_before(1_009_004, at(16_100)), None);
        // A call that was sent long ago can have read the clock as long ago.
        let mut slow = ClockBound::default();
        slow.observe(at(20_000), at(20_001), 1_020_000);
        slow.observe(at(8_000), at(20_002), 1_008_000);
        assert_eq!(slow.not_before(1_021_000, at(20_002)), None);
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_and_believed_after_a_while() {
        let mut bound = ClockBound::default();
        bound.observe(at(100), at(101), 1_000_000);
        bound.observe(at(200), at(201), 1_030_000);
        assert!(!bound.is_consistent());
        assert_eq!(bound.not_before(1_040_000, at(201)), None);
        assert_eq!(bound.server_ms_at_most(at(200)), Some(1_030_001), "the newest answer counts");
        bound.observe(at(5_300), at(5_301), 1_035_100);
        assert!(!bound.is_consistent(), "the generation before still counts");
        bound.observe(at(10_400), at(10_401), 1_040_200);
        assert!(bound.is_consistent());
        assert_eq!(bound.not_before(1_041_000, at(10_401)), Some(at(11_194)));
    }

    #[test]
    fn clock_bound_after_a_long_silence_uses_only_the_new_reply() {
        let mut bound = ClockBound::default();
        bound.observe(at(100), at(100), 1_000_000);
        bound.observe(at(3_600_100), at(3_600_150), 4_599_800);
        assert!(bound.is_consistent());
        assert_eq!(bound.not_before(4_599_900, at(3_600_150)), Some(at(3_600_194)));
    }

    #[test]
    fn clock_bound_with_extreme_times_does_not_overflow() {
        let mut bound = ClockBound::default();
        bound.observe(at(0), at(0), u64::MAX);
        bound.observe(at(u64::MAX / 2), at(u64::MAX / 2), 0);
        let _ = (
            bound.not_before(u64::MAX, at(u64::MAX)),
            bound.server_ms_at_most(at(u64::MAX / 2)),
            bound.is_consistent(),
        );
    }
}
