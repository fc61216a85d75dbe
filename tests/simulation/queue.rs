//! The rules of the queue: which waiter may go before which other one.

use std::collections::{BTreeMap, BTreeSet};

use crate::checker::Step;
use crate::court::Court;

/// The number of entries that the scripts search for the place of a returning waiter: sixteen from
/// either end of a list. In a longer list it may end up behind its place.
const SEARCHED: usize = 32;

pub struct Queues {
    court: Court,
    /// Waits by lock, server and acquisition. Two masters that serve one lock each have their own
    /// queue.
    waits: BTreeMap<(usize, usize), BTreeMap<String, Wait>>,
}

/// The grants that have passed a waiter since it began to wait.
#[derive(Debug, Default)]
struct Wait {
    writes: u32,
    /// Those of the writes that were upgrades, which go first.
    upgrades: u32,
    read_phases: BTreeSet<u64>,
    writers_before: u32,
}

impl Queues {
    pub fn new(court: Court) -> Queues {
        Queues { court, waits: BTreeMap::new() }
    }

    pub fn forget(&mut self, lock: usize) {
        self.waits.retain(|(other, _), _| *other != lock);
    }

    pub fn forget_at(&mut self, lock: usize, server: usize) {
        self.waits.remove(&(lock, server));
    }

    pub fn has_moved(&mut self, lock: usize, from: usize, to: usize) {
        if let Some(waits) = self.waits.remove(&(lock, from)) {
            self.waits.entry((lock, to)).or_insert(waits);
        }
    }

    pub fn check(&mut self, step: &Step<'_>) {
        let Some(before) = step.before else { return };
        let granted: Vec<(&str, bool)> = step
            .after
            .leases(step.now)
            .filter(|(id, writes, _)| {
                let had = before.leases(step.now).find(|(other, _, _)| other == id);
                had.is_none_or(|(_, wrote, _)| *writes && !wrote) && !step.takes_up(id)
            })
            .map(|(id, writes, _)| (id, writes))
            .collect();
        for (id, writes) in &granted {
            self.check_turn(step, id, *writes);
        }
        self.check_places(step);
        self.count_passing(step, &granted);
    }

    /// Checks that it was this acquisition's turn.
    fn check_turn(&self, step: &Step<'_>, id: &str, writes: bool) {
        let Some(before) = step.before else { return };
        let asked_with = (step.id() == id).then(|| step.ticket()).flatten();
        let ticket =
            before.waiters.get(id).map(|waiter| waiter.ticket).or(asked_with).unwrap_or(u64::MAX);
        let upgrades = before.readers.contains_key(id) && writes;
        for (other, waiter) in &before.waiters {
            let still_waits = step.after.waiters.contains_key(other);
            if other == id || !still_waits || !before.is_alive(other, waiter, step.now) {
                continue;
            }
            let lock = step.lock;
            match (waiter.mode, writes) {
                ('u', _) if before.lease(other, step.now).is_some() => {
                    self.court.accuse("an upgrade goes first", || {
                        format!("lock {lock}: {id} before {other}")
                    });
                }
                ('w', true)
                    if waiter.ticket < ticket && !upgrades && !before.stands_behind(other, id) =>
                {
                    self.court.accuse("writers go in order", || {
                        format!("lock {lock}: {id} before {other}")
                    });
                }
                ('w', false) if waiter.is_fair && ticket > before.phase.max(step.after.phase) => {
                    let phase = step.after.phase;
                    self.court.accuse("a reader that comes while a writer waits, waits", || {
                        format!("lock {lock}: {id} (ticket {ticket}, phase {phase}) before {other}")
                    });
                }
                ('r', false)
                    if waiter.ticket < ticket
                        && ticket != u64::MAX
                        && !before.stands_behind(other, id) =>
                {
                    self.court.accuse("readers go in order", || {
                        format!("lock {lock}: {id} before {other}")
                    });
                }
                ('r', true) if waiter.ticket <= before.phase && !upgrades => {
                    self.court.accuse("the readers of a phase go before a writer", || {
                        format!(
                            "lock {lock}: {id} before {other}, ticket {} of {}",
                            waiter.ticket, before.phase
                        )
                    });
                }
                _ => {}
            }
        }
    }

    /// A returning waiter gets its old place if the scripts search that far. It never gets an
    /// earlier one.
    fn check_places(&self, step: &Step<'_>) {
        let Some(before) = step.before else { return };
        let came = step.after.waiters.iter().filter(|(id, _)| !before.waiters.contains_key(*id));
        for (id, waiter) in came {
            let behind = step.after.waiters.get(&waiter.next);
            if behind.is_some_and(|behind| behind.ticket < waiter.ticket) {
                let lock = step.lock;
                self.court.accuse("nobody comes before its place", || format!("lock {lock}: {id}"));
            }
        }
        for mode in ['r', 'w'] {
            let are_few = step.after.waiters.values().filter(|waiter| waiter.mode == mode).count()
                <= SEARCHED;
            if are_few && before.is_in_order(mode) && !step.after.is_in_order(mode) {
                let (lock, id) = (step.lock, step.id());
                self.court
                    .accuse("who comes back finds its place", || format!("lock {lock}: {id}"));
            }
        }
    }

    /// Counts the grants that passed the waiters.
    fn count_passing(&mut self, step: &Step<'_>, granted: &[(&str, bool)]) {
        let lock = step.lock;
        let waits = self.waits.entry((lock, step.server)).or_default();
        waits.retain(|id, _| step.after.waiters.contains_key(id));
        for (id, waiter) in &step.after.waiters {
            let writers_before = || {
                let waiting = step.after.waiters.values();
                let waiting = waiting
                    .filter(|other| other.mode == 'w' && other.ticket < waiter.ticket)
                    .count() as u32;
                waiting + u32::from(step.after.writer.is_some())
            };
            let wait = waits
                .entry(id.clone())
                .or_insert_with(|| Wait { writers_before: writers_before(), ..Wait::default() });
            for (id, writes) in granted {
                if *writes {
                    wait.writes += 1;
                    let upgrades =
                        step.before.is_some_and(|before| before.readers.contains_key(*id));
                    wait.upgrades += u32::from(upgrades);
                } else {
                    wait.read_phases.insert(step.after.phase);
                }
            }
            let is_alive = step.after.is_alive(id, waiter, step.now);
            if waiter.mode == 'r' && is_alive && wait.writes - wait.upgrades > 1 {
                let writes = wait.writes;
                self.court.accuse("a reader waits for one write phase", || {
                    format!("lock {lock}: {id} waits through {writes} writes")
                });
            }
            if waiter.mode == 'w'
                && waiter.is_fair
                && is_alive
                && wait.read_phases.len() as u32 > wait.writes + 1 + wait.writers_before
            {
                self.court.accuse("one read phase for each writer before", || {
                    format!("lock {lock}: {id} {wait:?}")
                });
            }
        }
    }
}
