//! The task of a cached lock. It acquires the leases that local requests need, sends keep-alives,
//! and releases a lease when it is recalled or unused.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, OptionFuture, select};
use rwlease_core::acquisition::{AcquisitionEvent, HeldLease, Keepalive, WaitPolicy};
use rwlease_core::protocol::{LockMode, ReleaseRequest, parse_reply};
use rwlease_core::time::LocalInstant;

use crate::client::acquisition::Acquisition;
use crate::client::cache::atomic_gate::GateSnapshot;
use crate::client::cache::cached_lease::CachedLease;
use crate::client::cache::cached_lock::{CachedLock, RecallEnd};
use crate::client::cache::telemetry;
use crate::client::cache::{CacheTimes, UncachedReason};
use crate::client::loss::LeaseLoss;
use crate::client::{CachePermit, ClientInner, acquire_task, manual_renewal};
use crate::fencing_token::FencingToken;
use crate::on_drop::OnDrop;
use crate::telemetry::emit_in_drop;

/// How long guards may stay after the gate was closed before the server is told that the lease is
/// in use, and should not be recalled.
const DRAIN_GRACE: Duration = Duration::from_millis(20);

/// About the length of a block of tokens, on the server's clock.
const TOKEN_BLOCK_DURATION: Duration = Duration::from_millis(1);

/// Starts the task on the runtime of the client. The caller's runtime may end before the client, or
/// not always run.
pub(super) fn spawn(cached_lock: &Arc<CachedLock>) {
    let owner = cached_lock.clone();
    // The task can be dropped with its runtime at any point.
    let end_of_runtime = OnDrop::new(move || owner.send_all_to_server(false, None));
    let task = run_until_idle(cached_lock.clone(), end_of_runtime);
    cached_lock.client.spawn("task of a cached lock", task);
}

/// Runs until no local request waits and no lease is left.
async fn run_until_idle(cached_lock: Arc<CachedLock>, end_of_runtime: OnDrop<impl FnOnce()>) {
    while let Some(mode) = cached_lock.next_mode() {
        let Some(permit) = cached_lock.client.try_reserve_cache() else {
            cached_lock.send_all_to_server(true, Some(UncachedReason::CacheFull));
            continue;
        };
        if let Some(lease_guard) = acquire_lease(&cached_lock, mode, permit).await {
            LeaseTask::new(lease_guard).run().await;
        }
    }
    end_of_runtime.disarm();
}

/// A lease that a task looks after. If the task is dropped, the lease grants nothing more and is
/// released. If the task has panicked, the lease is lost for its guards.
struct LeaseDropGuard {
    cached_lock: Arc<CachedLock>,
    lease: Arc<CachedLease>,
    is_done: bool,
    _permit: CachePermit,
}

impl LeaseDropGuard {
    fn new(
        cached_lock: Arc<CachedLock>,
        lease: Arc<CachedLease>,
        permit: CachePermit,
    ) -> LeaseDropGuard {
        telemetry::add_leases(1);
        LeaseDropGuard { cached_lock, lease, is_done: false, _permit: permit }
    }

    /// Releases the lease. It has no guards, and its gate is closed.
    fn end(mut self) {
        self.is_done = true;
        self.cached_lock.record_release();
        let client = &self.cached_lock.client;
        let mut releasing = Box::pin(release(client.clone(), self.lease.acquisition.clone()));
        // The release is sent at once, so the lock's next request arrives after it.
        if (&mut releasing).now_or_never().is_none() {
            client.spawn("release of a cached lock", releasing);
        }
    }
}

impl Drop for LeaseDropGuard {
    fn drop(&mut self) {
        if !self.is_done {
            let LeaseDropGuard { cached_lock, lease, .. } = self;
            cached_lock.close_gate(lease);
            if std::thread::panicking() {
                let now = cached_lock.client.clock.now();
                emit_in_drop(|| mark_lost(cached_lock, lease, now));
            } else {
                lease.gate.mark_lost();
                cached_lock.client.apply(&lease.acquisition, AcquisitionEvent::Abandon);
            }
            cached_lock.remove_drained(lease);
        }
        emit_in_drop(|| telemetry::add_leases(-1));
    }
}

/// Acquires a lease of this mode, while a local request waits for it.
async fn acquire_lease(
    cached_lock: &Arc<CachedLock>,
    mode: LockMode,
    permit: CachePermit,
) -> Option<LeaseDropGuard> {
    let options = cached_lock.options(true);
    let policy = WaitPolicy::Queue { deadline: None };
    let taking = pin!(acquire_task::acquire_observed(
        &cached_lock.client,
        &cached_lock.lock,
        mode,
        &options,
        policy,
        |acquisition| cached_lock.set_lease_request(acquisition),
    ));
    let unwanted = pin!(async {
        while cached_lock.head().is_some() {
            cached_lock.wait_for_wake().await;
        }
    });
    let acquisition = match select(taking, unwanted).await {
        Either::Left((Ok(Some(acquisition)), _)) => acquisition,
        // Each request finds out by itself what is wrong.
        Either::Left(_) => {
            cached_lock.send_all_to_server(true, None);
            return None;
        }
        Either::Right(_) => return None,
    };
    let token = acquisition.with_lease(|holding| holding.token)?;
    let since = cached_lock.client.clock.now();
    let lease = Arc::new(CachedLease::new(cached_lock.clone(), acquisition, mode, token, since));
    let mut task = LeaseTask::new(LeaseDropGuard::new(cached_lock.clone(), lease.clone(), permit));
    // Its times must be set before anybody sees it.
    let begins = task.snapshot(since).is_some() && cached_lock.install_lease(&lease);
    begins.then_some(task.lease_guard)
}

/// What to do about a lease.
#[derive(Debug, PartialEq, Eq)]
enum LeaseAction {
    /// Nothing until this moment.
    Sleep(LocalInstant),
    /// Contact the server.
    Keepalive,
    /// No local writes are left. Turn the lease into a read.
    Downgrade,
    /// Close the gate.
    Close,
    Lost,
}

/// The current state of the acquisition.
struct LeaseSnapshot {
    mode: LockMode,
    keepalive: Keepalive,
    is_revoked: bool,
    deadline: LocalInstant,
}

/// Looks after one lease until its gate is closed.
struct LeaseTask {
    lease_guard: LeaseDropGuard,
    cached_lock: Arc<CachedLock>,
    lease: Arc<CachedLease>,
    times: CacheTimes,
    /// The number of guards that the lease had granted at the last keep-alive. The grant itself
    /// served the first.
    grants_at_keepalive: u32,
    /// The number of grants that were reported. The first need not be.
    grants_reported: u32,
    /// The keep-alive in flight.
    keepalive: Option<BoxFuture<'static, ()>>,
    keepalive_due: LocalInstant,
    /// A failed keep-alive is not repeated before this moment.
    retry_at: LocalInstant,
    /// More tokens are not requested before this moment: the server has only as many as its clock
    /// has passed.
    tokens_due: LocalInstant,
    /// When more tokens were requested, and the last token at that time. Set until that is
    /// answered.
    token_request: Option<(LocalInstant, u64)>,
    /// There were no more tokens: the server's clock is behind its last token. Then an acquisition
    /// gets one token only.
    tokens_exhausted: bool,
    /// When this client learned that another client wants the lock.
    recalled_since: Option<LocalInstant>,
    /// The write is becoming a read, or has become one.
    is_downgrading: bool,
}

impl LeaseTask {
    fn new(lease_guard: LeaseDropGuard) -> LeaseTask {
        let (cached_lock, lease) = (lease_guard.cached_lock.clone(), lease_guard.lease.clone());
        let times = CacheTimes::from_lease(cached_lock.options(true).lease);
        let granted_at = lease.granted_at;
        let keepalive_due = granted_at.saturating_add(times.keepalive_interval);
        LeaseTask {
            lease_guard,
            cached_lock,
            lease,
            times,
            grants_at_keepalive: 1,
            grants_reported: 1,
            keepalive: None,
            keepalive_due,
            retry_at: granted_at,
            tokens_due: granted_at,
            token_request: None,
            tokens_exhausted: false,
            recalled_since: None,
            is_downgrading: false,
        }
    }

    async fn run(mut self) {
        loop {
            let acquisition = self.lease.acquisition.clone();
            let mut changed = pin!(acquisition.changed.notified());
            changed.as_mut().enable();
            let now = self.cached_lock.client.clock.now();
            let until = match self.next_action(now) {
                LeaseAction::Sleep(until) => until,
                LeaseAction::Keepalive => {
                    self.start_keepalive();
                    continue;
                }
                LeaseAction::Downgrade => {
                    self.cached_lock.client.apply(&acquisition, AcquisitionEvent::Downgrade);
                    continue;
                }
                LeaseAction::Close => return self.close(now),
                LeaseAction::Lost => {
                    mark_lost(&self.cached_lock, &self.lease, now);
                    return self.close(now);
                }
            };
            let cached_lock = self.cached_lock.clone();
            let keepalive: OptionFuture<_> = self.keepalive.as_mut().into();
            tokio::select! {
                biased;
                Some(()) = keepalive => self.keepalive = None,
                () = changed => {}
                () = cached_lock.wait_for_wake() => {}
                () = cached_lock.client.clock.sleep_until(until) => {}
            }
        }
    }

    /// Reads the state of the acquisition. `None` if the lease is lost.
    fn snapshot(&mut self, now: LocalInstant) -> Option<LeaseSnapshot> {
        let snapshot = |holding: &HeldLease| {
            let keepalive = holding.keepalive.as_deref().copied()?;
            let is_held =
                holding.is_held(now) && self.lease.gate.is_consistent_with(keepalive.last_token);
            let (mode, is_revoked, ends) = (holding.mode, holding.is_revoked(), holding.deadline);
            is_held.then_some(LeaseSnapshot { mode, keepalive, is_revoked, deadline: ends })
        };
        let seen = self.lease.acquisition.with_lease(snapshot)??;
        let fresh =
            seen.keepalive.sent_at.saturating_add(self.times.local_grant_window).min(seen.deadline);
        let bound = match self.recalled_since {
            Some(_) => self.lease.gate.local_grant_deadline().min(fresh),
            None => fresh,
        };
        self.lease.gate.set_local_grant_deadline(bound);
        self.keepalive_due =
            seen.keepalive.sent_at.saturating_add(self.times.keepalive_interval).max(self.retry_at);
        self.token_request.take_if(|(asked, last)| {
            let is_answered = seen.keepalive.sent_at >= *asked;
            if is_answered {
                self.tokens_exhausted = self.lease.gate.last_owned_token() == *last;
            }
            is_answered
        });
        Some(seen)
    }

    /// Returns the mode that another client wants, according to a push or a keep-alive. A cached
    /// read satisfies readers.
    fn recall(&self, keepalive: &Keepalive, mode: LockMode) -> Option<LockMode> {
        let pushed = self.lease.acquisition.recall_mode();
        let recall = match (pushed, keepalive.recall_mode) {
            (Some(LockMode::Write), _) | (_, Some(LockMode::Write)) => Some(LockMode::Write),
            (pushed, reported) => pushed.or(reported),
        };
        recall.filter(|recall| *recall == LockMode::Write || mode == LockMode::Write)
    }

    fn next_action(&mut self, now: LocalInstant) -> LeaseAction {
        let Some(LeaseSnapshot { mode, keepalive, is_revoked, deadline: ends }) =
            self.snapshot(now)
        else {
            return LeaseAction::Lost;
        };
        let (lease, cached_lock) = (self.lease.clone(), self.cached_lock.clone());
        let snapshot = lease.gate.snapshot();
        if mode == LockMode::Read && snapshot.allows_writers() {
            lease.gate.state.forbid_writers(); // the server has made it a read
        }
        if !lease.gate.has_reader_token() && !lease.gate.snapshot().allows_writers() {
            return LeaseAction::Close; // a read gets no more tokens
        }
        if keepalive.is_claimed
            && !snapshot.is_open()
            && !(lease.gate.is_exhausted() && snapshot.allows_writers())
        {
            lease.gate.state.open();
        }
        if lease.gate.snapshot().allows_writers() && !lease.gate.has_reader_token() {
            lease.gate.state.close_temporarily(); // a writer has used the last one while it was opened
        }
        cached_lock.admit_queued(&lease);
        let (snapshot, head) = (lease.gate.snapshot(), cached_lock.head());
        let is_exhausted = snapshot.allows_writers() && lease.gate.is_exhausted();
        let is_idle = snapshot.is_unused() && head.is_none();
        if is_revoked || (is_idle && keepalive.is_claimed && cached_lock.has_no_handles()) {
            return LeaseAction::Close;
        }
        if !keepalive.is_claimed {
            return LeaseAction::Sleep(ends); // the answer to the claim wakes it
        }
        let waits_for_token =
            is_exhausted && (head == Some(LockMode::Write) || !snapshot.is_open());
        if self.tokens_exhausted && waits_for_token && head.is_some() {
            return LeaseAction::Close; // another acquisition gets one
        }
        let mut until = ends;
        match self.recall(&keepalive, mode) {
            Some(recall) => {
                let min_hold = cached_lock.client.settings.cache.min_hold;
                let over = lease.granted_at.saturating_add(min_hold);
                if self.recalled_since.is_none() {
                    self.recalled_since = Some(now);
                    lease.gate.state.set_notify_last(true);
                    let (pushed, waits) = (lease.acquisition.recall_mode().is_some(), now < over);
                    telemetry::record_recall(&cached_lock.lock, recall, pushed, waits && !is_idle);
                    // The last guard may have left before it knew that it must notify.
                    return self.next_action(now);
                }
                if is_idle {
                    return LeaseAction::Close;
                } else if now < over {
                    let deadline = lease.gate.local_grant_deadline().min(over);
                    lease.gate.set_local_grant_deadline(deadline);
                    until = until.min(over);
                } else if recall == LockMode::Write || !lease.gate.has_reader_token() {
                    return LeaseAction::Close;
                } else if !lease.gate.state.forbid_writers().has_writer() && !self.is_downgrading {
                    self.is_downgrading = true;
                    return LeaseAction::Downgrade;
                }
            }
            None if head == Some(LockMode::Write) && !snapshot.allows_writers() => {
                return LeaseAction::Close; // a lease is not upgraded: acquire a write
            }
            None => {
                if let Some(since) = self.recalled_since.take() {
                    lease.gate.state.set_notify_last(false);
                    telemetry::record_recall_done(
                        &cached_lock.lock,
                        false,
                        now.saturating_duration_since(since),
                    );
                }
            }
        }
        self.keepalive(now, snapshot, is_idle, waits_for_token && head.is_some(), until)
    }

    /// Whether a keep-alive is due, or the release of a lease that was not used since the last
    /// keep-alive.
    fn keepalive(
        &mut self,
        now: LocalInstant,
        snapshot: GateSnapshot,
        is_idle: bool,
        waits_for_token: bool,
        until: LocalInstant,
    ) -> LeaseAction {
        if self.keepalive.is_some() {
            return LeaseAction::Sleep(until);
        }
        let lease = &self.lease;
        let (is_due, was_used) =
            (now >= self.keepalive_due, snapshot.grant_count() != self.grants_at_keepalive);
        let is_short = snapshot.allows_writers() && was_used && lease.gate.needs_tokens();
        let needs_tokens = (is_short || waits_for_token) && !self.tokens_exhausted;
        let tokens_due = match self.token_request {
            None => self.tokens_due,
            Some(_) => self.tokens_due.max(self.retry_at), // it failed
        };
        let mut until = until.min(self.keepalive_due);
        let reason = if is_due && is_idle && !was_used {
            return LeaseAction::Close;
        } else if is_due {
            "interval"
        } else if needs_tokens && now >= tokens_due {
            "tokens"
        } else if lease.acquisition.take_resync() {
            "resync"
        } else {
            if needs_tokens {
                until = until.min(tokens_due);
            }
            return LeaseAction::Sleep(until);
        };
        self.grants_at_keepalive = snapshot.grant_count();
        self.tokens_due = now.saturating_add(TOKEN_BLOCK_DURATION);
        self.retry_at = now.saturating_add(self.times.keepalive_interval / 4);
        self.token_request = Some((now, lease.gate.last_owned_token()));
        telemetry::record_keepalive(reason);
        self.report_grants(snapshot);
        LeaseAction::Keepalive
    }

    fn report_grants(&mut self, snapshot: GateSnapshot) {
        let grants = snapshot.grant_count().wrapping_sub(self.grants_reported);
        self.grants_reported = snapshot.grant_count();
        if grants > 0 {
            telemetry::record_grants(self.lease.mode, grants);
        }
    }

    fn start_keepalive(&mut self) {
        self.keepalive =
            Some(send_keepalive(self.cached_lock.client.clone(), self.lease.acquisition.clone()));
    }

    /// Closes the gate. A lease with guards drains in its own task.
    fn close(mut self, now: LocalInstant) {
        let is_unused = self.cached_lock.close_gate(&self.lease);
        let snapshot = self.lease.gate.snapshot();
        self.report_grants(snapshot);
        let LeaseTask { lease_guard, cached_lock, lease, recalled_since, .. } = self;
        lease.acquisition.uncache();
        let recall = recalled_since
            .map(|since| cached_lock.begin_recall_end(snapshot.grant_count(), since, now));
        if is_unused {
            recall.into_iter().for_each(|recall| cached_lock.end_recall(recall, now));
            lease_guard.end();
        } else {
            cached_lock.client.spawn("end of a cached lock", drain(lease_guard, now, recall));
        }
    }
}

async fn release(client: Arc<ClientInner>, acquisition: Arc<Acquisition>) {
    let sent = client.apply(&acquisition, AcquisitionEvent::ReleaseStarted).now;
    let call = ReleaseRequest::ALL.call(acquisition.id, &acquisition.lock);
    let until = sent.saturating_add(client.settings.acquisition.call_timeout);
    if let Ok(reply) = parse_reply(client.transport.call(&call, until).await, ReleaseRequest::read)
    {
        client.apply(&acquisition, AcquisitionEvent::ReleaseReply(reply));
    }
    if !acquisition.is_ended() {
        // The worker handles what may still arrive.
        client.apply(&acquisition, AcquisitionEvent::Abandon);
    }
}

/// A renewal. Its outcome is stored in the acquisition.
fn send_keepalive(
    client: Arc<ClientInner>,
    acquisition: Arc<Acquisition>,
) -> BoxFuture<'static, ()> {
    async move { drop(manual_renewal::renew(&client, &acquisition).await) }.boxed()
}

/// Waits until the last guard of a closed lease has left.
async fn drain(lease_guard: LeaseDropGuard, closed: LocalInstant, recall: Option<RecallEnd>) {
    let (cached_lock, lease) = (lease_guard.cached_lock.clone(), lease_guard.lease.clone());
    let (client, acquisition) = (cached_lock.client.clone(), lease.acquisition.clone());
    let times = CacheTimes::from_lease(cached_lock.options(true).lease);
    let (mut due, mut renewing) = (closed.saturating_add(DRAIN_GRACE), None);
    loop {
        let mut changed = pin!(acquisition.changed.notified());
        changed.as_mut().enable();
        let now = client.clock.now();
        let ends =
            acquisition.with_lease(|held| held.is_held(now).then_some(held.deadline)).flatten();
        let snapshot = lease.gate.snapshot();
        let Some(ends) = ends.filter(|_| !snapshot.is_unused()) else {
            if ends.is_none() {
                mark_lost(&cached_lock, &lease, now);
            }
            break;
        };
        if now >= due && renewing.is_none() {
            due = now.saturating_add(times.keepalive_interval);
            if snapshot.allows_writers() && !snapshot.has_writer() {
                // The remaining readers of a write do not exclude other readers.
                lease.gate.state.forbid_writers();
                client.apply(&acquisition, AcquisitionEvent::Downgrade);
            } else {
                renewing = Some(send_keepalive(client.clone(), acquisition.clone()));
            }
        }
        let until = if renewing.is_some() { ends } else { due.min(ends) };
        let renewed: OptionFuture<_> = renewing.as_mut().into();
        tokio::select! {
            biased;
            Some(()) = renewed => renewing = None,
            () = lease.last_guard_dropped.notified() => {}
            () = changed => {}
            () = client.clock.sleep_until(until) => {}
        }
    }
    cached_lock.remove_drained(&lease);
    let now = client.clock.now();
    recall.into_iter().for_each(|recall| cached_lock.end_recall(recall, now));
    lease_guard.end();
}

/// Loses a lease for all its guards. It is reported once, and to users only if there are guards.
fn mark_lost(cached_lock: &CachedLock, lease: &CachedLease, now: LocalInstant) {
    lease.gate.mark_lost();
    let snapshot = lease.gate.snapshot();
    let guards = snapshot.readers() + u64::from(snapshot.has_writer());
    let held = lease.acquisition.with_lease(|holding| (holding.mode, holding.deadline));
    // If another history of the lock is served by now, the lease may still be there.
    cached_lock.client.apply(&lease.acquisition, AcquisitionEvent::Abandon);
    let Some((mode, ends)) = held else {
        return; // the client has ended
    };
    if guards > 0 {
        // A panic of a task fails the client as soon as the task has ended.
        let has_failed = cached_lock.client.failure().is_some() || std::thread::panicking();
        let reason = match has_failed {
            true => "client_failed",
            false if now < ends => "not_held",
            false => "expired",
        };
        let loss = LeaseLoss {
            lock: cached_lock.lock.name.clone(),
            slot: cached_lock.lock.slot,
            mode,
            fencing_token: FencingToken::from_wire(lease.gate.last_token()),
            held_for: now.saturating_duration_since(lease.granted_at),
            guard_count: guards,
        };
        cached_lock.client.lose(loss, reason);
    }
    telemetry::record_loss(&cached_lock.lock, guards > 0);
}
