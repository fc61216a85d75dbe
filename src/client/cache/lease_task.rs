//! The keeper of an entry: a task that acquires the holds that local requests need, keeps a hold in
//! contact with the server, and releases it when it is recalled or unused.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Either, OptionFuture, select};

use crate::client::acquisition::{Acquisition, AcquisitionEvent, HeldLease, Keepalive};
use crate::client::cache::atomic_gate::GateSnapshot;
use crate::client::cache::entry::CachedLock;
use crate::client::cache::hold::CachedLease;
use crate::client::cache::telemetry::{self, KeepaliveReason};
use crate::client::cache::{CacheTimes, UncachedReason, cached_lease};
use crate::client::lease_options::WaitPolicy;
use crate::client::script_result::parse_reply;
use crate::client::{CachePermit, ClientInner, acquire_task, manual_renewal};
use crate::clock::LocalInstant;
use crate::protocol::{LockMode, ReleaseRequest};
use crate::telemetry::emit_in_drop;

/// How long guards may stay after the gate was closed before the server is told that the hold is in
/// use, and should not be recalled.
const DRAIN_GRACE: Duration = Duration::from_millis(20);

/// About the length of a block of tokens, on the server's clock.
const TOKEN_BLOCK_DURATION: Duration = Duration::from_millis(1);

/// Starts the keeper on the runtime of the client. The caller's runtime may end before the client,
/// or not always run.
pub(super) fn spawn(entry: &Arc<CachedLock>) {
    let keeping = run_until_idle(TaskDropGuard { entry: entry.clone(), is_done: false });
    entry.client.spawn("keeper of a cached lock", keeping);
}

/// Runs until no local request waits and no hold is left.
async fn run_until_idle(mut service: TaskDropGuard) {
    while let Some(mode) = service.entry.next_mode() {
        let Some(room) = service.entry.client.try_reserve_cache() else {
            service.entry.send_all_to_server(true, Some(UncachedReason::CacheFull));
            continue;
        };
        if let Some(kept) = acquire_lease(&service.entry, mode, room).await {
            LeaseTask::new(kept).run().await;
        }
    }
    service.is_done = true;
}

/// The task can be dropped at any point, with its runtime. Then nobody must wait for it.
struct TaskDropGuard {
    entry: Arc<CachedLock>,
    is_done: bool,
}

impl Drop for TaskDropGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.entry.send_all_to_server(false, None);
        }
    }
}

/// A hold that a task looks after. If the task is dropped, the hold grants nothing more and is
/// released.
struct LeaseDropGuard {
    entry: Arc<CachedLock>,
    hold: Arc<CachedLease>,
    is_done: bool,
    _room: CachePermit,
}

impl LeaseDropGuard {
    fn new(entry: Arc<CachedLock>, hold: Arc<CachedLease>, room: CachePermit) -> LeaseDropGuard {
        telemetry::add_leases(1);
        LeaseDropGuard { entry, hold, is_done: false, _room: room }
    }

    /// Releases the hold, which has no guards and a closed gate.
    fn end(mut self) {
        self.is_done = true;
        self.entry.record_release();
        let client = &self.entry.client;
        let mut releasing = Box::pin(release(client.clone(), self.hold.acquisition.clone()));
        // The release is sent at once, so the entry's next request arrives after it.
        if (&mut releasing).now_or_never().is_none() {
            client.spawn("release of a cached lock", releasing);
        }
    }
}

impl Drop for LeaseDropGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.entry.close_gate(&self.hold);
            self.hold.gate.lose();
            self.entry.remove_drained(&self.hold);
            release_in_background(&self.entry.client, &self.hold.acquisition);
        }
        emit_in_drop(|| telemetry::add_leases(-1));
    }
}

/// Acquires a hold of this mode, as long as a request waits for it.
async fn acquire_lease(
    entry: &Arc<CachedLock>,
    mode: LockMode,
    room: CachePermit,
) -> Option<LeaseDropGuard> {
    let options = entry.options(true);
    let policy = WaitPolicy::Queue { deadline: None };
    let taking = pin!(acquire_task::acquire(&entry.client, &entry.lock, mode, &options, policy));
    let unwanted = pin!(async {
        while entry.head().is_some() {
            entry.wait_for_wake().await;
        }
    });
    let acquisition = match select(taking, unwanted).await {
        Either::Left((Ok(Some(acquisition)), _)) => acquisition,
        // Each request finds out by itself what is wrong.
        Either::Left(_) => {
            entry.send_all_to_server(true, None);
            return None;
        }
        Either::Right(_) => return None,
    };
    let token = acquisition.with_lease(|holding| holding.token)?;
    let since = entry.client.clock.now();
    let hold = Arc::new(CachedLease::new(entry.clone(), acquisition, mode, token, since));
    let mut keeper = LeaseTask::new(LeaseDropGuard::new(entry.clone(), hold.clone(), room));
    // Its times must be set before anybody sees it.
    let begins = keeper.snapshot(since).is_some() && entry.install_lease(&hold);
    begins.then_some(keeper.kept)
}

/// Leaves the release to the worker.
fn release_in_background(client: &ClientInner, acquisition: &Acquisition) {
    client.apply(acquisition, AcquisitionEvent::Abandon);
}

/// What to do about a hold.
#[derive(Debug, PartialEq, Eq)]
enum LeaseAction {
    /// Nothing until this moment.
    Sleep(LocalInstant),
    /// Contact the server.
    Keepalive,
    /// There are no more local writes: turn it into a read.
    Downgrade,
    /// Close the gate.
    Close,
    /// It is lost.
    Lost,
}

/// The current state of the acquisition.
struct LeaseSnapshot {
    mode: LockMode,
    keepalive: Keepalive,
    is_revoked: bool,
    deadline: LocalInstant,
}

/// Looks after one hold until its gate is closed.
struct LeaseTask {
    kept: LeaseDropGuard,
    entry: Arc<CachedLock>,
    hold: Arc<CachedLease>,
    times: CacheTimes,
    /// The number of guards that it had granted at the last contact. The grant itself served the
    /// first.
    grants_at_keepalive: u32,
    /// The number of them that were reported. The first need not be.
    grants_reported: u32,
    /// The contact under way.
    keepalive: Option<BoxFuture<'static, ()>>,
    keepalive_due: LocalInstant,
    /// A failed contact is not repeated before this moment.
    retry_at: LocalInstant,
    /// More tokens are not requested before this moment: the server has only as many as its clock
    /// has passed.
    tokens_due: LocalInstant,
    /// When more tokens were requested, and the last token by then. Set until that is answered.
    token_request: Option<(LocalInstant, u64)>,
    /// There were no more tokens: the server's clock is behind its last token. Then an acquisition
    /// gets one token only.
    tokens_exhausted: bool,
    /// Since when it is known that others want the lock.
    recalled_since: Option<LocalInstant>,
    /// The write is becoming a read, or has become one.
    is_downgrading: bool,
}

impl LeaseTask {
    fn new(kept: LeaseDropGuard) -> LeaseTask {
        let (entry, hold) = (kept.entry.clone(), kept.hold.clone());
        let times = CacheTimes::from_lease(entry.options(true).lease);
        let hold_since = hold.granted_at;
        let contact_due = hold_since.saturating_add(times.keepalive_interval);
        LeaseTask {
            kept,
            entry,
            hold,
            times,
            grants_at_keepalive: 1,
            grants_reported: 1,
            keepalive: None,
            keepalive_due: contact_due,
            retry_at: hold_since,
            tokens_due: hold_since,
            token_request: None,
            tokens_exhausted: false,
            recalled_since: None,
            is_downgrading: false,
        }
    }

    async fn run(mut self) {
        loop {
            let acquisition = self.hold.acquisition.clone();
            let mut changed = pin!(acquisition.changed.notified());
            changed.as_mut().enable();
            let now = self.entry.client.clock.now();
            let until = match self.next_action(now) {
                LeaseAction::Sleep(until) => until,
                LeaseAction::Keepalive => {
                    self.start_keepalive();
                    continue;
                }
                LeaseAction::Downgrade => {
                    self.entry.client.apply(&acquisition, AcquisitionEvent::Downgrade);
                    continue;
                }
                LeaseAction::Close => return self.close(now),
                LeaseAction::Lost => {
                    cached_lease::mark_lost(&self.entry, &self.hold, now);
                    return self.close(now);
                }
            };
            let entry = self.entry.clone();
            let contact: OptionFuture<_> = self.keepalive.as_mut().into();
            tokio::select! {
                biased;
                Some(()) = contact => self.keepalive = None,
                () = changed => {}
                () = entry.wait_for_wake() => {}
                () = entry.client.clock.sleep_until(until) => {}
            }
        }
    }

    /// Reads the state of the acquisition. `None` if it is lost.
    fn snapshot(&mut self, now: LocalInstant) -> Option<LeaseSnapshot> {
        let look = |holding: &HeldLease| {
            let contact = holding.keepalive.as_deref().copied()?;
            let is_held = holding.is_held(now) && self.hold.gate.owns_up_to(contact.last_token);
            let (mode, is_revoked, ends) = (holding.mode, holding.is_revoked(), holding.deadline);
            is_held.then_some(LeaseSnapshot {
                mode,
                keepalive: contact,
                is_revoked,
                deadline: ends,
            })
        };
        let seen = self.hold.acquisition.with_lease(look)??;
        let fresh =
            seen.keepalive.sent_at.saturating_add(self.times.local_grant_window).min(seen.deadline);
        let bound = match self.recalled_since {
            Some(_) => self.hold.gate.grant_until().min(fresh),
            None => fresh,
        };
        self.hold.gate.set_grant_until(bound);
        self.keepalive_due =
            seen.keepalive.sent_at.saturating_add(self.times.keepalive_interval).max(self.retry_at);
        self.token_request.take_if(|(asked, last)| {
            let is_answered = seen.keepalive.sent_at >= *asked;
            if is_answered {
                self.tokens_exhausted = self.hold.gate.end_of_block() == *last;
            }
            is_answered
        });
        Some(seen)
    }

    /// Which mode others want, according to a push or a contact. Readers are satisfied by a read.
    fn recall(&self, contact: &Keepalive, mode: LockMode) -> Option<LockMode> {
        let pushed = self.hold.acquisition.recall_mode();
        let recall = match (pushed, contact.recall_mode) {
            (Some(LockMode::Write), _) | (_, Some(LockMode::Write)) => Some(LockMode::Write),
            (pushed, told) => pushed.or(told),
        };
        recall.filter(|recall| *recall == LockMode::Write || mode == LockMode::Write)
    }

    fn next_action(&mut self, now: LocalInstant) -> LeaseAction {
        let Some(LeaseSnapshot { mode, keepalive: contact, is_revoked, deadline: ends }) =
            self.snapshot(now)
        else {
            return LeaseAction::Lost;
        };
        let (hold, entry) = (self.hold.clone(), self.entry.clone());
        let look = hold.gate.look();
        if mode == LockMode::Read && look.allows_writers() {
            hold.gate.state.forbid_writers(); // the server has made it a read
        }
        if !hold.gate.has_token_to_read() && !hold.gate.look().allows_writers() {
            return LeaseAction::Close; // a read gets no more tokens
        }
        if contact.is_claimed
            && !look.is_open()
            && !(hold.gate.is_used_up() && look.allows_writers())
        {
            hold.gate.state.open();
        }
        if hold.gate.look().allows_writers() && !hold.gate.has_token_to_read() {
            hold.gate.state.close_temporarily(); // a writer has used the last one while it was opened
        }
        entry.admit_queued(&hold);
        let (look, head) = (hold.gate.look(), entry.head());
        let is_used_up = look.allows_writers() && hold.gate.is_used_up();
        let is_idle = look.is_unused() && head.is_none();
        if is_revoked || (is_idle && contact.is_claimed && entry.has_no_handles()) {
            return LeaseAction::Close;
        }
        if !contact.is_claimed {
            return LeaseAction::Sleep(ends); // the answer to the claim wakes it
        }
        let waits_for_token = is_used_up && (head == Some(LockMode::Write) || !look.is_open());
        if self.tokens_exhausted && waits_for_token && head.is_some() {
            return LeaseAction::Close; // another acquisition gets one
        }
        let mut until = ends;
        match self.recall(&contact, mode) {
            Some(recall) => {
                let over = hold.granted_at.saturating_add(entry.client.settings.cache.min_hold);
                if self.recalled_since.is_none() {
                    self.recalled_since = Some(now);
                    hold.gate.state.set_notify_last(true);
                    let (pushed, waits) = (hold.acquisition.recall_mode().is_some(), now < over);
                    telemetry::record_recall(&entry.lock, recall, pushed, waits && !is_idle);
                    // The last guard may have left before it knew that it must notify.
                    return self.next_action(now);
                }
                if is_idle {
                    return LeaseAction::Close;
                } else if now < over {
                    hold.gate.set_grant_until(hold.gate.grant_until().min(over));
                    until = until.min(over);
                } else if recall == LockMode::Write || !hold.gate.has_token_to_read() {
                    return LeaseAction::Close;
                } else if !hold.gate.state.forbid_writers().has_writer() && !self.is_downgrading {
                    self.is_downgrading = true;
                    return LeaseAction::Downgrade;
                }
            }
            None if head == Some(LockMode::Write) && !look.allows_writers() => {
                return LeaseAction::Close; // a hold is not upgraded: acquire a write
            }
            None => {
                if let Some(since) = self.recalled_since.take() {
                    hold.gate.state.set_notify_last(false);
                    telemetry::record_recall_done(
                        &entry.lock,
                        false,
                        now.saturating_duration_since(since),
                    );
                }
            }
        }
        self.keepalive(now, look, is_idle, waits_for_token && head.is_some(), until)
    }

    /// Whether it is time for a contact, or to release a hold that was not used since the last one.
    fn keepalive(
        &mut self,
        now: LocalInstant,
        look: GateSnapshot,
        is_idle: bool,
        waits_for_token: bool,
        until: LocalInstant,
    ) -> LeaseAction {
        if self.keepalive.is_some() {
            return LeaseAction::Sleep(until);
        }
        let hold = &self.hold;
        let (is_due, was_used) =
            (now >= self.keepalive_due, look.grant_count() != self.grants_at_keepalive);
        let is_short = look.allows_writers() && was_used && hold.gate.is_short_of_tokens();
        let needs_tokens = (is_short || waits_for_token) && !self.tokens_exhausted;
        let tokens_due = match self.token_request {
            None => self.tokens_due,
            Some(_) => self.tokens_due.max(self.retry_at), // it failed
        };
        let mut until = until.min(self.keepalive_due);
        let why = if is_due && is_idle && !was_used {
            return LeaseAction::Close;
        } else if is_due {
            KeepaliveReason::Interval
        } else if needs_tokens && now >= tokens_due {
            KeepaliveReason::Tokens
        } else if hold.acquisition.take_resync() {
            KeepaliveReason::Resync
        } else {
            if needs_tokens {
                until = until.min(tokens_due);
            }
            return LeaseAction::Sleep(until);
        };
        self.grants_at_keepalive = look.grant_count();
        self.tokens_due = now.saturating_add(TOKEN_BLOCK_DURATION);
        self.retry_at = now.saturating_add(self.times.keepalive_interval / 4);
        self.token_request = Some((now, hold.gate.end_of_block()));
        telemetry::record_keepalive(why);
        self.report_grants(look);
        LeaseAction::Keepalive
    }

    fn report_grants(&mut self, look: GateSnapshot) {
        let grants = look.grant_count().wrapping_sub(self.grants_reported);
        self.grants_reported = look.grant_count();
        if grants > 0 {
            telemetry::record_grants(self.hold.mode, grants);
        }
    }

    fn start_keepalive(&mut self) {
        self.keepalive =
            Some(send_keepalive(self.entry.client.clone(), self.hold.acquisition.clone()));
    }

    /// Closes the gate. A hold with guards drains in a task of its own.
    fn close(mut self, now: LocalInstant) {
        let is_unused = self.entry.close_gate(&self.hold);
        let look = self.hold.gate.look();
        self.report_grants(look);
        let LeaseTask { kept, entry, hold, recalled_since: called_back, .. } = self;
        hold.acquisition.uncache();
        if let Some(since) = called_back {
            entry.record_recall(look.grant_count(), now.saturating_duration_since(since));
        }
        if is_unused {
            kept.end();
        } else {
            entry.client.spawn("end of a cached lock", drain(kept, now));
        }
    }
}

async fn release(client: Arc<ClientInner>, acquisition: Arc<Acquisition>) {
    let sent = client.apply(&acquisition, AcquisitionEvent::ReleaseStarted).now;
    let call =
        ReleaseRequest { wait_only: false }.call(client.scripts, acquisition.id, &acquisition.lock);
    let until = sent.saturating_add(client.settings.call_timeout);
    if let Ok(told) = parse_reply(client.transport.call(&call, until).await, ReleaseRequest::read) {
        client.apply(&acquisition, AcquisitionEvent::ReleaseReply(told));
    }
    if !acquisition.is_ended() {
        release_in_background(&client, &acquisition); // the worker handles what may still arrive
    }
}

/// A renewal. Its outcome is stored in the acquisition.
fn send_keepalive(
    client: Arc<ClientInner>,
    acquisition: Arc<Acquisition>,
) -> BoxFuture<'static, ()> {
    async move { drop(manual_renewal::renew(&client, &acquisition).await) }.boxed()
}

/// Waits until the last guard of a closed hold has left.
async fn drain(kept: LeaseDropGuard, closed: LocalInstant) {
    let (entry, hold) = (kept.entry.clone(), kept.hold.clone());
    let (client, acquisition) = (entry.client.clone(), hold.acquisition.clone());
    let times = CacheTimes::from_lease(entry.options(true).lease);
    let (mut due, mut renewing) = (closed.saturating_add(DRAIN_GRACE), None);
    loop {
        let mut changed = pin!(acquisition.changed.notified());
        changed.as_mut().enable();
        let now = client.clock.now();
        let ends =
            acquisition.with_lease(|held| held.is_held(now).then_some(held.deadline)).flatten();
        let look = hold.gate.look();
        let Some(ends) = ends.filter(|_| !look.is_unused()) else {
            if ends.is_none() {
                cached_lease::mark_lost(&entry, &hold, now);
            }
            break;
        };
        if now >= due && renewing.is_none() {
            due = now.saturating_add(times.keepalive_interval);
            if look.allows_writers() && !look.has_writer() {
                // The remaining readers of a write do not exclude other readers.
                hold.gate.state.forbid_writers();
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
            () = hold.last_guard_dropped.notified() => {}
            () = changed => {}
            () = client.clock.sleep_until(until) => {}
        }
    }
    entry.remove_drained(&hold);
    kept.end();
}
