//! The timers of the worker, at most one for each acquisition.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use rwlease_core::time::LocalInstant;

/// The timers by acquisition number. An acquisition has at most one timer, so the queue is never
/// longer than the registry.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    order: BTreeSet<(LocalInstant, u64)>,
    due: FxHashMap<u64, LocalInstant>,
}

impl TimerQueue {
    /// Sets the timer of an acquisition to `due`. An earlier timer stays. When it fires, the worker
    /// learns what is due later.
    pub(crate) fn insert_earlier(&mut self, number: u64, due: LocalInstant) {
        match self.due.get(&number).copied() {
            Some(earlier) if earlier <= due => return,
            Some(later) => {
                self.order.remove(&(later, number));
            }
            None => {}
        }
        self.due.insert(number, due);
        self.order.insert((due, number));
    }

    /// Removes the timer of the acquisition.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(due) = self.due.remove(&number) {
            self.order.remove(&(due, number));
        }
    }

    /// Removes and returns the first acquisition whose timer is due at or before `by`. Set its
    /// timer again to wake it again.
    pub(crate) fn pop_due(&mut self, by: LocalInstant) -> Option<u64> {
        let (_, number) = self.order.first().copied().filter(|(due, _)| *due <= by)?;
        self.remove(number);
        Some(number)
    }

    pub(crate) fn next_due(&self) -> Option<LocalInstant> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests;
