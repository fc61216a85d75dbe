//! The acquisitions of one client, when the worker must look at each, and which slots have waiters.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use rwlease_core::protocol::LockKey;
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;

use crate::client::acquisition::Acquisition;

/// How long a subscription is kept without waiters in its slot.
const SUBSCRIPTION_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct AcquisitionRegistry {
    acquisitions: FxHashMap<u64, Arc<Acquisition>>,
    leases: TimerQueue,
    releases: TimerQueue,
    /// The locks at which a call has left work over, by their keys.
    locks_to_grant: BTreeMap<Bytes, LockKey>,
    slot_waiters: BTreeMap<Slot, SlotWaiters>,
    /// The time until which the worker sleeps.
    sleeps_until: Option<LocalInstant>,
    /// The client acquires no more locks.
    pub(crate) is_closed: bool,
    /// Whether the last handle is gone. The worker then ends when all work is done.
    pub(super) is_orphaned: bool,
    /// Whether the client has failed. Remaining acquisitions stay as they are.
    failed: bool,
}

#[derive(Debug)]
struct SlotWaiters {
    /// The numbers of their acquisitions.
    waiters: BTreeSet<u64>,
    idle_since: LocalInstant,
}

/// The most of each kind of work in one turn of the worker. After that, the other tasks of the
/// runtime have their turn.
const TURN: usize = 256;

/// The fewest releases in one turn, if so many are due, however many leases are.
const MIN_RELEASES: usize = 32;

/// The work of one turn.
#[derive(Debug, Default)]
pub(crate) struct DueWork {
    /// Leases and requests, then releases.
    pub(crate) acquisitions: Vec<Arc<Acquisition>>,
    pub(crate) locks_to_grant: Vec<LockKey>,
    /// Whether more is due.
    pub(crate) has_more: bool,
    pub(crate) is_finished: bool,
}

impl AcquisitionRegistry {
    /// Adds an acquisition. Returns false if the client acquires no more locks.
    pub(super) fn add(&mut self, acquisition: Arc<Acquisition>) -> bool {
        if !self.is_closed {
            self.acquisitions.insert(acquisition.number, acquisition);
        }
        !self.is_closed
    }

    /// Removes the acquisition. Returns true if the client is shutting down and has no other
    /// acquisition.
    pub(super) fn remove(&mut self, count: u64) -> bool {
        self.acquisitions.remove(&count);
        self.leases.remove(count);
        self.releases.remove(count);
        self.acquisitions.is_empty() && (self.is_closed || self.is_orphaned)
    }

    pub(super) fn get(&self, count: u64) -> Option<Arc<Acquisition>> {
        self.acquisitions.get(&count).cloned()
    }

    /// All acquisitions, in the order of their creation.
    pub(super) fn all(&self) -> Vec<Arc<Acquisition>> {
        let mut all: Vec<_> = self.acquisitions.values().cloned().collect();
        all.sort_by_key(|acquisition| acquisition.number);
        all
    }

    /// Whether nothing is left to wait for: nothing is held or acquired, or the client has failed.
    pub(crate) fn is_drained(&self) -> bool {
        self.acquisitions.is_empty() || self.failed
    }

    /// Makes the worker look at the acquisition at `due`, or earlier. True if the worker sleeps
    /// longer.
    pub(super) fn schedule(&mut self, count: u64, due: LocalInstant, is_release: bool) -> bool {
        let is_known = !self.failed && self.acquisitions.contains_key(&count);
        if is_known && is_release {
            self.leases.remove(count);
            self.releases.insert_earlier(count, due);
        } else if is_known {
            self.leases.insert_earlier(count, due);
        }
        is_known && self.sleeps_until.is_none_or(|until| due < until)
    }

    /// Makes the worker continue what a call left over.
    pub(super) fn grant_waiters(&mut self, lock: &LockKey) {
        self.locks_to_grant.entry(lock.key.clone()).or_insert_with(|| lock.clone());
    }

    /// Takes work that is due, as much as fits into one turn. Leases go before releases: a renewal
    /// that is late loses the lease, and a release that is late loses time.
    pub(super) fn take_due(&mut self, now: LocalInstant) -> DueWork {
        let mut counts: Vec<u64> =
            iter::from_fn(|| self.leases.pop_due(now)).take(TURN - MIN_RELEASES).collect();
        let room = TURN - counts.len();
        counts.extend(iter::from_fn(|| self.releases.pop_due(now)).take(room));
        let due = counts.iter().filter_map(|count| self.acquisitions.get(count).cloned()).collect();
        let locks_to_grant: Vec<LockKey> = iter::from_fn(|| self.locks_to_grant.pop_first())
            .map(|(_, lock)| lock)
            .take(TURN)
            .collect();
        let has_more =
            self.first_due().is_some_and(|due| due <= now) || !self.locks_to_grant.is_empty();
        let finished =
            (self.is_orphaned || self.failed) && self.is_drained() && locks_to_grant.is_empty();
        DueWork { acquisitions: due, locks_to_grant, has_more, is_finished: finished }
    }

    fn first_due(&self) -> Option<LocalInstant> {
        self.leases.next_due().into_iter().chain(self.releases.next_due()).min()
    }

    /// Returns when the worker must wake without a notification. From here on, earlier work wakes
    /// it.
    pub(super) fn sleep_until(&mut self, at_most: LocalInstant) -> LocalInstant {
        let until = self.first_due().map_or(at_most, |due| due.min(at_most));
        self.sleeps_until = Some(until);
        until
    }

    /// Ends all work.
    pub(super) fn fail(&mut self) {
        (self.is_closed, self.failed) = (true, true);
        (self.leases, self.releases) = Default::default();
        self.locks_to_grant.clear();
    }

    pub(super) fn waiters_in(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        let waiters = self.slot_waiters.get(&slot).into_iter().flat_map(|waiting| &waiting.waiters);
        waiters.filter_map(|count| self.get(*count)).collect()
    }

    /// True if the client has no subscription in this slot yet.
    pub(super) fn add_waiter(&mut self, slot: Slot, count: u64, now: LocalInstant) -> bool {
        let is_new = !self.slot_waiters.contains_key(&slot);
        let new = || SlotWaiters { waiters: BTreeSet::new(), idle_since: now };
        self.slot_waiters.entry(slot).or_insert_with(new).waiters.insert(count);
        is_new
    }

    pub(super) fn remove_waiter(&mut self, slot: Slot, count: u64, now: LocalInstant) {
        if let Some(waiting) = self.slot_waiters.get_mut(&slot) {
            waiting.waiters.remove(&count);
            waiting.idle_since = now;
        }
    }

    /// Removes the slots without waiters for a while, and reports them.
    pub(super) fn remove_idle(&mut self, now: LocalInstant, mut idle: impl FnMut(Slot)) {
        self.slot_waiters.retain(|slot, waiting| {
            let keep = !waiting.waiters.is_empty()
                || now.saturating_duration_since(waiting.idle_since) < SUBSCRIPTION_IDLE_TIMEOUT;
            if !keep {
                idle(*slot);
            }
            keep
        });
    }
}

/// The timers by acquisition number. An acquisition has at most one timer, so the queue is never
/// longer than the registry.
#[derive(Debug, Default)]
struct TimerQueue {
    order: BTreeSet<(LocalInstant, u64)>,
    due: FxHashMap<u64, LocalInstant>,
}

impl TimerQueue {
    /// Sets the timer of an acquisition to `due`. An earlier timer stays. When it fires, the worker
    /// learns what is due later.
    fn insert_earlier(&mut self, number: u64, due: LocalInstant) {
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
    fn remove(&mut self, number: u64) {
        if let Some(due) = self.due.remove(&number) {
            self.order.remove(&(due, number));
        }
    }

    /// Removes and returns the first acquisition whose timer is due at or before `by`. Set its
    /// timer again to wake it again.
    fn pop_due(&mut self, by: LocalInstant) -> Option<u64> {
        let (_, number) = self.order.first().copied().filter(|(due, _)| *due <= by)?;
        self.remove(number);
        Some(number)
    }

    fn next_due(&self) -> Option<LocalInstant> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests;
