//! One cached lock of this client: its lease, and the local requests for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard, Weak};
use std::time::Duration;

use rwlease_core::acquisition::{
    AcquisitionError, HeldLease, LeaseOptions, RenewalPolicy, WaitPolicy,
};
use rwlease_core::protocol::{LockKey, LockMode};
use rwlease_core::time::LocalInstant;
use tokio::sync::{Notify, oneshot};

use crate::client::ClientInner;
use crate::client::acquisition::Acquisition;
use crate::client::cache::cache_policy::CachePolicy;
use crate::client::cache::cached_lease::{CachedLease, LeaseShare};
use crate::client::cache::local_queue::{GrantSender, LocalQueue, LocalWait, LocalWaitOutcome};
use crate::client::cache::{CacheStatus, CacheTimes, UncachedReason, lease_task, telemetry};
use crate::client::{SlotSubscription, acquire_task};
use crate::error::{Error, ErrorKind, Result};
use crate::locks::{lock, read, write};
use crate::on_drop::OnDrop;

/// One for each lock that this client caches. Each handle looks it up once, at its creation.
pub(crate) struct CachedLock {
    pub(super) client: Arc<ClientInner>,
    pub(crate) lock: LockKey,
    /// The lease whose gate is open or about to open.
    lease: RwLock<Option<Arc<CachedLease>>>,
    local_state: Mutex<LocalState>,
    /// Wakes the task.
    wake: Notify,
    /// The number of uncached requests in flight.
    uncached_requests: AtomicUsize,
    /// The number of users' handles. Without any, an idle lease is released at once.
    handle_count: AtomicUsize,
}

// Without its lease, which refers to the lock.
#[derive(Default)]
struct LocalState {
    queue: LocalQueue,
    policy: CachePolicy,
    /// Whether the task runs.
    task_is_running: bool,
    /// The last request of the task for a lease.
    lease_request: Weak<Acquisition>,
    /// Closed holds that still have guards.
    draining_leases: Vec<Arc<CachedLease>>,
    /// Set while the client subscribes in the lock's slot, so that a lease can be recalled.
    subscription: Option<SlotSubscription>,
}

/// What a request was granted.
pub(crate) enum CachedGrant {
    Shared(LeaseShare),
    /// An acquisition of its own.
    Uncached(Arc<Acquisition>),
}

/// How a request begins.
pub(crate) enum LocalAcquire<'a> {
    Granted(LeaseShare),
    Uncached(UncachedReason),
    Queued(LocalWait<'a>),
}

impl CachedLock {
    pub(crate) fn new(client: Arc<ClientInner>, lock: LockKey) -> CachedLock {
        CachedLock {
            client,
            lock,
            lease: RwLock::default(),
            local_state: Mutex::default(),
            wake: Notify::new(),
            uncached_requests: AtomicUsize::new(0),
            handle_count: AtomicUsize::new(0),
        }
    }

    // Handles.

    pub(crate) fn add_handle(&self) {
        self.handle_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_handle(&self) {
        if self.handle_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    pub(super) fn has_no_handles(&self) -> bool {
        self.handle_count.load(Ordering::Acquire) == 0
    }

    // What users see.

    pub(crate) fn client(&self) -> &Arc<ClientInner> {
        &self.client
    }

    pub(crate) fn status(&self) -> CacheStatus {
        let now = self.client.clock.now();
        let local = self.lock_local();
        let lease = self.lease();
        let snapshot = lease.as_ref().map(|lease| lease.gate.snapshot());
        let hold =
            snapshot.map(
                |snapshot| if snapshot.allows_writers() { LockMode::Write } else { LockMode::Read },
            );
        let is_uncached = lease.is_none() && !local.task_is_running;
        let uncached_reason = if is_uncached { self.uncached_reason(&local, now) } else { None };
        CacheStatus {
            readers: snapshot.map_or(0, |snapshot| snapshot.readers()),
            writer: snapshot.is_some_and(|snapshot| snapshot.has_writer()),
            waiting: local.queue.len(),
            hold,
            uncached_reason,
        }
    }

    // Requests.

    /// The fast path: a share of the lease, without a message, an allocation or a wait.
    pub(crate) fn try_fast_path(&self, mode: LockMode, now: LocalInstant) -> Option<LeaseShare> {
        let current = read(&self.lease);
        current.as_ref()?.enter(mode, now)
    }

    /// Acquires the lock by a request to the server.
    ///
    /// Cancel safe: dropping the future releases a granted lock.
    pub(crate) async fn acquire_uncached(
        &self,
        mode: LockMode,
        until: Option<LocalInstant>,
    ) -> Result<CachedGrant> {
        let acquired = self.acquire_at_server(mode, WaitPolicy::Queue { deadline: until }).await?;
        let acquired =
            acquired.ok_or_else(|| Error::internal("a queued acquire returned \"busy\""))?;
        Ok(CachedGrant::Uncached(acquired))
    }

    /// Acquires the lock if nobody is in the way, apart from clients that have it cached.
    pub(crate) async fn try_acquire(
        self: &Arc<CachedLock>,
        mode: LockMode,
        timeout: Option<Duration>,
    ) -> Result<Option<CachedGrant>> {
        let now = self.client.clock.now();
        let until = self.client.deadline(timeout, self.options(false).confirmation);
        if let Some(share) = self.try_fast_path(mode, now) {
            return Ok(Some(CachedGrant::Shared(share)));
        }
        if self.conflicts_with(&self.lock_local(), mode) {
            return Ok(None);
        }
        telemetry::record_uncached_try();
        let for_cached = self.client.settings.cache.try_wait;
        let acquired = self
            .acquire_at_server(mode, WaitPolicy::Try { deadline: until, cached_wait: for_cached })
            .await?;
        Ok(acquired.map(CachedGrant::Uncached))
    }

    async fn acquire_at_server(
        &self,
        mode: LockMode,
        policy: WaitPolicy,
    ) -> Result<Option<Arc<Acquisition>>> {
        self.uncached_requests.fetch_add(1, Ordering::Relaxed);
        let _end = OnDrop::new(|| {
            self.uncached_requests.fetch_sub(1, Ordering::Relaxed);
        });
        let options = LeaseOptions { renewal: RenewalPolicy::Automatic, ..self.options(false) };
        acquire_task::acquire(&self.client, &self.lock, mode, &options, policy).await
    }

    pub(super) fn options(&self, cached: bool) -> LeaseOptions {
        LeaseOptions {
            renewal: RenewalPolicy::Manual,
            is_cacheable: cached,
            ..self.client.settings.lease_options()
        }
    }

    /// An uncached lease that was acquired here was released.
    pub(crate) fn record_uncached_release(&self) {
        let now = self.client.clock.now();
        self.lock_local().policy.record_uncached_use(now);
    }

    /// Whether a local guard or request is in the way of a request that does not wait. Readers are
    /// never in the way of a reader: the server may grant what a closed gate does not.
    fn conflicts_with(&self, local: &LocalState, mode: LockMode) -> bool {
        let excludes = |lease: &Arc<CachedLease>| match mode {
            LockMode::Read => lease.gate.snapshot().has_writer(),
            LockMode::Write => !lease.gate.snapshot().is_unused(),
        };
        let current = self.lease();
        local.draining_leases.iter().chain(&current).any(excludes) || local.queue.must_wait(mode)
    }

    /// Begins a request that the fast path did not serve.
    pub(crate) fn begin_acquire(
        self: &Arc<CachedLock>,
        mode: LockMode,
        now: LocalInstant,
    ) -> Result<LocalAcquire<'_>> {
        let mut local = self.lock_local();
        let head = local.queue.head();
        if head.is_none()
            && let Some(share) = self.try_fast_path(mode, now)
        {
            return Ok(LocalAcquire::Granted(share));
        }
        if let Some(reason) = self.uncached_reason_now(&mut local, now) {
            return Ok(LocalAcquire::Uncached(reason));
        }
        let limit = self.client.settings.acquisition.max_queue_len;
        let len = local.queue.len();
        // A request that no other one precedes waits for the server's answer alone. That is also
        // allowed if the limit is 0.
        if len as u64 >= limit && (len > 0 || self.conflicts_with(&local, mode)) {
            let message = format!(
                "the local queue is full: {len} requests are waiting (`max_queue_len` is {limit})"
            );
            return Err(Error::new(ErrorKind::QueueFull, message));
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = local.queue.push(mode, sender);
        // A request behind others is served when they are.
        if local.queue.head() != head {
            self.on_new_head(local, mode, now);
        }
        Ok(LocalAcquire::Queued(LocalWait::new(self, mode, ticket, receiver)))
    }

    /// The queue has a new head, or a head of another mode: the lease serves it, or the task is
    /// woken.
    fn on_new_head(
        self: &Arc<CachedLock>,
        mut local: MutexGuard<'_, LocalState>,
        mode: LockMode,
        now: LocalInstant,
    ) {
        let mut grants = Vec::new();
        let lease = self.lease();
        if let Some(lease) = &lease {
            lease.gate.state.set_queued(true);
            self.grant_ready(&mut local, lease, now, &mut grants);
        }
        let starts = !std::mem::replace(&mut local.task_is_running, true);
        drop(local);
        deliver_grants(grants);
        if starts {
            lease_task::spawn(self);
        } else if lease.is_none_or(|lease| !lease.will_admit(mode, now)) {
            self.wake();
        }
    }

    /// Returns why a request must be sent to the server, or `None` if a local grant is possible.
    /// Subscribes for a lock that is worth caching.
    fn uncached_reason_now(
        &self,
        local: &mut LocalState,
        now: LocalInstant,
    ) -> Option<UncachedReason> {
        if local.task_is_running {
            return local.policy.is_penalized(now).then_some(UncachedReason::RecalledEarly);
        }
        let reason = self.uncached_reason(local, now);
        if reason == Some(UncachedReason::NotSubscribed) && local.subscription.is_none() {
            local.subscription = Some(self.client.subscribe_slot(self.lock.slot));
            return self.uncached_reason(local, now);
        }
        reason
    }

    /// Why no lease is acquired: the lock is not worth it, or could not be recalled.
    fn uncached_reason(&self, local: &LocalState, now: LocalInstant) -> Option<UncachedReason> {
        let times = CacheTimes::from_lease(self.options(true).lease);
        if local.policy.is_penalized(now) {
            Some(UncachedReason::RecalledEarly)
        } else if self.has_no_handles() || !local.policy.should_cache(now, times.keepalive_interval)
        {
            Some(UncachedReason::NotReused)
        } else if !self.can_be_recalled(local) {
            Some(UncachedReason::NotSubscribed)
        } else if !self.client.can_cache_more() {
            Some(UncachedReason::CacheFull)
        } else {
            None
        }
    }

    fn can_be_recalled(&self, local: &LocalState) -> bool {
        local.subscription.is_some() && self.client.subscribed_server(self.lock.slot).is_some()
    }

    // Turns.

    /// Grants to the requests whose turn it is.
    fn grant_ready(
        &self,
        local: &mut LocalState,
        lease: &Arc<CachedLease>,
        now: LocalInstant,
        grants: &mut Vec<(GrantSender, LeaseShare)>,
    ) {
        while let Some(mode) = local.queue.head() {
            let Some(share) = lease.enter_queued(mode, now) else {
                break;
            };
            match local.queue.pop(mode) {
                Some(sender) => grants.push((sender, share)),
                None => break,
            }
        }
        lease.gate.state.set_queued(!local.queue.is_empty());
    }

    /// Admits the requests whose turn it is.
    pub(super) fn admit_queued(&self, lease: &Arc<CachedLease>) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        self.grant_ready(&mut self.lock_local(), lease, now, &mut grants);
        deliver_grants(grants);
    }

    /// The last guard has left, and was to notify.
    pub(super) fn on_last_guard_dropped(&self, lease: &Arc<CachedLease>, mode: LockMode) {
        let mut grants = Vec::new();
        let now = self.client.clock.now();
        let mut local = self.lock_local();
        if mode == LockMode::Write {
            local.queue.start_reader_phase();
        }
        let snapshot = lease.gate.snapshot();
        if snapshot.is_open() {
            self.grant_ready(&mut local, lease, now, &mut grants);
        }
        let was_granted = !grants.is_empty();
        drop(local);
        deliver_grants(grants);
        if !was_granted {
            lease.last_guard_dropped.notify_one();
            self.wake();
        }
    }

    /// Removes a request from the local queue. The caller must drop the sender with nothing locked.
    pub(super) fn remove_waiter(&self, mode: LockMode, ticket: u64) -> Option<GrantSender> {
        self.lock_local().queue.remove(mode, ticket)
    }

    // For the task.

    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn wait_for_wake(&self) {
        self.wake.notified().await;
    }

    /// Returns the mode of the next local request. `None` ends the task. If the lock must not be
    /// cached any more, all local requests are sent to the server.
    pub(super) fn next_mode(&self) -> Option<LockMode> {
        let now = self.client.clock.now();
        let mut local = self.lock_local();
        let uncached_reason = if local.policy.is_penalized(now) {
            Some(UncachedReason::RecalledEarly)
        } else {
            (!self.can_be_recalled(&local)).then_some(UncachedReason::NotSubscribed)
        };
        if uncached_reason.is_some() {
            let all = local.queue.take_all();
            local.task_is_running = false;
            drop(local);
            send_all_to_server(all, uncached_reason);
            return None;
        }
        let head = local.queue.head();
        local.task_is_running = head.is_some();
        if head.is_none() && self.has_no_handles() {
            local.subscription = None;
        }
        head
    }

    pub(super) fn set_lease_request(&self, acquisition: &Arc<Acquisition>) {
        self.lock_local().lease_request = Arc::downgrade(acquisition);
    }

    /// The error of a local request whose time is up.
    pub(crate) fn timeout_error(&self) -> AcquisitionError {
        self.client.local_timeout_error(&self.lock, self.is_server_silent())
    }

    /// Whether the keep-alives of the lease, or the request for a lease, have no reply.
    fn is_server_silent(&self) -> bool {
        let now = self.client.clock.now();
        // While the lease is in use, several keep-alives are sent in this time.
        let silence = CacheTimes::from_lease(self.options(true).lease).local_grant_window;
        let is_unanswered = |lease: Arc<CachedLease>| {
            let sent_at = |held: &HeldLease| held.keepalive.as_ref().map(|last| last.sent_at);
            let last = lease.acquisition.with_lease(sent_at).flatten();
            last.is_some_and(|last| last.saturating_add(silence) <= now)
        };
        let request = self.lock_local().lease_request.upgrade();
        request.is_some_and(|request| request.is_server_silent(now))
            || self.lease().is_some_and(is_unanswered)
    }

    /// A recall may have been lost.
    pub(crate) fn resync_recalls(&self) {
        if let Some(lease) = self.lease() {
            lease.acquisition.request_resync();
        }
    }

    pub(super) fn head(&self) -> Option<LockMode> {
        self.lock_local().queue.head()
    }

    /// The lease was acquired, and its gate is still closed: gives the head of the queue its share.
    /// Returns false if the lease serves no request.
    pub(super) fn install_lease(&self, lease: &Arc<CachedLease>) -> bool {
        let mut local = self.lock_local();
        let mode = match local.queue.head() {
            Some(LockMode::Write) if !lease.gate.snapshot().allows_writers() => {
                Some(LockMode::Read)
            }
            head => head,
        };
        let Some((mode, sender)) =
            mode.and_then(|mode| local.queue.pop(mode).map(|sender| (mode, sender)))
        else {
            return false;
        };
        let share = lease.admit_first(mode);
        lease.gate.state.set_queued(!local.queue.is_empty());
        *self.lease_mut() = Some(lease.clone());
        drop(local);
        deliver_grants(vec![(sender, share)]);
        true
    }

    /// Stops new guards of this lease. Returns true if the lease has no guards.
    pub(super) fn close_gate(&self, lease: &Arc<CachedLease>) -> bool {
        let mut local = self.lock_local();
        let mut current = self.lease_mut();
        if current.as_ref().is_some_and(|other| Arc::ptr_eq(other, lease)) {
            *current = None;
        }
        drop(current);
        let is_unused = lease.gate.state.close().is_unused();
        if !is_unused {
            local.draining_leases.push(lease.clone());
        }
        is_unused
    }

    /// A closed lease has no guards left.
    pub(super) fn remove_drained(&self, lease: &Arc<CachedLease>) {
        self.lock_local().draining_leases.retain(|other| !Arc::ptr_eq(other, lease));
    }

    pub(super) fn record_release(&self) {
        let now = self.client.clock.now();
        self.lock_local().policy.record_release(now);
    }

    /// The gate of a lease was closed, which had served this many guards and was recalled at
    /// `since`. A penalty begins now, before a local request acquires the next lease.
    pub(super) fn begin_recall_end(
        &self,
        served: u32,
        since: LocalInstant,
        now: LocalInstant,
    ) -> RecallEnd {
        let mut local = self.lock_local();
        // Requests of this client that went to the server before there was a lease are served by
        // the next lease when they return.
        let penalty = match self.uncached_requests.load(Ordering::Relaxed) {
            0 => local.policy.record_recall(served, now.saturating_duration_since(since), now),
            _ => None,
        };
        RecallEnd { served, since, closed_at: now, penalty }
    }

    /// The last guard of a recalled lease has left.
    pub(super) fn end_recall(&self, end: RecallEnd, now: LocalInstant) {
        let RecallEnd { served, since, closed_at, penalty } = end;
        let took = now.saturating_duration_since(since);
        telemetry::record_recall_done(&self.lock, true, took);
        if let Some(mut time) = penalty {
            if now > closed_at {
                time = self.lock_local().policy.record_drained(took, now);
            }
            telemetry::record_penalty(&self.lock, served, time);
        }
    }

    /// Sends all local requests to the server.
    pub(super) fn send_all_to_server(&self, lease_guard: bool, reason: Option<UncachedReason>) {
        let mut local = self.lock_local();
        let all = local.queue.take_all();
        local.task_is_running = lease_guard;
        drop(local);
        send_all_to_server(all, reason);
    }

    pub(super) fn lease(&self) -> Option<Arc<CachedLease>> {
        read(&self.lease).clone()
    }

    fn lease_mut(&self) -> RwLockWriteGuard<'_, Option<Arc<CachedLease>>> {
        write(&self.lease)
    }

    fn lock_local(&self) -> MutexGuard<'_, LocalState> {
        lock(&self.local_state)
    }
}

/// Delivers the grants, with nothing locked. A request that is gone releases its share.
fn deliver_grants(grants: Vec<(GrantSender, LeaseShare)>) {
    for (sender, share) in grants {
        drop(sender.send(LocalWaitOutcome::Granted(share)));
    }
}

fn send_all_to_server(all: Vec<GrantSender>, reason: Option<UncachedReason>) {
    for sender in all {
        drop(sender.send(LocalWaitOutcome::Uncached(reason)));
    }
}

/// A recall whose lease grants nothing more. Its guards may still hold it.
pub(super) struct RecallEnd {
    /// How many guards the lease had granted.
    served: u32,
    since: LocalInstant,
    closed_at: LocalInstant,
    /// For how long the lock is not cached, if the recall was too early.
    penalty: Option<Duration>,
}
