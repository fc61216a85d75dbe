//! The local deadline of a lease, and the time of its renewal.

use std::time::Duration;

use crate::protocol::Grant;
use crate::time::{ClockBounds, LocalInstant};

/// A lease is renewed after a third of it, so that two more tries fit in.
const RENEWAL_DIVISOR: u32 = 3;

/// The part of the interval by which a renewal may go out early, so that the renewals of leases
/// taken together spread out.
const JITTER: f64 = 0.1;

/// Renewals that are due within the same part of their lease, and of this time, are sent together.
const TOGETHER: Duration = Duration::from_millis(20);
const PARTS: u32 = 60;

/// The default margin: a twentieth of the lease, at most half a second.
pub fn default_margin(lease: Duration) -> Duration {
    (lease / 20).min(Duration::from_millis(500))
}

/// The local end of the lease in a reply. The server read its clock after the request was sent, so
/// counting from the sending is never too late, whichever attempt was granted.
pub fn lease_deadline(
    grant: Grant,
    server_now: u64,
    sent: LocalInstant,
    margin: Duration,
) -> LocalInstant {
    sent.saturating_add(remaining_at(grant, server_now)).saturating_sub(margin)
}

/// The time left of a lease when the server's clock reads `now`. That is in whole milliseconds, so
/// up to one less may be left.
pub fn remaining_at(grant: Grant, now: u64) -> Duration {
    Duration::from_millis(grant.deadline.saturating_sub(now).saturating_sub(1))
}

/// Returns the local deadline of a pushed lease, or `None` if it is unknown and a poll is needed.
///
/// The client did not see the start of such a lease. The earlier of two limits counts: `bound` says
/// before which moment the server's clock cannot reach the deadline, and the server read `push_now`
/// before the message arrived.
pub fn pushed_deadline(
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
pub fn renew_at(sent: LocalInstant, lease: Duration, random: f64) -> LocalInstant {
    let due = sent.saturating_add((lease / RENEWAL_DIVISOR).mul_f64(1.0 - JITTER * random));
    due.rounded_down(TOGETHER.min(lease / PARTS))
}

/// When to repeat a renewal that failed.
pub fn retry_at(now: LocalInstant, lease: Duration, random: f64) -> LocalInstant {
    let pause = (lease / 10).clamp(Duration::from_millis(10), Duration::from_secs(1));
    now.saturating_add(pause.mul_f64(1.0 - 0.5 * random))
}

/// How long and how often a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RenewalBudget {
    /// How many more renewals, if there is a limit.
    pub renewals_left: Option<u32>,
    /// The end of the longest hold, if there is a limit.
    pub hold_deadline: Option<LocalInstant>,
    /// The time until which the lock stays taken at least, if there is one.
    pub kept_until: Option<LocalInstant>,
}

impl RenewalBudget {
    /// Whether another renewal may be sent at `now`.
    pub fn can_renew(&self, now: LocalInstant) -> bool {
        self.renewals_left != Some(0) && self.hold_deadline.is_none_or(|ends| now < ends)
    }

    /// Allows one more renewal than the limit, for the claim of a pushed grant.
    pub fn allow_one_more(&mut self, is_allowed: bool) {
        self.renewals_left =
            self.renewals_left.map(|left| left.saturating_add(u32::from(is_allowed)));
    }

    pub fn record_renewal(&mut self) {
        self.renewals_left = self.renewals_left.map(|left| left.saturating_sub(1));
    }

    /// The lease to request at `now`. It covers the shortest time and does not exceed the longest
    /// hold.
    pub fn lease(&self, now: LocalInstant, lease: Duration) -> Duration {
        let kept = self.kept_until.map(|until| until.saturating_duration_since(now));
        let lease = lease.max(kept.unwrap_or_default());
        self.hold_deadline.map_or(lease, |ends| lease.min(ends.saturating_duration_since(now)))
    }

    /// The local end of a renewed lease. At the server, a call that arrived late, or a claim
    /// window, can exceed the longest hold.
    pub fn clamp_to_hold(&self, ends: LocalInstant) -> LocalInstant {
        self.hold_deadline.map_or(ends, |hold_ends| ends.min(hold_ends))
    }
}

#[cfg(test)]
mod tests;
