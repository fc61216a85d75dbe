//! What all locks of one client share: the router, the clock, the settings, and the registry of
//! acquisitions.

pub(crate) mod acquire;
pub(crate) mod acquisition;
pub(crate) mod cache;
pub(crate) mod deadline;
pub(crate) mod hand_on;
pub(crate) mod in_doubt;
pub(crate) mod lost;
pub(crate) mod polling;
mod registry;
pub(crate) mod renewal;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod telemetry;
#[cfg(all(test, feature = "embedded"))]
mod tests;
pub(crate) mod worker;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::client::acquisition::{Acquisition, Context, Effects, Event, State};
use crate::client::cache::{Entries, Entry};
use crate::client::lost::{Loss, LossReports};
use crate::client::registry::{Registry, Work};
use crate::client::settings::Settings;
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::health::{ClientFailure, catch};
use crate::node::Reply;
use crate::protocol::{AcquisitionId, ClientId, LockKey, Scripts};
use crate::router::{Call, Runtime, Transport};
use crate::slot::Slot;
use crate::telemetry::emit_in_drop;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) router: Transport,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) scripts: &'static Scripts,
    id: ClientId,
    next: AtomicU64,
    registry: Mutex<Registry>,
    cache: Mutex<Entries>,
    runtime: Runtime,
    pub(crate) losses: Arc<LossReports>,
    /// The number of cached holds, including those that are being acquired. It is limited.
    cached: AtomicUsize,
    pub(crate) stray: cache::stray::Pause,
    /// Wakes the worker.
    pub(crate) wake: Notify,
    /// Notified when the last acquisition has ended.
    pub(crate) drained: Notify,
}

/// What users hold of a client. When the last handle is gone, the worker ends as soon as it has
/// nothing left to do.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Client>);

impl Client {
    pub(crate) fn new(
        router: Transport,
        clock: Arc<dyn Clock>,
        settings: Settings,
        scripts: &'static Scripts,
        id: ClientId,
    ) -> Self {
        let runtime = router.runtime().clone();
        let losses = LossReports::new(settings.on_lost.clone(), runtime.clone());
        Client {
            router,
            clock,
            settings,
            scripts,
            id,
            next: AtomicU64::new(0),
            registry: Mutex::default(),
            cache: Mutex::default(),
            runtime,
            losses,
            cached: AtomicUsize::new(0),
            stray: cache::stray::Pause::default(),
            wake: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Registers a new acquisition, before anything is sent for it.
    pub(crate) fn register(&self, lock: &LockKey, state: State) -> Result<Arc<Acquisition>> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let id = self.id.acquisition(count);
        let acquisition = Arc::new(Acquisition::new(id, count, lock.clone(), state));
        if self.registry().add(acquisition.clone()) {
            Ok(acquisition)
        } else {
            let error = Error::new(ErrorKind::Cancelled, "the client is shut down");
            Err(lock.with_lock(self.failure_or(error)))
        }
    }

    /// Applies an event to an acquisition: changes its state, carries out the consequences, and
    /// returns the effects that are left to the caller. It works on any thread and does not wait.
    pub(crate) fn on(&self, acquisition: &Acquisition, event: Event) -> Effects {
        let (random, kind) = (fastrand::f64(), acquisition.lock.kind);
        let mut effects = {
            let mut state = acquisition.state();
            // Read while the state is locked, so that no event acts on an earlier time than the one
            // at which somebody has seen that the lease was over.
            let now = self.clock.now();
            state.on(event, &Context { now, random, settings: &self.settings, kind })
        };
        if effects.lost.is_some() {
            acquisition.note_loss();
        }
        if effects.ended {
            acquisition.tell_end();
        } else if effects.changed {
            acquisition.changed.notify_waiters();
        }
        if effects.pump {
            self.pump(&acquisition.lock);
        }
        if effects.over {
            self.forget(acquisition);
        } else if let Some(due) = effects.look {
            self.look_by(acquisition, due, effects.is_release);
        }
        // Last, because a subscriber may panic. By then everything is done.
        emit_in_drop(|| self.report(acquisition, &mut effects));
        effects
    }

    /// Emits the events of a transition.
    fn report(&self, acquisition: &Acquisition, effects: &mut Effects) {
        let lost = effects.lost.take().filter(|lost| lost.is_reported);
        if let Some(lost) = lost {
            let outcome = lost.outcome();
            self.lose(lost.of(&acquisition.lock), outcome);
        }
        if let Some((mode, how, took)) = effects.held.take() {
            telemetry::held(mode, how, took);
        }
        if let Some(note) = effects.note.take() {
            telemetry::tell(&acquisition.lock, note);
        }
    }

    /// Reports a loss. When the runtime has ended, which is usual at the end of a program, nothing
    /// is left that could.
    pub(crate) fn lose(&self, loss: Loss, outcome: &'static str) {
        if self.failure() == Some(&ClientFailure::RuntimeEnded) {
            return;
        }
        self.losses.push(loss.clone());
        telemetry::lost(&loss, outcome);
    }

    /// Why the client can do nothing any more.
    pub(crate) fn failure(&self) -> Option<&ClientFailure> {
        self.runtime.health().failure()
    }

    /// The failure of the client, if it has failed, and otherwise this error.
    pub(crate) fn failure_or(&self, error: Error) -> Error {
        self.failure().map_or(error, |failure| failure.clone().into())
    }

    /// Ends the client, which has failed: all leases are lost, all requests end, and later ones
    /// fail. The caller's code runs in each step, and may panic.
    pub(crate) fn fail(&self) {
        self.registry().fail();
        drop(catch(|| self.router.close()));
        for acquisition in self.all() {
            drop(catch(|| self.on(&acquisition, Event::ClientFailed)));
        }
        self.drained.notify_waiters();
        self.wake.notify_one();
        if let Some(failure) = self.failure() {
            drop(catch(|| telemetry::client_failed(&self.id, failure)));
        }
    }

    /// Removes an acquisition that has ended.
    fn forget(&self, acquisition: &Acquisition) {
        let was_the_last = self.registry().remove(acquisition.count);
        if was_the_last {
            self.drained.notify_waiters();
            self.wake.notify_one();
        }
    }

    /// Makes the worker look at this acquisition at `due`, or earlier. Leases go before releases.
    fn look_by(&self, acquisition: &Acquisition, due: Moment, is_release: bool) {
        let sleeps_past = self.registry().note(acquisition.count, due, is_release);
        if sleeps_past {
            self.wake.notify_one();
        }
    }

    /// Makes the worker continue what a call left over.
    pub(crate) fn pump(&self, lock: &LockKey) {
        self.registry().pump(lock);
        self.wake.notify_one();
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// The id, if it is one of this client's.
    pub(crate) fn own_id(&self, id: &str) -> Option<AcquisitionId> {
        AcquisitionId::count_of(id, &self.id).map(|count| self.id.acquisition(count))
    }

    /// The acquisition with this id.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Acquisition>> {
        let count = AcquisitionId::count_of(id, &self.id)?;
        self.registry().get(count)
    }

    /// The acquisitions of this client that wait in a slot, in the order of their creation.
    pub(crate) fn waiters_in(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        self.registry().waiters_in(slot)
    }

    /// All acquisitions, in the order of their creation.
    pub(crate) fn all(&self) -> Vec<Arc<Acquisition>> {
        self.registry().all()
    }

    /// Subscribes in the lock's slot for an acquisition that waits, until the result is dropped.
    pub(crate) fn wait_in(self: &Arc<Self>, acquisition: &Acquisition) -> WaitingIn {
        self.subscribe(acquisition.lock.slot, acquisition.count)
    }

    /// Subscribes in a slot for the locks cached there, until the result is dropped.
    pub(crate) fn wait_in_slot(self: &Arc<Self>, slot: Slot) -> WaitingIn {
        self.subscribe(slot, self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn subscribe(self: &Arc<Self>, slot: Slot, count: u64) -> WaitingIn {
        let mut registry = self.registry();
        if registry.begin_wait(slot, count, self.clock.now()) {
            // Before the registry is unlocked and the slot can be found idle, so that the two
            // commands reach the router in the right order.
            self.router.want(slot, self.id.channel(slot));
        }
        drop(registry);
        WaitingIn { client: self.clone(), slot, count }
    }

    /// The cached lock with this key. All handles share it.
    pub(crate) fn cache_entry(self: &Arc<Self>, lock: &LockKey) -> Arc<Entry> {
        let new = || Arc::new(Entry::new(self.clone(), lock.clone()));
        self.entries().find_or_add(lock, new)
    }

    /// The cached locks of a slot.
    pub(crate) fn cache_entries(&self, slot: Slot) -> Vec<Arc<Entry>> {
        self.entries().of_slot(slot)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks for recalls that may have been lost in this slot.
    pub(crate) fn look_for_recalls(&self, slot: Slot) {
        self.cache_entries(slot).iter().for_each(|entry| entry.look_for_recalls());
    }

    /// Runs a task on the client's runtime. It works on any thread.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        self.runtime.spawn(name, task).abort_handle()
    }

    /// Starts the worker, and ends the client if it fails.
    pub(crate) fn start(self: &Arc<Self>) {
        let client = Arc::downgrade(self);
        self.runtime.health().on_failure(move || {
            if let Some(client) = client.upgrade() {
                client.fail();
            }
        });
        self.runtime.spawn_vital("worker", worker::run(self.clone()));
    }

    pub(crate) fn may_cache_more(&self) -> bool {
        self.cached.load(Ordering::Relaxed) < self.settings.cache.max_cached
    }

    /// Reserves room for one more cached hold, if there is any. Call it before the hold is
    /// acquired.
    pub(crate) fn room_to_cache(self: &Arc<Self>) -> Option<Room> {
        let most = self.settings.cache.max_cached;
        let take = |cached: usize| (cached < most).then_some(cached + 1);
        let taken = self.cached.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then(|| Room(self.clone()))
    }

    /// Gives up the subscriptions of slots in which nobody has waited for a while.
    pub(crate) fn drop_idle_subscriptions(&self) {
        let now = self.clock.now();
        self.registry().drop_idle(now, |slot| self.router.unwant(slot));
    }

    /// Takes work that is due, as much as fits into one turn of the worker.
    pub(crate) fn take_work(&self, now: Moment) -> Work {
        self.registry().take_work(now)
    }

    /// Sends a query about a lock, which changes nothing.
    pub(crate) async fn query(&self, lock: &LockKey, question: &Call) -> Result<Reply> {
        let until = self.clock.now().after(self.settings.call_timeout);
        let answer = self.router.call(question, until).await;
        answer.map(|answer| answer.reply).map_err(|error| lock.with_lock(error))
    }

    /// When the worker must wake by itself. From here on, earlier work wakes it.
    pub(crate) fn sleep_until(&self, at_most: Moment) -> Moment {
        self.registry().sleep_until(at_most)
    }

    /// Stops taking locks.
    pub(crate) fn close(&self) {
        self.registry().close();
    }

    /// Notes that the last handle of the client is gone.
    pub(crate) fn disown(&self) {
        self.registry().disown();
        self.wake.notify_one();
    }

    /// Whether nothing is left to wait for: nothing is held or acquired, or the client has failed.
    pub(crate) fn is_drained(&self) -> bool {
        self.registry().is_drained()
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Handle {
    type Target = Arc<Client>;

    fn deref(&self) -> &Arc<Client> {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.disown();
    }
}

/// One place among the limited number of cached holds.
#[derive(Debug)]
pub(crate) struct Room(Arc<Client>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.cached.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiter's share of a subscription.
#[derive(Debug)]
pub(crate) struct WaitingIn {
    client: Arc<Client>,
    slot: Slot,
    count: u64,
}

impl Drop for WaitingIn {
    fn drop(&mut self) {
        let now = self.client.clock.now();
        self.client.registry().end_wait(self.slot, self.count, now);
    }
}
