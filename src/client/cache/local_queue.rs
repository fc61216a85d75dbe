//! The queue of local requests, in the order of the server's queue: writers first in, first out,
//! and readers too. A reader that arrives while a writer waits, waits. When a write ends, the
//! readers that wait go before the next writer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rwlease_core::protocol::LockMode;
use tokio::sync::oneshot;

use crate::client::cache::UncachedReason;
use crate::client::cache::cached_lease::LeaseShare;
use crate::client::cache::cached_lock::CachedLock;

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

/// A position in the local queue. It completes when the request is granted. Dropping it removes the
/// request from the queue.
pub(crate) struct LocalWait<'a> {
    lock: &'a CachedLock,
    mode: LockMode,
    ticket: u64,
    outcome: Option<oneshot::Receiver<LocalWaitOutcome>>,
}

impl<'a> LocalWait<'a> {
    pub(super) fn new(
        lock: &'a CachedLock,
        mode: LockMode,
        ticket: u64,
        outcome: oneshot::Receiver<LocalWaitOutcome>,
    ) -> LocalWait<'a> {
        LocalWait { lock, mode, ticket, outcome: Some(outcome) }
    }
}

impl Future for LocalWait<'_> {
    type Output = LocalWaitOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LocalWaitOutcome> {
        let outcome = match &mut self.outcome {
            None => return Poll::Ready(LocalWaitOutcome::Uncached(None)),
            Some(outcome) => ready!(Pin::new(outcome).poll(context)),
        };
        self.outcome = None;
        Poll::Ready(outcome.unwrap_or(LocalWaitOutcome::Uncached(None)))
    }
}

impl Drop for LocalWait<'_> {
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        drop(self.lock.remove_waiter(self.mode, self.ticket));
        drop(outcome); // and with it a share that was granted meanwhile
        if let Some(lease) = self.lock.lease() {
            self.lock.admit_queued(&lease);
        }
        self.lock.wake();
    }
}

#[cfg(test)]
mod tests;
