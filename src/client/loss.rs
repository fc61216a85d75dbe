//! Reports of all leases that a client loses.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::telemetry;
use crate::health::catch;
use crate::protocol::LockMode;
use crate::router::RuntimeHandle;
use crate::slot::Slot;

/// The most losses that wait for the listener. Further ones are not reported to it.
const MAX_QUEUED: usize = 1 << 17;

/// After how many calls of the listener other tasks have their turn.
const TURN: usize = 32;

/// A lease that was lost: it ended while a guard held it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseLoss {
    /// The lock's name.
    pub lock: Arc<str>,
    /// The lock's slot.
    pub slot: Slot,
    /// The mode in which it was held.
    pub mode: LockMode,
    /// The fencing token, which is stale from now on.
    pub token: u64,
    /// The time for which it was held.
    pub held_for: Duration,
    /// The number of guards that held it: one, or more for a cached lease.
    pub guard_count: u64,
}

type LossCallback = Arc<dyn Fn(&LeaseLoss) + Send + Sync>;

/// The listener for losses.
#[derive(Clone, Default)]
pub(crate) struct LossListener(pub(crate) Option<LossCallback>);

/// Delivers the losses of a client to its listener, one after the other.
///
/// A loss can be noticed in any task and on any thread, also by the caller who releases or drops a
/// guard, with the caller's own locks held. So a task of the client calls the listener. It runs
/// while there is something to deliver.
#[derive(Debug)]
pub(crate) struct LossReports {
    on_lost: LossListener,
    runtime: RuntimeHandle,
    queue: Mutex<LossQueue>,
    /// Notified when everything is delivered.
    delivered: Notify,
}

#[derive(Debug, Default)]
struct LossQueue {
    losses: VecDeque<LeaseLoss>,
    /// Whether the task runs.
    is_delivering: bool,
}

impl LossReports {
    pub(crate) fn new(on_lost: LossListener, runtime: RuntimeHandle) -> Arc<LossReports> {
        let (queue, delivered) = Default::default();
        Arc::new(LossReports { on_lost, runtime, queue, delivered })
    }

    /// Reports a loss to the listener, if there is one. It works on any thread and does not wait.
    pub(crate) fn push(self: &Arc<Self>, loss: LeaseLoss) {
        if self.on_lost.0.is_none() {
            return;
        }
        let mut queue = self.queue();
        if queue.losses.len() >= MAX_QUEUED {
            drop(queue);
            return telemetry::loss_unreported(&loss);
        }
        queue.losses.push_back(loss);
        let is_delivering = std::mem::replace(&mut queue.is_delivering, true);
        drop(queue);
        if !is_delivering {
            let delivery = LossDelivery { reports: self.clone(), is_over: false };
            self.runtime.spawn("losses", delivery.run());
        }
    }

    /// Waits until the listener has been told of everything so far.
    pub(crate) async fn delivered(&self) {
        loop {
            let mut delivered = std::pin::pin!(self.delivered.notified());
            delivered.as_mut().enable();
            if !self.queue().is_delivering {
                return;
            }
            delivered.await;
        }
    }

    /// The next loss. `None` ends the task.
    fn next(&self) -> Option<LeaseLoss> {
        let mut queue = self.queue();
        let next = queue.losses.pop_front();
        queue.is_delivering = next.is_some();
        next
    }

    /// A panic of the listener affects nothing else.
    fn tell(&self, loss: &LeaseLoss) {
        if let Some(listener) = &self.on_lost.0
            && let Err(panic) = catch(|| listener(loss))
        {
            // The subscriber is the caller's code, too.
            drop(catch(|| telemetry::emit_listener_panicked(loss, &panic.message)));
        }
    }

    fn queue(&self) -> MutexGuard<'_, LossQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that calls the listener. With its runtime, the deliveries end.
struct LossDelivery {
    reports: Arc<LossReports>,
    is_over: bool,
}

impl LossDelivery {
    async fn run(mut self) {
        for count in 1_usize.. {
            let Some(loss) = self.reports.next() else {
                break;
            };
            self.reports.tell(&loss);
            if count.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        self.is_over = true;
    }
}

impl Drop for LossDelivery {
    fn drop(&mut self) {
        if !self.is_over {
            let undelivered = std::mem::take(&mut *self.reports.queue());
            for loss in &undelivered.losses {
                // The subscriber is the caller's code.
                drop(catch(|| telemetry::loss_unreported(loss)));
            }
        }
        self.reports.delivered.notify_waiters();
    }
}

impl fmt::Debug for LossListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnLost").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::health::ClientHealth;

    fn loss(token: u64) -> LeaseLoss {
        let (lock, slot) = ("a".into(), Slot::of("a"));
        LeaseLoss {
            lock,
            slot,
            mode: LockMode::Read,
            token,
            held_for: Duration::ZERO,
            guard_count: 1,
        }
    }

    #[tokio::test]
    async fn on_lost_listener_that_panics_gets_every_loss_in_order() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let tell = heard.clone();
        let on_lost = LossListener(Some(Arc::new(move |loss: &LeaseLoss| {
            tell.lock().unwrap_or_else(PoisonError::into_inner).push(loss.token);
            assert!(!loss.token.is_multiple_of(3), "as the test wants");
        })));
        let reports = LossReports::new(on_lost, RuntimeHandle::current(ClientHealth::default()));
        for _ in 0..2 {
            (0..100).for_each(|token| reports.push(loss(token)));
            assert!(heard.lock().unwrap().is_empty(), "not by the caller");
            reports.delivered().await;
            let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
            assert!(heard.into_iter().eq(0..100));
        }
        assert_eq!(reports.runtime.health().failure(), None);
        assert_eq!(Arc::strong_count(&reports), 1, "the task has ended");
    }

    #[tokio::test]
    async fn a_listener_that_is_far_behind_costs_a_bounded_memory() {
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let on_lost = LossListener(Some(Arc::new(move |_: &LeaseLoss| {
            count.fetch_add(1, Ordering::Relaxed);
        })));
        let reports = LossReports::new(on_lost, RuntimeHandle::current(ClientHealth::default()));
        (0..MAX_QUEUED as u64 + 10).for_each(|token| reports.push(loss(token)));
        assert_eq!(reports.queue().losses.len(), MAX_QUEUED);
        reports.delivered().await;
        assert_eq!(heard.load(Ordering::Relaxed), MAX_QUEUED);
    }

    #[test]
    fn deliveries_end_with_their_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let on_lost = LossListener(Some(Arc::new(|_: &LeaseLoss| {})));
        let reports = {
            let _inside = runtime.enter();
            LossReports::new(on_lost, RuntimeHandle::current(ClientHealth::default()))
        };
        reports.push(loss(1));
        drop(runtime);
        reports.push(loss(2));
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        other.block_on(reports.delivered());
        assert!(reports.queue().losses.is_empty());
    }
}
