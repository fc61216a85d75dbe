//! The queue of local requests, in the order of the server's queue: writers first in, first out,
//! and readers too. A reader that arrives while a writer waits, waits. When a write ends, the
//! readers that wait go before the next writer.

use std::collections::VecDeque;

use rwlease_core::protocol::LockMode;
use tokio::sync::oneshot;

use crate::client::cache::UncachedReason;
use crate::client::cache::lease_share::LeaseShare;

pub(crate) enum LocalWaitOutcome {
    Granted(LeaseShare),
    /// Go on by a request to the server: for this reason, or because the lease could not be
    /// acquired.
    Uncached(Option<UncachedReason>),
}

pub(super) type GrantSender = oneshot::Sender<LocalWaitOutcome>;

#[derive(Default)]
pub(super) struct LocalQueue {
    readers: VecDeque<(u64, GrantSender)>,
    writers: VecDeque<(u64, GrantSender)>,
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
mod tests;
