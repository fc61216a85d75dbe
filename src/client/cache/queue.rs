//! The queue of local requests, in the order of the server's queue: writers first in, first out,
//! and readers too. A reader that arrives while a writer waits, waits. When a write ends, the
//! readers that wait go before the next writer.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::client::cache::PlainBecause;
use crate::client::cache::hold::Share;
use crate::protocol::Mode;

/// The outcome of a local wait.
#[derive(Debug)]
pub(crate) enum Turn {
    Share(Share),
    /// Go on by a request to the server: for this reason, or because the lease could not be
    /// acquired.
    Plain(Option<PlainBecause>),
}

pub(super) type Sender = oneshot::Sender<Turn>;

#[derive(Debug, Default)]
pub(super) struct Queue {
    readers: VecDeque<(u64, Sender)>,
    writers: VecDeque<(u64, Sender)>,
    /// The last ticket given.
    last: u64,
    /// Readers with this ticket or an earlier one go before the writers.
    phase: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.readers.len() + self.writers.len()
    }

    /// Whether a request that does not wait would pass a waiter.
    pub(super) fn excludes(&self, mode: Mode) -> bool {
        !self.writers.is_empty() || (mode == Mode::Write && !self.readers.is_empty())
    }

    /// The mode of the next waiter.
    pub(super) fn head(&self) -> Option<Mode> {
        match (self.readers.front(), self.writers.front()) {
            (None, None) => None,
            (Some((ticket, _)), Some(_)) if *ticket > self.phase => Some(Mode::Write),
            (None, Some(_)) => Some(Mode::Write),
            (Some(_), _) => Some(Mode::Read),
        }
    }

    pub(super) fn push(&mut self, mode: Mode, sender: Sender) -> u64 {
        self.last += 1;
        let ticket = self.last;
        self.of(mode).push_back((ticket, sender));
        ticket
    }

    pub(super) fn pop(&mut self, mode: Mode) -> Option<Sender> {
        self.of(mode).pop_front().map(|(_, sender)| sender)
    }

    /// The caller must drop the sender with nothing locked.
    pub(super) fn remove(&mut self, mode: Mode, ticket: u64) -> Option<Sender> {
        let queue = self.of(mode);
        let at = queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        queue.remove(at).map(|(_, sender)| sender)
    }

    /// A write has ended: the readers that wait now go before the next writer.
    pub(super) fn end_write(&mut self) {
        self.phase = self.last;
    }

    /// Removes all waiters, in their order.
    pub(super) fn take_all(&mut self) -> Vec<Sender> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(mode) = self.head() {
            all.extend(self.pop(mode));
        }
        all
    }

    fn of(&mut self, mode: Mode) -> &mut VecDeque<(u64, Sender)> {
        match mode {
            Mode::Read => &mut self.readers,
            Mode::Write => &mut self.writers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(queue: &mut Queue, mode: Mode) -> u64 {
        queue.push(mode, oneshot::channel().0)
    }

    #[test]
    fn a_reader_waits_behind_a_writer_and_goes_after_the_write() {
        let mut queue = Queue::default();
        assert_eq!(queue.head(), None);
        wait(&mut queue, Mode::Write);
        wait(&mut queue, Mode::Write);
        wait(&mut queue, Mode::Read);
        assert_eq!(queue.head(), Some(Mode::Write));
        assert!(queue.pop(Mode::Write).is_some());
        queue.end_write();
        assert_eq!(queue.head(), Some(Mode::Read), "it waited by then");
        wait(&mut queue, Mode::Read);
        assert!(queue.pop(Mode::Read).is_some());
        assert_eq!(queue.head(), Some(Mode::Write), "this one came later");
    }

    #[test]
    fn queue_remove_keeps_the_other_requests_in_order() {
        let mut queue = Queue::default();
        let tickets: Vec<u64> = (0..3).map(|_| wait(&mut queue, Mode::Write)).collect();
        wait(&mut queue, Mode::Read);
        assert!(queue.remove(Mode::Write, tickets[1]).is_some());
        assert!(queue.remove(Mode::Write, tickets[1]).is_none());
        assert_eq!(queue.len(), 3);
        assert!(queue.remove(Mode::Write, tickets[0]).is_some());
        assert!(queue.remove(Mode::Write, tickets[2]).is_some());
        assert_eq!(queue.head(), Some(Mode::Read));
        assert_eq!(queue.take_all().len(), 1);
        assert!(queue.is_empty());
    }
}
