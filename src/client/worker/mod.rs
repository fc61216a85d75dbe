//! The worker: the task of a client that renews, changes and releases leases.
//!
//! It never waits for one server: calls are grouped by server and sent independently, each group in
//! a task of its own, and each answer is handled when it arrives. A turn of the worker has a
//! bounded amount of work, however many guards there are. Then the other tasks of the runtime have
//! theirs.

mod push_handler;
mod send;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use rwlease_core::acquisition::AcquisitionEvent;
use rwlease_core::protocol::{
    Confirmation, Envelope, LockKey, grant_waiters_request, parse_grant_waiters_reply,
};
use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;

use crate::client::ClientInner;
use crate::client::acquisition::Acquisition;
use crate::on_drop::OnDrop;

pub(crate) use push_handler::install_push_handler;
use send::{CallGroup, WorkerBatch};

/// How long the worker sleeps when nothing is due.
const IDLE_SLEEP: Duration = Duration::from_secs(10);

/// Runs until the client's last handle and its last acquisition are gone, or the client has failed.
pub(crate) async fn run(client: Arc<ClientInner>) {
    let tasks = Arc::<Tasks>::default();
    let _record = client.start_record();
    let mut cleanup_at = client.clock.now().saturating_add(IDLE_SLEEP);
    loop {
        let now = client.clock.now();
        let work = client.registry().take_due(now);
        send_due(&client, work.acquisitions, now, &tasks);
        for lock in work.locks_to_grant {
            tasks.start(&client, grant_until_done(client.clone(), lock));
        }
        if now >= cleanup_at {
            client.drop_idle_subscriptions();
            cleanup_at = now.saturating_add(IDLE_SLEEP);
        }
        if work.is_finished && tasks.have_ended() {
            break;
        }
        if work.has_more {
            tokio::task::yield_now().await;
            continue;
        }
        let until = client.registry().sleep_until(cleanup_at);
        tokio::select! {
            biased;
            () = client.worker_wake.notified() => {}
            () = client.clock.watch_until(until) => {}
        }
    }
    client.transport.close();
}

/// The number of running tasks that send the due calls of the worker.
#[derive(Debug, Default)]
struct Tasks(AtomicUsize);

impl Tasks {
    /// Sends at once, because a busy runtime may run a new task late. Waits for the replies in a
    /// new task.
    fn start(
        self: &Arc<Self>,
        client: &Arc<ClientInner>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let (tasks, worker) = (self.clone(), client.clone());
        // The last one wakes the worker, which may have to end.
        let end = OnDrop::new(move || {
            if tasks.0.fetch_sub(1, Ordering::Relaxed) == 1 {
                worker.worker_wake.notify_one();
            }
        });
        let mut work = Box::pin(async move {
            let _end = end;
            work.await;
        });
        if (&mut work).now_or_never().is_none() {
            client.spawn("calls of the worker", work);
        }
    }

    fn have_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

fn send_due(
    client: &Arc<ClientInner>,
    due: Vec<Arc<Acquisition>>,
    now: LocalInstant,
    tasks: &Arc<Tasks>,
) {
    let mut groups: BTreeMap<(CallGroup, Option<Address>), WorkerBatch> = BTreeMap::new();
    let router = client.transport.router();
    for acquisition in due {
        let effects = client.apply(&acquisition, AcquisitionEvent::TimerFired);
        for call in effects.worker_calls.into_iter().flatten() {
            let master = router.and_then(|router| router.master_of(acquisition.lock.slot));
            let group = groups.entry((CallGroup::of(&call), master)).or_default();
            group.push((acquisition.clone(), call));
        }
    }
    for ((kind, _), batch) in groups {
        tasks.start(client, send::send_batch(client.clone(), kind, batch, now));
    }
}

/// Sends `grant_waiters` until no work is left.
async fn grant_until_done(client: Arc<ClientInner>, lock: LockKey) {
    loop {
        let until = client.call_deadline(Confirmation::default());
        match client
            .transport
            .call(&grant_waiters_request(&lock), until)
            .await
            .map(|reply| parse_grant_waiters_reply(reply.value))
        {
            Ok(Ok(Envelope { has_more_work: true, .. })) => {}
            _ => return, // the poll of the queue's head continues the work
        }
    }
}

#[cfg(all(test, feature = "embedded"))]
mod tests;
