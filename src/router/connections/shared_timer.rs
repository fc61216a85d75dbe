//! One timer for all calls that wait on a connection, while their deadlines are far away: a timer
//! for each call would cost more than the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::on_drop::OnDrop;
use crate::router::runtime::RuntimeHandle;

/// Wakes all waiting calls once a period, while there are any.
pub(crate) struct SharedTimer {
    clock: Arc<dyn Clock>,
    period: Duration,
    runtime: RuntimeHandle,
    tick: Notify,
    /// A call has waited since the last beat.
    has_waiters: AtomicBool,
    /// The task that beats is running.
    is_running: AtomicBool,
}

impl SharedTimer {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        period: Duration,
        runtime: RuntimeHandle,
    ) -> Arc<SharedTimer> {
        Arc::new(SharedTimer {
            clock,
            period,
            runtime,
            tick: Notify::new(),
            has_waiters: AtomicBool::new(false),
            is_running: AtomicBool::new(false),
        })
    }

    /// Returns true if a wait for the next beat ends in time for a deadline that is `left` away.
    pub(crate) fn ticks_before(&self, left: Duration) -> bool {
        left >= self.period * 2
    }

    /// Resolves at the next beat, at most a period from now.
    pub(crate) async fn next_tick(self: &Arc<Self>) {
        let beat = self.tick.notified();
        if !self.has_waiters.load(Ordering::SeqCst) {
            self.has_waiters.store(true, Ordering::SeqCst);
        }
        if !self.is_running.load(Ordering::SeqCst) && !self.is_running.swap(true, Ordering::SeqCst)
        {
            let timer = self.clone();
            let end_of_runtime = OnDrop::new(move || {
                timer.is_running.store(false, Ordering::SeqCst);
                timer.tick.notify_waiters();
            });
            let task = self.clone().run(end_of_runtime);
            // With its runtime, the client's connections have ended: each caller beats for itself.
            if self.runtime.spawn("timer of calls", task).is_finished() {
                return self.pause().await;
            }
        }
        beat.await;
    }

    /// The task that ticks. It ends when no call has waited for a period, or with its runtime.
    async fn run(self: Arc<Self>, end_of_runtime: OnDrop<impl FnOnce()>) {
        let SharedTimer { tick, has_waiters, is_running, .. } = &*self;
        loop {
            self.pause().await;
            let had_waiters = has_waiters.swap(false, Ordering::SeqCst);
            tick.notify_waiters();
            if had_waiters {
                continue;
            }
            is_running.store(false, Ordering::SeqCst);
            // A caller may have come that still saw it run.
            if !has_waiters.load(Ordering::SeqCst) || is_running.swap(true, Ordering::SeqCst) {
                return end_of_runtime.disarm();
            }
        }
    }

    async fn pause(&self) {
        self.clock.sleep_until(self.clock.now().saturating_add(self.period)).await;
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests;
