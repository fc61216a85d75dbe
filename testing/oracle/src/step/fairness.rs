//! Counts the grants that pass each waiter of one lock, from call to call.

use std::collections::{BTreeMap, BTreeSet};

use crate::step::Step;
use crate::{Violation, Waiter};

/// The waits at one server. (Two masters that serve one lock each have their own queue.)
#[derive(Debug, Default)]
pub struct Fairness(BTreeMap<String, Wait>);

/// The grants that have passed a waiter since it began to wait.
#[derive(Debug, Default)]
struct Wait {
    /// Without upgrades, which go first.
    writes: usize,
    upgrades: usize,
    read_phases: BTreeSet<u64>,
    writers_before: usize,
}

impl Fairness {
    /// A reader waits for one write phase. A phase-fair writer waits for the writers before it,
    /// with one read phase each.
    pub fn judge(&mut self, step: &Step<'_>) -> Option<Violation> {
        let before = step.before?;
        let hash = step.after;
        let wrote = |id: &str| before.writer.as_ref().is_some_and(|old| old.id == id);
        self.0.retain(|id, _| hash.waiters.contains_key(id));
        for waiter in hash.waiters.values() {
            let is_before = |other: &&Waiter| other.mode == 'w' && other.ticket < waiter.ticket;
            let writers_before = hash.waiters.values().filter(is_before).count()
                + usize::from(hash.writer.is_some());
            let fresh = Wait { writers_before, ..Wait::default() };
            let wait = self.0.entry(waiter.id.clone()).or_insert(fresh);
            for new in step.granted() {
                match new.writes {
                    // A repeated upgrade: it has passed the waiter already.
                    true if step.name() == "upgrade" && wrote(&new.id) => {}
                    true if before.readers.contains_key(&new.id) => wait.upgrades += 1,
                    true => wait.writes += 1,
                    false => drop(wait.read_phases.insert(hash.number("reader_phase"))),
                }
            }
            let most_phases = wait.writes + wait.upgrades + 1 + wait.writers_before;
            let rule = match waiter.mode {
                'r' if wait.writes > 1 => "a reader waits for one write phase",
                'w' if waiter.is_fair && wait.read_phases.len() > most_phases => {
                    "one read phase for each writer before"
                }
                _ => continue,
            };
            if hash.is_alive(waiter) {
                return Some(Violation { rule, what: format!("{waiter:?} {wait:?}") });
            }
        }
        None
    }
}
