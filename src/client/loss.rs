//! Reports of all leases that a client loses.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease_core::acquisition::LossRecord;
use rwlease_core::protocol::{LockKey, LockMode};
use rwlease_core::slot::Slot;
use tokio::sync::Notify;

use crate::client::telemetry;
use crate::fencing_token::FencingToken;
use crate::health::catch;
use crate::locks::lock;
use crate::on_drop::OnDrop;
use crate::router::RuntimeHandle;

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
    /// The fencing token, which is stale from now on. `None` for a
    /// [`SetNxMutex`](crate::SetNxMutex).
    pub fencing_token: Option<FencingToken>,
    /// The time for which it was held.
    pub held_for: Duration,
    /// The number of guards that held it: one, or more for a cached lease.
    pub guard_count: u64,
}

impl LeaseLoss {
    /// The loss of a lease that one guard held.
    pub(crate) fn of_lease(lost: &LossRecord, lock: &LockKey) -> LeaseLoss {
        LeaseLoss {
            lock: lock.name.clone(),
            slot: lock.slot,
            mode: lost.mode,
            fencing_token: FencingToken::from_wire(lost.token),
            held_for: lost.held_for,
            guard_count: 1,
        }
    }
}

type LossCallback = Arc<dyn Fn(&LeaseLoss) + Send + Sync>;

/// The listener for losses.
#[derive(Clone, Default)]
pub struct LossListener(pub(crate) Option<LossCallback>);

/// Delivers the losses of a client to its listener in order.
///
/// A loss can be noticed in any task and on any thread, also by the caller who releases or drops a
/// guard, with the caller's own locks held. So a task of the client calls the listener. It runs
/// while there is something to deliver.
pub(crate) struct LossReports {
    on_lease_lost: LossListener,
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
    pub(crate) fn new(on_lease_lost: LossListener, runtime: RuntimeHandle) -> Arc<LossReports> {
        let (queue, delivered) = Default::default();
        Arc::new(LossReports { on_lease_lost, runtime, queue, delivered })
    }

    /// Reports a loss to the listener, if there is one. It works on any thread and does not wait.
    pub(crate) fn push(self: &Arc<Self>, loss: LeaseLoss) {
        if self.on_lease_lost.0.is_none() {
            return;
        }
        let mut queue = lock(&self.queue);
        if queue.losses.len() >= MAX_QUEUED {
            drop(queue);
            return telemetry::loss_unreported(&loss);
        }
        queue.losses.push_back(loss);
        let is_delivering = std::mem::replace(&mut queue.is_delivering, true);
        drop(queue);
        if !is_delivering {
            let reports = self.clone();
            let end_of_runtime = OnDrop::new(move || reports.drop_undelivered());
            self.runtime.spawn("losses", self.clone().deliver(end_of_runtime));
        }
    }

    /// Waits until the listener was called for all losses until now.
    pub(crate) async fn delivered(&self) {
        loop {
            let mut delivered = std::pin::pin!(self.delivered.notified());
            delivered.as_mut().enable();
            if !lock(&self.queue).is_delivering {
                return;
            }
            delivered.await;
        }
    }

    /// The task that calls the listener. With its runtime, the deliveries end.
    async fn deliver(self: Arc<Self>, end_of_runtime: OnDrop<impl FnOnce()>) {
        for count in 1_usize.. {
            let Some(loss) = self.next() else {
                break;
            };
            self.tell(&loss);
            if count.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        end_of_runtime.disarm();
        self.delivered.notify_waiters();
    }

    fn drop_undelivered(&self) {
        let undelivered = std::mem::take(&mut *lock(&self.queue));
        for loss in &undelivered.losses {
            // The subscriber is the caller's code.
            drop(catch(|| telemetry::loss_unreported(loss)));
        }
        self.delivered.notify_waiters();
    }

    /// The next loss. `None` ends the task.
    fn next(&self) -> Option<LeaseLoss> {
        let mut queue = lock(&self.queue);
        let next = queue.losses.pop_front();
        queue.is_delivering = next.is_some();
        next
    }

    /// A panic of the listener affects nothing else.
    fn tell(&self, loss: &LeaseLoss) {
        if let Some(listener) = &self.on_lease_lost.0
            && let Err(panic) = catch(|| listener(loss))
        {
            // The subscriber is the caller's code, too.
            drop(catch(|| telemetry::emit_listener_panicked(loss, &panic)));
        }
    }
}

impl fmt::Debug for LossListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LossListener").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests;
