//! Decides when a lock is worth caching. A hold that others recall before it has served a few local
//! requests costs more than it saves.

use std::time::Duration;

use crate::clock::Moment;

/// A hold that is recalled after fewer local guards than this was a miss: a recall costs the server
/// about as much as three saved pairs.
const FEW: u32 = 4;

/// After this many guards of one hold, earlier misses are forgiven.
const MANY: u32 = 16;

/// The penalty for the first miss, in times of a recall, so that recalls cost at most a tenth. The
/// factor is that of Dice and Kogan, "BRAVO - Biased Locking for Reader-Writer Locks" (2019).
const PENALTY: u32 = 9;
/// The same in uses, for uses that are further apart.
const PLAIN_USES: u32 = 9;
const LEAST_RECALL: Duration = Duration::from_micros(500);
const LONGEST_PENALTY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    /// When this client last released the lock.
    released: Option<Moment>,
    misses: u32,
    plain_until: Option<Moment>,
    /// After that, the lock is plain for this many more uses, if they come before the longest
    /// penalty ends.
    plain_uses: u32,
    forgotten: Option<Moment>,
}

impl Policy {
    /// A lock that is used once need not be cached. It is cached from the second request within
    /// `recent` on.
    pub(super) fn caches(&self, now: Moment, recent: Duration) -> bool {
        self.released.is_some_and(|released| now.since(released) <= recent)
            && !self.is_in_penalty(now)
    }

    pub(super) fn is_in_penalty(&self, now: Moment) -> bool {
        self.plain_until.is_some_and(|until| now < until)
            || (self.plain_uses > 0 && self.forgotten.is_some_and(|until| now < until))
    }

    /// A hold was released.
    pub(super) fn released(&mut self, now: Moment) {
        self.released = Some(now);
    }

    /// A plain lease was released.
    pub(super) fn used_plainly(&mut self, now: Moment) {
        self.plain_uses = self.plain_uses.saturating_sub(1);
        self.released(now);
    }

    /// A hold was released because others wanted the lock. It had served so many guards, and the
    /// others got it `took` later. Returns for how long the lock is plain, if it was a miss.
    pub(super) fn called_back(
        &mut self,
        served: u32,
        took: Duration,
        now: Moment,
    ) -> Option<Duration> {
        if served >= MANY {
            self.misses = 0;
            None
        } else if served < FEW {
            self.misses = self.misses.saturating_add(1);
            let doubled = 1u32.checked_shl(self.misses - 1).unwrap_or(u32::MAX);
            let penalty = took.max(LEAST_RECALL).saturating_mul(PENALTY).saturating_mul(doubled);
            let penalty = penalty.min(LONGEST_PENALTY);
            self.plain_until = Some(now.after(penalty));
            self.plain_uses = PLAIN_USES.saturating_mul(doubled);
            self.forgotten = Some(now.after(LONGEST_PENALTY));
            Some(penalty)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    const R: Duration = Duration::from_secs(1);

    #[test]
    fn the_second_request_within_a_second_is_cached() {
        let mut policy = Policy::default();
        assert!(!policy.caches(at(0), R));
        policy.released(at(100));
        assert!(policy.caches(at(1_100), R) && !policy.caches(at(1_101), R));
    }

    fn use_plainly(policy: &mut Policy, uses: u32) {
        (0..uses).for_each(|_| policy.used_plainly(at(0)));
    }

    #[test]
    fn cache_penalty_ends_after_nine_plain_uses_or_ten_seconds() {
        let mut policy = Policy::default();
        policy.called_back(1, Duration::from_millis(1), at(0));
        use_plainly(&mut policy, 8);
        assert!(policy.is_in_penalty(at(1_000)));
        use_plainly(&mut policy, 1);
        assert!(!policy.is_in_penalty(at(1_000)));
        policy.called_back(1, Duration::from_millis(1), at(2_000));
        assert!(policy.is_in_penalty(at(11_999)) && !policy.is_in_penalty(at(12_000)));
    }

    #[test]
    fn cache_penalty_grows_with_each_miss_and_is_reset_by_many_uses() {
        let mut policy = Policy::default();
        let took = Duration::from_millis(1);
        policy.released(at(0));
        policy.called_back(3, took, at(0));
        use_plainly(&mut policy, 9);
        assert!(policy.is_in_penalty(at(8)) && !policy.is_in_penalty(at(9)));
        policy.called_back(3, took, at(10));
        use_plainly(&mut policy, 18);
        assert!(policy.is_in_penalty(at(27)) && !policy.caches(at(27), R));
        assert!(policy.caches(at(28), R));
        policy.called_back(4, took, at(30));
        assert!(!policy.is_in_penalty(at(30)), "neither a miss nor forgiven");
        policy.called_back(16, took, at(30));
        policy.called_back(0, took, at(40));
        use_plainly(&mut policy, 9);
        assert!(!policy.is_in_penalty(at(49)), "it was forgiven");
        for _ in 0..60 {
            policy.called_back(0, took, at(50));
        }
        assert!(policy.is_in_penalty(at(10_049)) && !policy.is_in_penalty(at(10_050)));
        policy.called_back(0, Duration::ZERO, at(20_000));
    }
}
