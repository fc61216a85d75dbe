//! Decides when a lock is worth caching. A lease that others recall before it has served a few
//! local requests costs more than it saves.

use std::time::Duration;

use rwlease_core::time::LocalInstant;

/// A lease that is recalled after fewer local guards than this was a miss: a recall costs the
/// server about as much as three saved pairs.
const MIN_USEFUL_GRANTS: u32 = 4;

/// After this many guards of one lease, earlier misses are forgiven.
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
    /// After that, the lock is uncached for this many more uses, if they come before the longest
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

    /// A lease was released.
    pub(super) fn record_release(&mut self, now: LocalInstant) {
        self.last_release = Some(now);
    }

    /// An uncached lease was released.
    pub(super) fn record_uncached_use(&mut self, now: LocalInstant) {
        self.penalty_uses = self.penalty_uses.saturating_sub(1);
        self.record_release(now);
    }

    /// A lease grants nothing more because others want the lock, `took` after they recalled it. It
    /// has served this many guards. Returns how long the lock is not cached, if the recall was too
    /// early.
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
            self.penalty_uses = PENALTY_USES.saturating_mul(self.factor());
            Some(self.penalize(took, now))
        } else {
            None
        }
    }

    /// The last guard of a lease left, which was recalled too early `took` ago. Until now the
    /// penalty counted a shorter recall. Returns how long the lock is not cached from now on.
    pub(super) fn record_drained(&mut self, took: Duration, now: LocalInstant) -> Duration {
        self.penalize(took, now)
    }

    fn penalize(&mut self, took: Duration, now: LocalInstant) -> Duration {
        let penalty = took.max(MIN_RECALL_TIME).saturating_mul(PENALTY_FACTOR);
        let penalty = penalty.saturating_mul(self.factor()).min(MAX_PENALTY);
        self.penalty_until = Some(now.saturating_add(penalty));
        self.penalty_forgotten_at = Some(now.saturating_add(MAX_PENALTY));
        penalty
    }

    /// Each miss after the first one doubles the penalty.
    fn factor(&self) -> u32 {
        1u32.checked_shl(self.misses.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
