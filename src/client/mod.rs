//! What all locks of one client share: the router, the clock, the settings, and the registry of
//! acquisitions.

pub(crate) mod acquire_task;
pub(crate) mod acquisition;
pub(crate) mod cache;
pub(crate) mod client_record;
pub(crate) mod config;
pub(crate) mod label;
pub(crate) mod loss;
pub(crate) mod manual_renewal;
mod registry;
pub(crate) mod telemetry;
#[cfg(all(test, feature = "embedded"))]
mod tests;
pub(crate) mod transfer;
pub(crate) mod worker;

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rwlease_core::acquisition::{
    AcquisitionError, AcquisitionEvent, AcquisitionState, Context, Effects,
};
use rwlease_core::protocol::{
    AcquisitionId, Call, CallError, CallErrorKind, ClientId, Confirmation, Doubt, LockKey,
    ReplyError,
};
use rwlease_core::resp::RespValue;
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::client::acquisition::Acquisition;
use crate::client::cache::{CachedLock, CachedLockMap};
use crate::client::client_record::{ClientRecord, KnownClients};
use crate::client::config::ClientConfig;
use crate::client::loss::{LeaseLoss, LossReports};
use crate::client::registry::AcquisitionRegistry;
use crate::clock::Clock;
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::health::{ClientFailure, catch};
use crate::locks;
use crate::on_drop::OnDrop;
use crate::router::{RuntimeHandle, Transport};
use crate::telemetry::emit_in_drop;

pub(crate) struct ClientInner {
    pub(crate) transport: Transport,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: ClientConfig,
    id: ClientId,
    next_acquisition: AtomicU64,
    registry: Mutex<AcquisitionRegistry>,
    cached_locks: Mutex<CachedLockMap>,
    runtime: RuntimeHandle,
    pub(crate) losses: Arc<LossReports>,
    known_clients: KnownClients,
    record: ClientRecord,
    /// The number of cached holds, including those that are being acquired. It is limited.
    cached_lease_count: AtomicUsize,
    pub(crate) stale_recall_limit: RateLimit,
    pub(crate) silence_report_limit: RateLimit,
    pub(crate) worker_wake: Notify,
    /// Notified when the last acquisition has ended.
    pub(crate) drained: Notify,
}

/// What users hold of a client. When the last handle is gone, the worker ends as soon as it has
/// nothing left to do.
pub(crate) struct ClientHandle(pub(crate) Arc<ClientInner>);

impl ClientInner {
    pub(crate) fn new(
        router: Transport,
        clock: Arc<dyn Clock>,
        settings: ClientConfig,
        id: ClientId,
    ) -> Self {
        let runtime = router.runtime().clone();
        let losses = LossReports::new(settings.loss_listener.clone(), runtime.clone());
        ClientInner {
            transport: router,
            clock,
            settings,
            id,
            next_acquisition: AtomicU64::new(0),
            registry: Mutex::default(),
            cached_locks: Mutex::default(),
            runtime,
            losses,
            known_clients: KnownClients::default(),
            record: ClientRecord::default(),
            cached_lease_count: AtomicUsize::new(0),
            stale_recall_limit: RateLimit::default(),
            silence_report_limit: RateLimit::default(),
            worker_wake: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Registers a new acquisition, before anything is sent for it.
    pub(crate) fn register(
        &self,
        lock: &LockKey,
        state: AcquisitionState,
    ) -> Result<Arc<Acquisition>> {
        let count = self.next_acquisition.fetch_add(1, Ordering::Relaxed);
        let id = self.id.acquisition(count);
        let acquisition = Arc::new(Acquisition::new(id, count, lock.clone(), state));
        if self.registry().add(acquisition.clone()) {
            Ok(acquisition)
        } else {
            let error = Error::new(ErrorKind::Cancelled, "the client is shut down");
            Err(lock.add_context(self.failure_or(error)))
        }
    }

    /// Applies an event to an acquisition: changes its state, carries out the consequences, and
    /// returns the effects that are left to the caller. It works on any thread and does not wait.
    pub(crate) fn apply(&self, acquisition: &Acquisition, event: AcquisitionEvent) -> Effects {
        let (random, kind) = (fastrand::f64(), acquisition.lock.kind);
        let mut effects = {
            let mut state = acquisition.state();
            let event = match (event, &*state) {
                (
                    AcquisitionEvent::Abandon | AcquisitionEvent::RequestEnded,
                    AcquisitionState::Requesting(_),
                ) if acquisition.send_gate.close() => AcquisitionEvent::Withdraw,
                (event, _) => event,
            };
            // Read while the state is locked, so that no event acts on an earlier time than the one
            // at which somebody has seen that the lease was over.
            let now = self.clock.now();
            let effects = state.apply(
                event,
                &Context {
                    now,
                    jitter: random,
                    settings: &self.settings.acquisition,
                    lock_kind: kind,
                },
            );
            if let AcquisitionState::Held(lease) = &*state {
                acquisition.set_fencing_token(lease.token);
            }
            // While the state is locked, so that nobody sees the lease gone and not lost.
            if effects.loss.is_some() {
                acquisition.mark_lost();
            }
            effects
        };
        if effects.notify_end {
            acquisition.notify_end();
        } else if effects.notify_waiters {
            acquisition.changed.notify_waiters();
        }
        if effects.grant_waiters {
            self.grant_waiters(&acquisition.lock);
        }
        if !effects.deregister
            && let Some(due) = effects.wake_worker_at
        {
            self.look_by(acquisition, due, effects.is_release);
        }
        // A subscriber may panic, and the acquisition ends all the same. It ends after its events,
        // so that they precede the end of `shutdown`.
        let ended = effects.deregister.then(|| OnDrop::new(|| self.deregister(acquisition)));
        emit_in_drop(|| self.report(acquisition, &mut effects));
        drop(ended);
        effects
    }

    /// Emits the events of a transition.
    fn report(&self, acquisition: &Acquisition, effects: &mut Effects) {
        let lost = effects.loss.take().filter(|lost| lost.is_reported);
        if let Some(lost) = lost {
            let reason = lost.reason();
            self.lose(LeaseLoss::of_lease(&lost, &acquisition.lock), reason);
        }
        if let Some((mode, how, took)) = effects.hold_end.take() {
            telemetry::record_hold(mode, how, took);
        }
        if let Some(note) = effects.telemetry.take() {
            telemetry::emit(&acquisition.lock, note);
        }
    }

    /// Reports a loss, unless the runtime has ended, which is usual at the end of a program.
    pub(crate) fn lose(&self, loss: LeaseLoss, reason: &'static str) {
        if self.failure() == Some(&ClientFailure::RuntimeEnded) {
            return;
        }
        self.losses.push(loss.clone());
        telemetry::record_loss(&loss, reason);
    }

    /// Returns why the client has failed, if it has.
    pub(crate) fn failure(&self) -> Option<&ClientFailure> {
        self.runtime.health().failure()
    }

    /// Returns the failure of the client, or this error if the client has not failed.
    pub(crate) fn failure_or(&self, error: impl Into<Error>) -> Error {
        self.failure().map_or_else(|| error.into(), |failure| failure.clone().into())
    }

    /// Ends the client, which has failed: all leases are lost, all requests end, and later ones
    /// fail. The caller's code runs in each step, and may panic.
    pub(crate) fn fail(&self) {
        self.registry().fail();
        drop(catch(|| self.transport.close()));
        for acquisition in self.acquisitions() {
            drop(catch(|| self.apply(&acquisition, AcquisitionEvent::ClientFailed)));
        }
        self.drained.notify_waiters();
        self.worker_wake.notify_one();
        if let Some(failure) = self.failure() {
            drop(catch(|| telemetry::client_failed(&self.id, failure)));
        }
    }

    /// Removes an acquisition that has ended.
    fn deregister(&self, acquisition: &Acquisition) {
        let was_the_last = self.registry().remove(acquisition.number);
        if was_the_last {
            self.drained.notify_waiters();
            self.worker_wake.notify_one();
        }
    }

    /// Makes the worker look at this acquisition at `due`, or earlier. Leases go before releases.
    fn look_by(&self, acquisition: &Acquisition, due: LocalInstant, is_release: bool) {
        let sleeps_past = self.registry().schedule(acquisition.number, due, is_release);
        if sleeps_past {
            self.worker_wake.notify_one();
        }
    }

    /// Makes the worker continue what a call left over.
    pub(crate) fn grant_waiters(&self, lock: &LockKey) {
        self.registry().grant_waiters(lock);
        self.worker_wake.notify_one();
    }

    /// Returns an id that this client uses only once.
    pub(crate) fn next_id(&self) -> AcquisitionId {
        self.id.acquisition(self.next_acquisition.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn id(&self) -> ClientId {
        self.id
    }

    /// Returns the id if it belongs to this client.
    pub(crate) fn parse_own_id(&self, id: &str) -> Option<AcquisitionId> {
        AcquisitionId::counter_of(id, &self.id).map(|count| self.id.acquisition(count))
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Acquisition>> {
        let count = AcquisitionId::counter_of(id, &self.id)?;
        self.registry().get(count)
    }

    /// The acquisitions of this client that wait in a slot, in the order of their creation.
    pub(crate) fn waiters_in(&self, slot: Slot) -> Vec<Arc<Acquisition>> {
        self.registry().waiters_in(slot)
    }

    /// All acquisitions, in the order of their creation.
    pub(crate) fn acquisitions(&self) -> Vec<Arc<Acquisition>> {
        self.registry().all()
    }

    /// Subscribes in the lock's slot for an acquisition that waits, until the result is dropped.
    pub(crate) fn subscribe_for(self: &Arc<Self>, acquisition: &Acquisition) -> SlotSubscription {
        self.subscribe(acquisition.lock.slot, acquisition.number)
    }

    /// Subscribes in a slot for the locks cached there, until the result is dropped.
    pub(crate) fn subscribe_slot(self: &Arc<Self>, slot: Slot) -> SlotSubscription {
        self.subscribe(slot, self.next_acquisition.fetch_add(1, Ordering::Relaxed))
    }

    /// The name of the server at which this client is subscribed in a slot now.
    pub(crate) fn subscribed_server(&self, slot: Slot) -> Option<String> {
        self.transport.router()?.subscriptions.subscribed_server(slot)
    }

    fn subscribe(self: &Arc<Self>, slot: Slot, count: u64) -> SlotSubscription {
        let mut registry = self.registry();
        if registry.add_waiter(slot, count, self.clock.now()) {
            // Before the registry is unlocked and the slot can be found idle, so that the two
            // commands reach the router in the right order.
            if let Some(router) = self.transport.router() {
                router.subscriptions.subscribe(slot, self.id.channel(slot));
            }
        }
        drop(registry);
        SlotSubscription { client: self.clone(), slot, waiter: count }
    }

    /// The cached lock with this key. All handles share it.
    pub(crate) fn cached_lock(self: &Arc<Self>, lock: &LockKey) -> Arc<CachedLock> {
        let new = || Arc::new(CachedLock::new(self.clone(), lock.clone()));
        locks::lock(&self.cached_locks).find_or_add(lock, new)
    }

    pub(crate) fn cached_locks_in(&self, slot: Slot) -> Vec<Arc<CachedLock>> {
        locks::lock(&self.cached_locks).in_slot(slot)
    }

    /// Checks for recalls that may have been lost in this slot.
    pub(crate) fn resync_recalls(&self, slot: Slot) {
        self.cached_locks_in(slot).iter().for_each(|entry| entry.resync_recalls());
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

    pub(crate) fn can_cache_more(&self) -> bool {
        self.cached_lease_count.load(Ordering::Relaxed) < self.settings.cache.max_cached
    }

    /// Reserves room for one more cached hold, if there is any. Call it before the hold is
    /// acquired.
    pub(crate) fn try_reserve_cache(self: &Arc<Self>) -> Option<CachePermit> {
        let most = self.settings.cache.max_cached;
        let take = |cached: usize| (cached < most).then_some(cached + 1);
        let taken =
            self.cached_lease_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok().then(|| CachePermit(self.clone()))
    }

    /// Ends the subscriptions of slots in which no request has waited for a while.
    pub(crate) fn drop_idle_subscriptions(&self) {
        let now = self.clock.now();
        let router = self.transport.router();
        self.registry().remove_idle(now, |slot| {
            if let Some(router) = router {
                router.subscriptions.unsubscribe(slot);
            }
        });
    }

    /// When a call that begins now has timed out. Confirmations come on top of the call timeout.
    pub(crate) fn call_deadline(&self, confirmation: Confirmation) -> LocalInstant {
        let limit = self.settings.acquisition.call_timeout + confirmation.timeout();
        self.clock.now().saturating_add(limit)
    }

    /// When a try that begins now has timed out. Without a timeout it is one call.
    pub(crate) fn deadline(
        &self,
        timeout: Option<Duration>,
        confirmation: Confirmation,
    ) -> LocalInstant {
        match timeout {
            Some(timeout) => self.clock.now().saturating_add(timeout),
            None => self.call_deadline(confirmation),
        }
    }

    /// The error of a request whose time is up, and which waited in this client for another one.
    pub(crate) fn local_timeout_error(
        &self,
        lock: &LockKey,
        is_server_silent: bool,
    ) -> AcquisitionError {
        if !is_server_silent {
            return AcquisitionError::TimedOut { waiters_ahead: 0 };
        }
        let router = self.transport.router();
        let failure = router.and_then(|router| router.dial_failure(lock.slot));
        let source = failure.map(|failure| Arc::new(failure) as _);
        CallError { source, ..CallError::new(CallErrorKind::TimedOut(None), Doubt::None) }.into()
    }

    /// Makes a call about a lock outside of any acquisition, and reads the reply.
    pub(crate) async fn query<T>(
        &self,
        lock: &LockKey,
        call: &Call,
        read: impl FnOnce(RespValue) -> Result<T, ReplyError>,
    ) -> Result<T> {
        let until = self.call_deadline(Confirmation::default());
        match self.transport.call(call, until).await {
            Ok(answer) => read(answer.value).map_err(|bad| lock.add_context(bad)),
            Err(error) => Err(lock.add_context(error)),
        }
    }

    /// Notes that the last handle of the client is gone.
    pub(crate) fn mark_orphaned(&self) {
        self.registry().is_orphaned = true;
        self.worker_wake.notify_one();
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, AcquisitionRegistry> {
        locks::lock(&self.registry)
    }
}

impl Deref for ClientHandle {
    type Target = Arc<ClientInner>;

    fn deref(&self) -> &Arc<ClientInner> {
        &self.0
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.0.mark_orphaned();
    }
}

/// One place among the limited number of cached holds.
pub(crate) struct CachePermit(Arc<ClientInner>);

impl Drop for CachePermit {
    fn drop(&mut self) {
        self.0.cached_lease_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A waiter's share of a subscription.
pub(crate) struct SlotSubscription {
    client: Arc<ClientInner>,
    slot: Slot,
    waiter: u64,
}

impl Drop for SlotSubscription {
    fn drop(&mut self) {
        let now = self.client.clock.now();
        self.client.registry().remove_waiter(self.slot, self.waiter, now);
    }
}

/// A limit on how often something is done: when it may be done next.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(AtomicU64);

impl RateLimit {
    /// Returns true if it may be done now, and not again for `interval`.
    pub(crate) fn try_acquire(&self, now: LocalInstant, interval: Duration) -> bool {
        let (now, next) = (now.as_nanos(), now.saturating_add(interval).as_nanos());
        let free = |due: u64| (due <= now).then_some(next);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }
}
