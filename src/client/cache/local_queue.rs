//! The queue of local requests, in the order of the server's queue: writers first in, first out,
//! and readers too. A reader that arrives while a writer waits, waits. When a write ends, the
//! readers that wait go before the next writer.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::client::cache::UncachedReason;
use crate::client::cache::hold::LeaseShare;
use crate::protocol::LockMode;

/// The outcome of a local wait.
#[derive(Debug)]
pub(crate) enum LocalWaitOutcome {
    Granted(LeaseShare),
    /// Go on by a request to the server: for this reason, or because the lease could not be
    /// acquired.
    Uncached(Option<UncachedReason>),
}

pub(super) type GrantSender = oneshot::Sender<LocalWaitOutcome>;

#[derive(Debug, Default)]
pub(super) struct LocalQueue {
    readers: VecDeque<(u64, GrantSender)>,
    writers: VecDeque<(u64, GrantSender)>,
    /// The last ticket given.
    last_ticket: u64,
    /// Readers with this ticket or an earlier one go before the writers.
    reader_phase: u64,
}

impl LocalQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.readers.is_empty() && self.writers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.readers.len() + self.writers.len()
    }

    /// Whether a request that does not wait would pass a waiter.
    pub(super) fn must_wait(&self, mode: LockMode) -> bool {
        !self.writers.is_empty() || (mode == LockMode::Write && !self.readers.is_empty())
    }

    /// The mode of the next waiter.
    pub(super) fn head(&self) -> Option<LockMode> {
        match (self.readers.front(), self.writers.front()) {
            (None, None) => None,
            (Some((ticket, _)), Some(_)) if *ticket > self.reader_phase => Some(LockMode::Write),
            (None, Some(_)) => Some(LockMode::Write),
            (Some(_), _) => Some(LockMode::Read),
        }
    }

    pub(super) fn push(&mut self, mode: LockMode, sender: GrantSender) -> u64 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.queue_for(mode).push_back((ticket, sender));
        ticket
    }

    pub(super) fn pop(&mut self, mode: LockMode) -> Option<GrantSender> {
        self.queue_for(mode).pop_front().map(|(_, sender)| sender)
    }

    /// The caller must drop the sender with nothing locked.
    pub(super) fn remove(&mut self, mode: LockMode, ticket: u64) -> Option<GrantSender> {
        let queue = self.queue_for(mode);
        let at = queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()?;
        queue.remove(at).map(|(_, sender)| sender)
    }

    /// A write has ended: the readers that wait now go before the next writer.
    pub(super) fn start_reader_phase(&mut self) {
        self.reader_phase = self.last_ticket;
    }

    /// Removes all waiters, in their order.
    pub(super) fn take_all(&mut self) -> Vec<GrantSender> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(mode) = self.head() {
            all.extend(self.pop(mode));
        }
        all
    }

    fn queue_for(&mut self, mode: LockMode) -> &mut VecDeque<(u64, GrantSender)> {
        match mode {
            LockMode::Read => &mut self.readers,
            LockMode::Write => &mut self.writers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(queue: &mut LocalQueue, mode: LockMode) -> u64 {
        queue.push(mode, oneshot::channel().0)
    }

    #[test]
    fn a_reader_waits_behind_a_writer_and_goes_after_the_write() {
        let mut queue = LocalQueue::default();
        assert_eq!(queue.head(), None);
        wait(&mut queue, LockMode::Write);
        wait(&mut queue, LockMode::Write);
        wait(&mut queue, LockMode::Read);
        assert_eq!(queue.head(), Some(LockMode::Write));
        assert!(queue.pop(LockMode::Write).is_some());
        queue.start_reader_phase();
        assert_eq!(queue.head(), Some(LockMode::Read), "it waited by then");
        wait(&mut queue, LockMode::Read);
        assert!(queue.pop(LockMode::Read).is_some());
        assert_eq!(queue.head(), Some(LockMode::Write), "this one came later");
    }

    #[test]
    fn queue_remove_keeps_the_other_requests_in_order() {
        let mut queue = LocalQueue::default();
        let tickets: Vec<u64> = (0..3).map(|_| wait(&mut queue, LockMode::Write)).collect();
        wait(&mut queue, LockMode::Read);
        assert!(queue.remove(LockMode::Write, tickets[1]).is_some());
        assert!(queue.remove(LockMode::Write, tickets[1]).is_none());
        assert_eq!(queue.len(), 3);
        assert!(queue.remove(LockMode::Write, tickets[0]).is_some());
        assert!(queue.remove(LockMode::Write, tickets[2]).is_some());
        assert_eq!(queue.head(), Some(LockMode::Read));
        assert_eq!(queue.take_all().len(), 1);
        assert!(queue.is_empty());
    }
}
