//! The wait of one request in the local queue.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rwlease_core::protocol::LockMode;
use tokio::sync::oneshot;

use crate::client::cache::cached_lock::CachedLock;
use crate::client::cache::local_queue::LocalWaitOutcome;

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
