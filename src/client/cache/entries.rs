//! The cached locks of a client, by slot.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::client::cache::Entry;
use crate::protocol::LockKey;
use crate::slot::Slot;

/// Entries without handles are removed when there are twice as many as after the last removal.
const FEWEST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Entries {
    all: BTreeMap<(Slot, Bytes), Weak<Entry>>,
    /// How many were left after the last removal.
    left: usize,
}

impl Entries {
    pub(crate) fn find_or_add(
        &mut self,
        lock: &LockKey,
        new: impl FnOnce() -> Arc<Entry>,
    ) -> Arc<Entry> {
        let place = (lock.slot, lock.key.clone());
        if let Some(entry) = self.all.get(&place).and_then(Weak::upgrade) {
            return entry;
        }
        if self.all.len() >= FEWEST.max(2 * self.left) {
            self.all.retain(|_, entry| entry.strong_count() > 0);
            self.left = self.all.len();
        }
        let entry = new();
        self.all.insert(place, Arc::downgrade(&entry));
        entry
    }

    #[cfg(all(test, feature = "embedded"))]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// It costs nothing for other slots: after a failover it runs for every slot.
    pub(crate) fn of_slot(&self, slot: Slot) -> Vec<Arc<Entry>> {
        let from = self.all.range((slot, Bytes::new())..);
        let those = from.take_while(|((of, _), _)| *of == slot);
        those.filter_map(|(_, entry)| entry.upgrade()).collect()
    }
}
