//! Decides when a lock is worth caching. A hold that others recall before it has served a few local
//! requests costs more than it saves.

use std::time::Duration;

use crate::clock::LocalInstant;

/// A hold that is recalled after fewer local guards than this was a miss: a recall costs the server
/// about as much as three saved pairs.
const MIN_USEFUL_GRANTS: u32 = 4;

/// After this many guards of one hold, earlier misses are forgiven.
const FORGIVING_GRANTS: u32 = 16;

/// The penalty for the first miss, in times of a recall, so that recalls cost at most a tenth. The
/// factor is that of Dice and Kogan, "BRAVO - Biased Locking for Reader-Writer Locks" (2019).
const PENALTY_FACTOR: u32 = 9;
/// The same in uses, for uses that are further apart.
const PENALTY_USES: u32 = 9;
const MIN_RECALL_TIME: Duration = Duration::from_micros(500);
const MAX_PENALTY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CachePolicy {
    /// When this client last released the lock.
    last_release: Option<LocalInstant>,
    misses: u32,
    penalty_until: Option<LocalInstant>,
    /// After that, the lock is plain for this many more uses, if they come before the longest
    /// penalty ends.
    penalty_uses: u32,
    penalty_forgotten_at: Option<LocalInstant>,
}

impl CachePolicy {
    /// A lock that is used once need not be cached. It is cached from the second request within
    /// `recent` on.
    pub(super) fn should_cache(&self, now: LocalInstant, recent: Duration) -> bool {
        self.last_release.is_some_and(|released| now.saturating_duration_since(released) <= recent)
            && !self.is_penalized(now)
    }

    pub(super) fn is_penalized(&self, now: LocalInstant) -> bool {
        self.penalty_until.is_some_and(|until| now < until)
            || (self.penalty_uses > 0 && self.penalty_forgotten_at.is_some_and(|until| now < until))
    }

    /// A hold was released.
    pub(super) fn record_release(&mut self, now: LocalInstant) {
        self.last_release = Some(now);
    }

    /// A plain lease was released.
    pub(super) fn record_uncached_use(&mut self, now: LocalInstant) {
        self.penalty_uses = self.penalty_uses.saturating_sub(1);
        self.record_release(now);
    }

    /// A hold was released because others wanted the lock. It had served so many guards, and the
    /// others got it `took` later. Returns for how long the lock is plain, if it was a miss.
    pub(super) fn record_recall(
        &mut self,
        served: u32,
        took: Duration,
        now: LocalInstant,
    ) -> Option<Duration> {
        if served >= FORGIVING_GRANTS {
            self.misses = 0;
            None
        } else if served < MIN_USEFUL_GRANTS {
            self.misses = self.misses.saturating_add(1);
            let doubled = 1u32.checked_shl(self.misses - 1).unwrap_or(u32::MAX);
            let penalty =
                took.max(MIN_RECALL_TIME).saturating_mul(PENALTY_FACTOR).saturating_mul(doubled);
            let penalty = penalty.min(MAX_PENALTY);
            self.penalty_until = Some(now.saturating_add(penalty));
            self.penalty_uses = PENALTY_USES.saturating_mul(doubled);
            self.penalty_forgotten_at = Some(now.saturating_add(MAX_PENALTY));
            Some(penalty)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    const R: Duration = Duration::from_secs(1);

    #[test]
    fn the_second_request_within_a_second_is_cached() {
        let mut policy = CachePolicy::default();
        assert!(!policy.should_cache(at(0), R));
        policy.record_release(at(100));
        assert!(policy.should_cache(at(1_100), R) && !policy.should_cache(at(1_101), R));
    }

    fn use_plainly(policy: &mut CachePolicy, uses: u32) {
        (0..uses).for_each(|_| policy.record_uncached_use(at(0)));
    }

    #[test]
    fn cache_penalty_ends_after_nine_plain_uses_or_ten_seconds() {
        let mut policy = CachePolicy::default();
        policy.record_recall(1, Duration::from_millis(1), at(0));
        use_plainly(&mut policy, 8);
        assert!(policy.is_penalized(at(1_000)));
        use_plainly(&mut policy, 1);
        assert!(!policy.is_penalized(at(1_000)));
        policy.record_recall(1, Duration::from_millis(1), at(2_000));
        assert!(policy.is_penalized(at(11_999)) && !policy.is_penalized(at(12_000)));
    }

    #[test]
    fn cache_penalty_grows_with_each_miss_and_is_reset_by_many_uses() {
        let mut policy = CachePolicy::default();
        let took = Duration::from_millis(1);
        policy.record_release(at(0));
        policy.record_recall(3, took, at(0));
        use_plainly(&mut policy, 9);
        assert!(policy.is_penalized(at(8)) && !policy.is_penalized(at(9)));
        policy.record_recall(3, took, at(10));
        use_plainly(&mut policy, 18);
        assert!(policy.is_penalized(at(27)) && !policy.should_cache(at(27), R));
        assert!(policy.should_cache(at(28), R));
        policy.record_recall(4, took, at(30));
        assert!(!policy.is_penalized(at(30)), "neither a miss nor forgiven");
        policy.record_recall(16, took, at(30));
        policy.record_recall(0, took, at(40));
        use_plainly(&mut policy, 9);
        assert!(!policy.is_penalized(at(49)), "it was forgiven");
        for _ in 0..60 {
            policy.record_recall(0, took, at(50));
        }
        assert!(policy.is_penalized(at(10_049)) && !policy.is_penalized(at(10_050)));
        policy.record_recall(0, Duration::ZERO, at(20_000));
    }
}
