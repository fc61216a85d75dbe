//! The acquisitions of one client, when the worker must look at each, and which slots have waiters.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::client::acquisition::Acquisition;
use crate::client::timer_queue::TimerQueue;
use crate::clock::LocalInstant;
use crate::protocol::LockKey;
use crate::slot::Slot;

/// How long a subscription is kept without waiters in its slot.
const SUBSCRIPTION_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct AcquisitionRegistry {
    acquisitions: FxHashMap<u64, Arc<Acquisition>>,
    /// When the worker must look at which lease or request.
    leases: TimerQueue,
    /// When it must look at which release.
    releases: TimerQueue,
    /// The locks at which a call has left work over, by their keys.
    pump_locks: BTreeMap<Bytes, LockKey>,
    slot_waiters: BTreeMap<Slot, SlotWaiters>,
    /// The time until which the worker sleeps.
    sleeps_until: Option<LocalInstant>,
    closed: bool,
    /// Whether the last handle is gone. The worker then ends when all work is done.
    is_orphaned: bool,
    /// Whether the client has failed. What is left stays as it is.
    failed: bool,
}

/// The waiters of this client in one slot.
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
    pub(crate) pumps: Vec<LockKey>,
    /// Whether more is due.
    pub(crate) has_more: bool,
    pub(crate) is_finished: bool,
}

impl AcquisitionRegistry {
    /// False if the client takes no more locks.
    pub(super) fn add(&mut self, acquisition: Arc<Acquisition>) -> bool {
        if !self.closed {
            self.acquisitions.insert(acquisition.number, acquisition);
        }
        !self.closed
    }

    /// True if it was the last one and the client takes no more locks.
    pub(super) fn remove(&mut self, count: u64) -> bool {
        self.acquisitions.remove(&count);
        self.leases.remove(count);
        self.releases.remove(count);
        self.acquisitions.is_empty() && (self.closed || self.is_orphaned)
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

    /// Whether nothing is left to wait for.
    pub(super) fn is_drained(&self) -> bool {
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
    pub(super) fn pump(&mut self, lock: &LockKey) {
        self.pump_locks.entry(lock.key.clone()).or_insert_with(|| lock.clone());
    }

    /// Takes work that is due, as much as fits into one turn. Leases go before releases: a renewal
    /// that is late loses the lease, and a release that is late loses time.
    pub(super) fn take_due(&mut self, now: LocalInstant) -> DueWork {
        let mut counts: Vec<u64> =
            iter::from_fn(|| self.leases.pop_due(now)).take(TURN - MIN_RELEASES).collect();
        let room = TURN - counts.len();
        counts.extend(iter::from_fn(|| self.releases.pop_due(now)).take(room));
        let due = counts.iter().filter_map(|count| self.acquisitions.get(count).cloned()).collect();
        let pumps: Vec<LockKey> = iter::from_fn(|| self.pump_locks.pop_first())
            .map(|(_, lock)| lock)
            .take(TURN)
            .collect();
        let has_more =
            self.first_due().is_some_and(|due| due <= now) || !self.pump_locks.is_empty();
        let finished = (self.is_orphaned || self.failed) && self.is_drained() && pumps.is_empty();
        DueWork { acquisitions: due, pumps, has_more, is_finished: finished }
    }

    fn first_due(&self) -> Option<LocalInstant> {
        self.leases.next_due().into_iter().chain(self.releases.next_due()).min()
    }

    pub(super) fn sleep_until(&mut self, at_most: LocalInstant) -> LocalInstant {
        let until = self.first_due().map_or(at_most, |due| due.min(at_most));
        self.sleeps_until = Some(until);
        until
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Ends all work.
    pub(super) fn fail(&mut self) {
        (self.closed, self.failed) = (true, true);
        (self.leases, self.releases) = Default::default();
        self.pump_locks.clear();
    }

    pub(super) fn mark_orphaned(&mut self) {
        self.is_orphaned = true;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::acquisition::AcquisitionState;
    use crate::protocol::{ClientId, LockKind};

    fn lock(name: &str) -> LockKey {
        LockKey::new(LockKind::ReadWrite, "", name).unwrap()
    }

    fn registry(counts: &[u64]) -> AcquisitionRegistry {
        let mut registry = AcquisitionRegistry::default();
        for &count in counts {
            let id = ClientId::from_random([1; 11]).acquisition(count);
            let acquisition = Acquisition::new(id, count, lock("a"), AcquisitionState::Ended);
            assert!(registry.add(Arc::new(acquisition)));
        }
        registry
    }

    #[test]
    fn registry_all_lists_acquisitions_in_creation_order() {
        let all = registry(&[3, 1, 2]).all();
        assert_eq!(all.iter().map(|acquisition| acquisition.number).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn the_last_one_of_a_client_that_takes_no_more_locks_is_reported() {
        for end in [
            AcquisitionRegistry::close as fn(&mut AcquisitionRegistry),
            AcquisitionRegistry::mark_orphaned,
        ] {
            let mut registry = registry(&[1, 2, 3]);
            assert!(!registry.remove(1));
            end(&mut registry);
            assert!(!registry.remove(2), "there is another one");
            assert!(registry.remove(3));
        }
        assert!(!registry(&[1]).remove(1), "more may come");
    }

    const fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    /// The numbers of the acquisitions that a turn looks at.
    fn turn(registry: &mut AcquisitionRegistry, now: LocalInstant) -> (Vec<u64>, bool) {
        let work = registry.take_due(now);
        (work.acquisitions.iter().map(|acquisition| acquisition.number).collect(), work.has_more)
    }

    #[test]
    fn take_work_of_many_releases_takes_a_turn_of_them_and_leases_first() {
        let releases = 3 * TURN as u64;
        let mut registry = registry(&(0..releases + 2).collect::<Vec<_>>());
        (0..releases).for_each(|count| assert!(registry.schedule(count, at(1), true)));
        registry.schedule(releases, at(2), false);
        registry.schedule(releases + 1, at(9), false);
        let (first, has_more) = turn(&mut registry, at(5));
        assert!(first.iter().copied().eq([releases].into_iter().chain(0..TURN as u64 - 1)));
        assert!(has_more);
        let (second, _) = turn(&mut registry, at(9));
        assert_eq!((second[0], second.len()), (releases + 1, TURN));
        assert_eq!(turn(&mut registry, at(9)).0.len(), TURN);
        let (last, has_more) = turn(&mut registry, at(9));
        assert_eq!((last.len(), has_more), (2, false));
        assert_eq!(turn(&mut registry, at(9)), (vec![], false));
    }

    #[test]
    fn take_work_of_many_leases_leaves_room_for_releases() {
        let leases = 2 * TURN as u64;
        let mut registry = registry(&(0..leases + 100).collect::<Vec<_>>());
        (0..leases + 100)
            .for_each(|count| assert!(registry.schedule(count, at(1), count >= leases)));
        let (first, _) = turn(&mut registry, at(5));
        assert_eq!(first.len(), TURN);
        assert_eq!(first.iter().filter(|count| **count >= leases).count(), MIN_RELEASES);
    }

    /// A release is not looked at as a lease any more.
    #[test]
    fn note_of_a_release_ends_the_look_at_its_lease() {
        let mut registry = registry(&[1]);
        registry.schedule(1, at(1), false);
        registry.schedule(1, at(7), true);
        assert_eq!(turn(&mut registry, at(5)), (vec![], false));
        assert_eq!(turn(&mut registry, at(7)), (vec![1], false));
        assert_eq!(turn(&mut registry, at(7)), (vec![], false));
    }

    #[test]
    fn take_work_of_many_pumps_takes_a_turn_of_them() {
        let mut registry = registry(&[]);
        (0..TURN + 3).for_each(|number| registry.pump(&lock(&number.to_string())));
        let work = registry.take_due(at(0));
        assert_eq!((work.pumps.len(), work.has_more), (TURN, true));
        let work = registry.take_due(at(0));
        assert_eq!((work.pumps.len(), work.has_more), (3, false));
    }

    #[test]
    fn take_work_after_a_failure_is_finished() {
        let mut registry = registry(&[1]);
        registry.schedule(1, at(1), false);
        registry.fail();
        let work = registry.take_due(at(5));
        assert!(work.is_finished && work.acquisitions.is_empty() && registry.is_drained());
        assert_eq!(registry.all().len(), 1, "shutdown names it");
    }

    #[test]
    fn each_lock_is_pumped_once() {
        let mut registry = registry(&[]);
        registry.mark_orphaned();
        ["a", "b", "a"].iter().for_each(|name| registry.pump(&lock(name)));
        let work = registry.take_due(LocalInstant::from_duration(Duration::ZERO));
        let pumps: Vec<_> = work.pumps.iter().map(|lock| &*lock.name).collect();
        assert_eq!(pumps, ["a", "b"]);
        assert!(!work.is_finished);
        assert!(registry.take_due(LocalInstant::from_duration(Duration::ZERO)).is_finished);
    }
}
