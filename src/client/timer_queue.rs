//! The schedule of the worker: when to look at which acquisition.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::clock::LocalInstant;

/// When to look at which acquisition, by number. Each has one entry at most, so the agenda is never
/// longer than the registry.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    order: BTreeSet<(LocalInstant, u64)>,
    due: FxHashMap<u64, LocalInstant>,
}

impl TimerQueue {
    /// Schedules a look by `due`. An earlier look stays, and finds out what is due later.
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

    /// Removes the acquisition.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(due) = self.due.remove(&number) {
            self.order.remove(&(due, number));
        }
    }

    /// Takes the next one that is due by then. It must be noted again to be looked at again.
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
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(ms: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_millis(ms))
    }

    #[test]
    fn agenda_take_returns_earliest_wake_time_of_each_acquisition_in_order() {
        let mut agenda = TimerQueue::default();
        agenda.insert_earlier(1, at(30));
        agenda.insert_earlier(2, at(20));
        agenda.insert_earlier(1, at(10));
        agenda.insert_earlier(1, at(40));
        assert_eq!(agenda.next_due(), Some(at(10)));
        assert_eq!(agenda.pop_due(at(15)), Some(1));
        assert_eq!(agenda.pop_due(at(15)), None);
        assert_eq!(agenda.pop_due(at(50)), Some(2));
        assert_eq!(agenda.pop_due(at(50)), None, "the later looks at 1 are gone");
        agenda.insert_earlier(1, at(40));
        assert_eq!(agenda.pop_due(at(50)), Some(1), "noted again, it comes again");
    }

    #[test]
    fn agenda_forget_removes_every_wake_time_of_the_acquisition() {
        let mut agenda = TimerQueue::default();
        for number in 0..100_000 {
            agenda.insert_earlier(number, at(30_000 + number));
            agenda.insert_earlier(number, at(10_000 + number));
            agenda.remove(number);
        }
        assert_eq!((agenda.order.len(), agenda.due.len(), agenda.next_due()), (0, 0, None));
    }
}
