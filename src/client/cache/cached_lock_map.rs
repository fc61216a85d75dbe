use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use rwlease_core::protocol::LockKey;
use rwlease_core::slot::Slot;

use crate::client::cache::CachedLock;

/// Entries without handles are removed when there are twice as many as after the last removal.
const MIN_CLEANUP_SIZE: usize = 16;

#[derive(Default)]
pub(crate) struct CachedLockMap {
    locks: BTreeMap<(Slot, Bytes), Weak<CachedLock>>,
    /// How many were left after the last removal.
    count_after_cleanup: usize,
}

impl CachedLockMap {
    pub(crate) fn find_or_add(
        &mut self,
        lock: &LockKey,
        new: impl FnOnce() -> Arc<CachedLock>,
    ) -> Arc<CachedLock> {
        let place = (lock.slot, lock.key.clone());
        if let Some(cached_lock) = self.locks.get(&place).and_then(Weak::upgrade) {
            return cached_lock;
        }
        if self.locks.len() >= MIN_CLEANUP_SIZE.max(2 * self.count_after_cleanup) {
            self.locks.retain(|_, cached_lock| cached_lock.strong_count() > 0);
            self.count_after_cleanup = self.locks.len();
        }
        let cached_lock = new();
        self.locks.insert(place, Arc::downgrade(&cached_lock));
        cached_lock
    }

    #[cfg(all(test, feature = "embedded"))]
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// It costs nothing for other slots: after a failover it runs for every slot.
    pub(crate) fn in_slot(&self, slot: Slot) -> Vec<Arc<CachedLock>> {
        let from = self.locks.range((slot, Bytes::new())..);
        let those = from.take_while(|((of, _), _)| *of == slot);
        those.filter_map(|(_, cached_lock)| cached_lock.upgrade()).collect()
    }
}
