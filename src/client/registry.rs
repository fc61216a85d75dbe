//! The acquisitions of one client, when the worker must look at each, and which slots have waiters.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::client::acquisition::Acquisition;
use crate::client::schedule::Agenda;
use crate::clock::Moment;
use crate::protocol::LockKey;
use crate::slot::Slot;

/// How long a subscription is kept without waiters in its slot.
const IDLE_SUBSCRIPTION: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Registry {
    acquisitions: FxHashMap<u64, Arc<Acquisition>>,
    /// When the worker must look at which lease or request.
    leases: Agenda,
    /// When it must look at which release.
    releases: Agenda,
    /// The locks at which a call has left work over, by their keys.
    pumps: BTreeMap<Bytes, LockKey>,
    waiting: BTreeMap<Slot, Waiting>,
    /// The time until which the worker sleeps.
    sleeps_until: Option<Moment>,
    closed: bool,
    /// Whether the last handle is gone. The worker then ends when all work is done.
    unowned: bool,
    /// Whether the client has failed. What is left stays as it is.
    failed: bool,
}

/// The waiters of this client in one slot.
#[derive(Debug)]
struct Waiting {
    /// The numbers of their acquisitions.
    waiters: BTreeSet<u64>,
    idle_since: Moment,
}

/// The most of each kind of work in one turn of the worker. After that, the other tasks of the
/// runtime have their turn.
const TURN: usize = 256;

/// The fewest releases in one turn, if so many are due, however many leases are.
const MIN_RELEASES: usize = 32;

/// The work of one turn.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Leases and requests, then releases.
    pub(crate) due: Vec<Arc<Acquisition>>,
    pub(crate) pumps: Vec<LockKey>,
    /// Whether more is due.
    pub(crate) has_more: bool,
    pub(crate) finished: bool,
}

impl Registry {
    /// False if the client takes no more locks.
    pub(super) fn add(&mut self, acquisition: Arc<Acquisition>) -> bool {
        if !self.closed {
            self.acquisitions.insert(acquisition.count, acquisition);
        }
        !self.closed
    }

    /// True if it was the last one and the client takes no more locks.
    pub(super) fn remove(&mut self, count: u64) -> bool {
        self.acquisitions.remove(&count);
        self.leases.forget(count);
        self.releases.forget(count);
        self.acquisitions.is_empty() && (self.closed || self.unowned)
    }

    pub(super) fn get(&self, count: u64) -> Option<Arc<Acquisition>> {
        self.acquisitions.get(&count).cloned()
    }

    /// All acquisitions, in the order of their creation.
    pub(super) fn all(&self) -> Vec<Arc<Acquisition>> {
        let mut all: Vec<_> = self.acquisitions.values().cloned().collect();
        all.sort_by_key(|acquisition| acquisition.count);
        all
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_drained(&self) -> bool {
        self.acquisitions.is_empty() || self.failed
    }

    /// Makes the worker look at the acquisition at `due`, or earlier. True if the worker sleeps
    /// longer.
    pub(super) fn note(&mut self, count: u64, due: Moment, is_release: bool) -> bool {
        let is_known = !self.failed && self.acquisitions.contains_key(&count);
        if is_known && is_release {
            self.leases.forget(count);
            self.releases.note(count, due);
        } else if is_known {
            self.leases.note(count, due);
        }
        is_known && self.sleeps_until.is_none_or(|until| due < until)
    }

    /// Makes the worker continue what a call left over.
    pub(super) fn pump(&mut self, lock: &LockKey) {
        self.pumps.entry(lock.key.clone()).or_insert_with(|| lock.clone());
    }

    /// Takes work that is due, as much as fits into one turn. Leases go before releases: a renewal
    /// that is late loses the lease, and a release that is late loses time.
    pub(super) fn take_work(&mut self, now: Moment) -> Work {
        let mut counts: Vec<u64> =
            iter::from_fn(|| self.leases.take(now)).take(TURN - MIN_RELEASES).collect();
        let room = TURN - counts.len();
        counts.extend(iter::from_fn(|| self.releases.take(now)).take(room));
        let due = counts.iter().filter_map(|count| self.acquisitions.get(count).cloned()).collect();
        let pumps: Vec<LockKey> =
            iter::from_fn(|| self.pumps.pop_first()).map(|(_, lock)| lock).take(TURN).collect();
        let has_more = self.first_due().is_some_and(|due| due <= now) || !self.pumps.is_empty();
        let finished = (self.unowned || self.failed) && self.is_drained() && pumps.is_empty();
        Work { due, pumps, has_more, finished }
    }

    fn first_due(&self) -> Option<Moment> {
        self.leases.first().into_iter().chain(self.releases.first()).min()
    }

    pub(super) fn sleep_until(&mut self, at_most: Moment) -> Moment {
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
        self.pumps.clear();
    }

    pub(super) fn disown(&mut self) {
        self.unowned = true;
    }

    pub(super) fn waiters_in(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        let waiters = self.waiting.get(&slot).into_iter().flat_map(|waiting| &waiting.waiters);
        waiters.filter_map(|count| self.get(*count)).collect()
    }

    /// True if the client has no subscription in this slot yet.
    pub(super) fn begin_wait(&mut self, slot: Slot, count: u64, now: Moment) -> bool {
        let is_new = !self.waiting.contains_key(&slot);
        let new = || Waiting { waiters: BTreeSet::new(), idle_since: now };
        self.waiting.entry(slot).or_insert_with(new).waiters.insert(count);
        is_new
    }

    pub(super) fn end_wait(&mut self, slot: Slot, count: u64, now: Moment) {
        if let Some(waiting) = self.waiting.get_mut(&slot) {
            waiting.waiters.remove(&count);
            waiting.idle_since = now;
        }
    }

    /// Removes the slots without waiters for a while, and reports them.
    pub(super) fn drop_idle(&mut self, now: Moment, mut idle: impl FnMut(Slot)) {
        self.waiting.retain(|slot, waiting| {
            let keep =
                !waiting.waiters.is_empty() || now.since(waiting.idle_since) < IDLE_SUBSCRIPTION;
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
    use crate::client::acquisition::State;
    use crate::protocol::{ClientId, Kind};

    fn lock(name: &str) -> LockKey {
        LockKey::new(Kind::ReadWrite, "", name).unwrap()
    }

    fn registry(counts: &[u64]) -> Registry {
        let mut registry = Registry::default();
        for &count in counts {
            let id = ClientId::from_random([1; 11]).acquisition(count);
            let acquisition = Acquisition::new(id, count, lock("a"), State::Ended);
            assert!(registry.add(Arc::new(acquisition)));
        }
        registry
    }

    #[test]
    fn registry_all_lists_acquisitions_in_creation_order() {
        let all = registry(&[3, 1, 2]).all();
        assert_eq!(all.iter().map(|acquisition| acquisition.count).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn the_last_one_of_a_client_that_takes_no_more_locks_is_reported() {
        for end in [Registry::close as fn(&mut Registry), Registry::disown] {
            let mut registry = registry(&[1, 2, 3]);
            assert!(!registry.remove(1));
            end(&mut registry);
            assert!(!registry.remove(2), "there is another one");
            assert!(registry.remove(3));
        }
        assert!(!registry(&[1]).remove(1), "more may come");
    }

    const fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    /// The numbers of the acquisitions that a turn looks at.
    fn turn(registry: &mut Registry, now: Moment) -> (Vec<u64>, bool) {
        let work = registry.take_work(now);
        (work.due.iter().map(|acquisition| acquisition.count).collect(), work.has_more)
    }

    #[test]
    fn take_work_of_many_releases_takes_a_turn_of_them_and_leases_first() {
        let releases = 3 * TURN as u64;
        let mut registry = registry(&(0..releases + 2).collect::<Vec<_>>());
        (0..releases).for_each(|count| assert!(registry.note(count, at(1), true)));
        registry.note(releases, at(2), false);
        registry.note(releases + 1, at(9), false);
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
        (0..leases + 100).for_each(|count| assert!(registry.note(count, at(1), count >= leases)));
        let (first, _) = turn(&mut registry, at(5));
        assert_eq!(first.len(), TURN);
        assert_eq!(first.iter().filter(|count| **count >= leases).count(), MIN_RELEASES);
    }

    /// A release is not looked at as a lease any more.
    #[test]
    fn note_of_a_release_ends_the_look_at_its_lease() {
        let mut registry = registry(&[1]);
        registry.note(1, at(1), false);
        registry.note(1, at(7), true);
        assert_eq!(turn(&mut registry, at(5)), (vec![], false));
        assert_eq!(turn(&mut registry, at(7)), (vec![1], false));
        assert_eq!(turn(&mut registry, at(7)), (vec![], false));
    }

    #[test]
    fn take_work_of_many_pumps_takes_a_turn_of_them() {
        let mut registry = registry(&[]);
        (0..TURN + 3).for_each(|number| registry.pump(&lock(&number.to_string())));
        let work = registry.take_work(at(0));
        assert_eq!((work.pumps.len(), work.has_more), (TURN, true));
        let work = registry.take_work(at(0));
        assert_eq!((work.pumps.len(), work.has_more), (3, false));
    }

    #[test]
    fn take_work_after_a_failure_is_finished() {
        let mut registry = registry(&[1]);
        registry.note(1, at(1), false);
        registry.fail();
        let work = registry.take_work(at(5));
        assert!(work.finished && work.due.is_empty() && registry.is_drained());
        assert_eq!(registry.all().len(), 1, "shutdown names it");
    }

    #[test]
    fn each_lock_is_pumped_once() {
        let mut registry = registry(&[]);
        registry.disown();
        ["a", "b", "a"].iter().for_each(|name| registry.pump(&lock(name)));
        let work = registry.take_work(Moment::from_origin(Duration::ZERO));
        let pumps: Vec<_> = work.pumps.iter().map(|lock| &*lock.name).collect();
        assert_eq!(pumps, ["a", "b"]);
        assert!(!work.finished);
        assert!(registry.take_work(Moment::from_origin(Duration::ZERO)).finished);
    }
}
