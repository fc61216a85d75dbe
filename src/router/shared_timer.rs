//! One timer for all calls that wait on a connection, while their deadlines are far away: a timer
//! for each call would cost more than the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::router::runtime::RuntimeHandle;

/// Wakes all waiting calls once a period, while there are any.
#[derive(Debug)]
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
            let mut beating = TimerTask { pulse: self.clone(), has_ended: false };
            // With its runtime, the client's connections have ended: each caller beats for itself.
            if self
                .runtime
                .spawn("timer of calls", async move { beating.run().await })
                .is_finished()
            {
                return self.pause().await;
            }
        }
        beat.await;
    }

    async fn pause(&self) {
        self.clock.sleep_until(self.clock.now().saturating_add(self.period)).await;
    }
}

/// The task that beats. It ends when no call has waited for a period, or with its runtime.
struct TimerTask {
    pulse: Arc<SharedTimer>,
    has_ended: bool,
}

impl TimerTask {
    async fn run(&mut self) {
        let SharedTimer { tick: beats, has_waiters: used, is_running: runs, .. } = &*self.pulse;
        loop {
            self.pulse.pause().await;
            let is_used = used.swap(false, Ordering::SeqCst);
            beats.notify_waiters();
            if is_used {
                continue;
            }
            runs.store(false, Ordering::SeqCst);
            // A caller may have come that still saw it run.
            if !used.load(Ordering::SeqCst) || runs.swap(true, Ordering::SeqCst) {
                self.has_ended = true;
                return;
            }
        }
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        if !self.has_ended {
            self.pulse.is_running.store(false, Ordering::SeqCst);
            self.pulse.tick.notify_waiters();
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::health::ClientHealth;

    const PERIOD: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn pulse_beats_wake_every_caller_and_end_without_callers() {
        let pulse = SharedTimer::new(
            Arc::new(SystemClock),
            PERIOD,
            RuntimeHandle::current(ClientHealth::default()),
        );
        assert!(pulse.ticks_before(PERIOD * 2) && !pulse.ticks_before(PERIOD));
        for _ in 0..3 {
            futures::join!(pulse.next_tick(), pulse.next_tick());
            assert!(pulse.is_running.load(Ordering::SeqCst));
        }
        while pulse.is_running.load(Ordering::SeqCst) {
            tokio::time::sleep(PERIOD).await;
        }
        assert_eq!(Arc::strong_count(&pulse), 1, "nobody waits, and the task has ended");
        pulse.next_tick().await;
    }

    fn two_runtimes() -> [tokio::runtime::Runtime; 2] {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
        [runtime().unwrap(), runtime().unwrap()]
    }

    fn on(runtime: &tokio::runtime::Runtime) -> Arc<SharedTimer> {
        let _inside = runtime.enter();
        SharedTimer::new(
            Arc::new(SystemClock),
            PERIOD,
            RuntimeHandle::current(ClientHealth::default()),
        )
    }

    #[test]
    fn pulse_beats_while_the_runtime_of_its_first_caller_is_blocked() {
        let [client, caller] = two_runtimes();
        let pulse = on(&client);
        let mut waiting = Box::pin(pulse.next_tick());
        caller.block_on(async { assert!(futures::poll!(&mut waiting).is_pending()) });
        let beaten = async { tokio::time::timeout(PERIOD * 1000, pulse.next_tick()).await };
        client.block_on(beaten).expect("a beat");
    }

    #[test]
    fn pulse_beat_after_its_runtime_has_ended_wakes_each_caller() {
        let [first, second] = two_runtimes();
        let pulse = on(&first);
        first.block_on(pulse.next_tick());
        let mut waiting = Box::pin(pulse.next_tick());
        second.block_on(async { assert!(futures::poll!(&mut waiting).is_pending()) });
        drop(first);
        second.block_on(waiting);
        let start = std::time::Instant::now();
        second.block_on(pulse.next_tick());
        assert!(start.elapsed() >= PERIOD, "each caller waits by itself");
    }
}
