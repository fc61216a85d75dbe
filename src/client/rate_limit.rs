//! A limit on how often something is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease_core::time::LocalInstant;

/// When it may be done next.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(AtomicU64);

impl RateLimit {
    /// Returns true if it may be done now, and not again for `interval`.
    pub(crate) fn try_acquire(&self, now: LocalInstant, interval: Duration) -> bool {
        let (now, next) = (now.as_nanos(), now.saturating_add(interval).as_nanos());
        let free = |due: u64| (due <= now).then_some(next);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }
}
