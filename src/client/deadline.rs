//! The local deadline of a lease, and the time of its renewal.

use std::time::Duration;

use crate::clock::LocalInstant;
use crate::protocol::Grant;
use crate::router::ClockBounds;

/// A lease is renewed after a third of it, so that two more tries fit in.
const RENEWAL_DIVISOR: u32 = 3;

/// The part of the interval by which a renewal may go out early, so that the renewals of leases
/// taken together spread out.
const JITTER: f64 = 0.1;

/// Renewals that are due within the same part of their lease, and of this time, are sent together.
const TOGETHER: Duration = Duration::from_millis(20);
const PARTS: u32 = 60;

/// The default margin: a twentieth of the lease, at most half a second.
pub(crate) fn default_margin(lease: Duration) -> Duration {
    (lease / 20).min(Duration::from_millis(500))
}

/// The local end of the lease in a reply. The server read its clock after the request was sent, so
/// counting from the sending is never too late, whichever attempt was granted.
pub(crate) fn lease_deadline(
    grant: Grant,
    server_now: u64,
    sent: LocalInstant,
    margin: Duration,
) -> LocalInstant {
    sent.saturating_add(remaining_at(grant, server_now)).saturating_sub(margin)
}

/// The time left of a lease when the server's clock reads `now`. That is in whole milliseconds, so
/// up to one less may be left.
pub(crate) fn remaining_at(grant: Grant, now: u64) -> Duration {
    Duration::from_millis(grant.deadline.saturating_sub(now).saturating_sub(1))
}

/// The local end of a lease that was pushed, or `None` if it is not known and a poll must tell it.
///
/// The client did not see the start of such a lease. There are two limits, of which the earlier one
/// counts: `bound` says before which moment the server's clock cannot reach the deadline, and the
/// server read `push_now` before the message arrived.
pub(crate) fn pushed_deadline(
    grant: Grant,
    push_now: u64,
    received: LocalInstant,
    bound: Option<&ClockBounds>,
    margin: Duration,
) -> Option<LocalInstant> {
    let bound = bound.filter(|bound| bound.is_consistent())?;
    let by_bound = bound.not_before(grant.deadline, received)?;
    let by_message = received.saturating_add(remaining_at(grant, push_now));
    Some(by_bound.min(by_message).saturating_sub(margin))
}

/// When to renew a lease that was confirmed at `sent`; `random` is from 0 to 1. The moments of many
/// leases coincide, so that their renewals are sent together.
pub(crate) fn renew_at(sent: LocalInstant, lease: Duration, random: f64) -> LocalInstant {
    let due = sent.saturating_add((lease / RENEWAL_DIVISOR).mul_f64(1.0 - JITTER * random));
    due.rounded_down(TOGETHER.min(lease / PARTS))
}

/// When to repeat a renewal that failed.
pub(crate) fn retry_at(now: LocalInstant, lease: Duration, random: f64) -> LocalInstant {
    let pause = (lease / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
    now.saturating_add(pause.mul_f64(1.0 - 0.5 * random))
}

/// How long and how often a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RenewalBudget {
    /// How many more renewals, if there is a limit.
    pub(crate) renewals_left: Option<u32>,
    /// The end of the longest hold, if there is a limit.
    pub(crate) hold_deadline: Option<LocalInstant>,
}

impl RenewalBudget {
    /// Whether another renewal may be sent at `now`.
    pub(crate) fn can_renew(&self, now: LocalInstant) -> bool {
        self.renewals_left != Some(0) && self.hold_deadline.is_none_or(|ends| now < ends)
    }

    pub(crate) fn record_renewal(&mut self) {
        self.renewals_left = self.renewals_left.map(|left| left.saturating_sub(1));
    }

    /// The lease to request at `now`, which does not exceed the longest hold.
    pub(crate) fn lease(&self, now: LocalInstant, lease: Duration) -> Duration {
        self.hold_deadline.map_or(lease, |ends| lease.min(ends.saturating_duration_since(now)))
    }

    /// The local end of a renewed lease. At the server, a call that arrived late, or a claim
    /// window, can exceed the longest hold.
    pub(crate) fn clamp_to_hold(&self, ends: LocalInstant) -> LocalInstant {
        self.hold_deadline.map_or(ends, |hold_ends| ends.min(hold_ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_lease_counts_from_the_sending_and_from_what_the_server_says_is_left() {
        let grant = Grant::new(1, 9_000);
        assert_eq!(lease_deadline(grant, 8_000, at(500), ms(100)), at(1_399));
        // An earlier attempt was granted, and this one reports it: less than a lease is left.
        assert_eq!(lease_deadline(grant, 8_900, at(500), ms(10)), at(589));
        assert_eq!(lease_deadline(grant, 9_500, at(500), ms(10)), at(490));
    }

    #[test]
    fn a_pushed_lease_counts_from_the_earlier_of_two_bounds() {
        let grant = Grant::new(1, 9_000);
        let mut bound = ClockBounds::default();
        bound.observe(at(100), at(140), 8_000);
        // By the bound the server reaches 9000 at 1094 or later, by the message at 1159 or earlier.
        assert_eq!(pushed_deadline(grant, 8_050, at(210), Some(&bound), ms(50)), Some(at(1_044)));
        // The server's clock was set back in between, so the message is the earlier limit.
        assert_eq!(pushed_deadline(grant, 8_200, at(210), Some(&bound), ms(0)), Some(at(1_009)));
        assert_eq!(pushed_deadline(grant, 8_050, at(210), None, ms(0)), None);
    }

    #[test]
    fn renewals_stop_at_their_limits() {
        let mut twice = RenewalBudget { renewals_left: Some(2), hold_deadline: None };
        assert!(twice.can_renew(at(0)));
        twice.record_renewal();
        twice.record_renewal();
        assert!(!twice.can_renew(at(0)));
        let held = RenewalBudget { renewals_left: None, hold_deadline: Some(at(1_000)) };
        assert!(held.can_renew(at(999)) && !held.can_renew(at(1_000)));
        assert_eq!(held.lease(at(400), ms(5_000)), ms(600));
        assert_eq!(
            (held.clamp_to_hold(at(1_300)), held.clamp_to_hold(at(700))),
            (at(1_000), at(700))
        );
        assert_eq!(twice.clamp_to_hold(at(1_300)), at(1_300));
    }

    #[test]
    fn a_renewal_goes_out_by_a_third_of_the_lease() {
        assert_eq!(renew_at(at(0), ms(3_000), 0.0), at(1_000));
        assert_eq!(renew_at(at(0), ms(3_000), 1.0), at(900));
        assert_eq!(renew_at(at(19), ms(3_000), 0.0), at(1_000), "with others");
        // However short the lease is, there is a pause before its renewal.
        for (sent, lease) in [(10_007, 10), (10_007, 59), (10_007, 61), (10_007, 600)] {
            let pause = renew_at(at(sent), ms(lease), 1.0).saturating_duration_since(at(sent));
            assert!(pause >= ms(lease).mul_f64(0.28), "{pause:?} of {lease} ms");
        }
        assert_eq!(retry_at(at(0), ms(3_000), 0.0), at(300));
        assert_eq!(retry_at(at(0), ms(60_000), 1.0), at(500));
    }
}
