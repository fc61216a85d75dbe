//! The schedule of the worker: when to look at which acquisition.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::clock::Moment;

/// When to look at which acquisition, by number. Each has one entry at most, so the agenda is never
/// longer than the registry.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    order: BTreeSet<(Moment, u64)>,
    due: FxHashMap<u64, Moment>,
}

impl Agenda {
    /// Schedules a look by `due`. An earlier look stays, and finds out what is due later.
    pub(crate) fn note(&mut self, number: u64, due: Moment) {
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
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(due) = self.due.remove(&number) {
            self.order.remove(&(due, number));
        }
    }

    /// Takes the next one that is due by then. It must be noted again to be looked at again.
    pub(crate) fn take(&mut self, by: Moment) -> Option<u64> {
        let (_, number) = self.order.first().copied().filter(|(due, _)| *due <= by)?;
        self.forget(number);
        Some(number)
    }

    pub(crate) fn first(&self) -> Option<Moment> {
        self.order.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn agenda_take_returns_earliest_wake_time_of_each_acquisition_in_order() {
        let mut agenda = Agenda::default();
        agenda.note(1, at(30));
        agenda.note(2, at(20));
        agenda.note(1, at(10));
        agenda.note(1, at(40));
        assert_eq!(agenda.first(), Some(at(10)));
        assert_eq!(agenda.take(at(15)), Some(1));
        assert_eq!(agenda.take(at(15)), None);
        assert_eq!(agenda.take(at(50)), Some(2));
        assert_eq!(agenda.take(at(50)), None, "the later looks at 1 are gone");
        agenda.note(1, at(40));
        assert_eq!(agenda.take(at(50)), Some(1), "noted again, it comes again");
    }

    #[test]
    fn agenda_forget_removes_every_wake_time_of_the_acquisition() {
        let mut agenda = Agenda::default();
        for number in 0..100_000 {
            agenda.note(number, at(30_000 + number));
            agenda.note(number, at(10_000 + number));
            agenda.forget(number);
        }
        assert_eq!((agenda.order.len(), agenda.due.len(), agenda.first()), (0, 0, None));
    }
}
