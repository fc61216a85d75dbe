//! A request under way: when it calls, how it handles the answer, and when it wakes.

use std::time::Duration;

use crate::backend::{Address, ServerError};
use crate::client::acquisition::event::{
    AcquisitionEvent, Context, Effects, GrantPush, GrantSource, RequestStep, TelemetryEvent,
};
use crate::client::acquisition::state::lease_lost_error;
use crate::client::config::MIN_BLAMED_SILENCE;
use crate::client::deadline;
use crate::client::in_doubt::{self, InDoubtUntil};
use crate::client::lease_options::{LeaseOptions, WaitPolicy};
use crate::client::script_result::{ScriptCallError, ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::error::{Error, ErrorKind};
use crate::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, Envelope, Grant, LockKind, LockMode, QueueTerms,
    is_rejected_before_run,
};
use crate::router::{CallError, CallErrorKind};

/// The maximum repetitions of a try that dead readers block, until all of them are swept.
const MAX_TRY_SWEEPS: u32 = 10_000;

const FAR_FUTURE: LocalInstant = LocalInstant::from_duration(Duration::MAX);

/// A request that makes calls or has a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AcquireState {
    pub(super) goal: AcquireKind,
    pub(super) options: LeaseOptions,
    pub(super) policy: WaitPolicy,
    /// The end of the longest hold. An upgrade takes it from the read.
    pub(super) hold_deadline: Option<LocalInstant>,
    /// The ticket of the place in the queue, or 0.
    ticket: u64,
    waiters_ahead: u64,
    /// Whether it had to wait.
    pub(super) was_queued: bool,
    /// Whether it is a try that waits for cached holders.
    is_try: bool,
    /// Whether a call was answered.
    has_reply: bool,
    sweeps: u32,
    /// When the first call since the last answer was sent.
    pub(super) silent_since: Option<LocalInstant>,
    /// The deadline of the call under way, if there is one.
    pub(super) call_deadline: Option<LocalInstant>,
    /// Attempts of earlier calls that may still be carried out.
    pub(super) in_doubt: Option<InDoubtUntil>,
    /// Whether an earlier wait was given up and has not been ended at the server.
    earlier_wait_open: bool,
    /// A grant that was pushed.
    pub(super) pushed_grant: Option<PushedGrant>,
    /// When to poll.
    pub(super) poll_at: LocalInstant,
    /// The longest time until the next poll, if no message will come: half of the claim window that
    /// the last call gave. The first call gives it without knowing the place.
    max_poll_delay: Option<Duration>,
    /// Whether a message may have been lost.
    push_missed: bool,
    /// The token of a lease of this acquisition that a forced release has ended, according to a
    /// message.
    pub(super) force_released_token: Option<u64>,
}

/// A grant that was pushed, with its local end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PushedGrant {
    pub(super) grant: Grant,
    /// The local end of its claim window, if known.
    pub(super) claim_deadline: Option<LocalInstant>,
    margin: Duration,
    /// How much of the window must be left to hold the lock by it.
    min_remaining: Duration,
    server: Address,
}

/// The outcome of an event for a request.
#[derive(Debug)]
pub(super) enum AcquireTransition {
    Continue(RequestStep),
    Granted(NewLease),
    /// It ends, and has nothing at the server.
    EndedClean(RequestStep),
    /// It ends, and may have something at the server.
    EndedInDoubt(RequestStep),
    /// The lease that it was to change was revoked. It has nothing else at the server.
    LeaseRevoked,
    /// The lease that it was to change is lost.
    LeaseLost(RequestStep),
}

/// A granted lease, as far as it is known.
#[derive(Debug)]
pub(super) struct NewLease {
    pub(super) grant: Grant,
    pub(super) deadline: LocalInstant,
    /// How much earlier it ends here than at the server.
    pub(super) margin: Duration,
    /// When to renew it; for a pushed grant, when to claim it: at once.
    pub(super) claim_or_renew_at: LocalInstant,
    pub(super) source: GrantSource,
    pub(super) server: Address,
    /// When the answered call was sent, or the message was received.
    pub(super) sent_at: LocalInstant,
}

impl AcquireState {
    pub(super) fn new(
        goal: AcquireKind,
        options: &LeaseOptions,
        policy: WaitPolicy,
        now: LocalInstant,
    ) -> AcquireState {
        AcquireState {
            goal,
            options: LeaseOptions { lease: options.first_lease(), ..options.clone() },
            policy,
            hold_deadline: None,
            ticket: 0,
            waiters_ahead: 0,
            was_queued: false,
            is_try: false,
            has_reply: false,
            sweeps: 0,
            silent_since: None,
            call_deadline: None,
            in_doubt: None,
            earlier_wait_open: false,
            pushed_grant: None,
            poll_at: now,
            max_poll_delay: None,
            push_missed: false,
            force_released_token: None,
        }
    }

    /// Makes it an upgrade. An earlier upgrade may still have something at the server.
    pub(super) fn continue_upgrade(
        mut self,
        hold_ends: Option<LocalInstant>,
        in_doubt: Option<InDoubtUntil>,
        lingers: bool,
    ) -> AcquireState {
        (self.hold_deadline, self.in_doubt, self.earlier_wait_open) =
            (hold_ends, in_doubt, lingers);
        self
    }

    pub(super) fn mode(&self) -> LockMode {
        match self.goal {
            AcquireKind::Lock(mode, _) | AcquireKind::Transfer { mode, .. } => mode,
            AcquireKind::Upgrade { .. } => LockMode::Write,
            AcquireKind::Permits(_) => LockMode::Read,
        }
    }

    /// Attempts without an answer that may still be carried out.
    pub(super) fn in_doubt(&self) -> Option<InDoubtUntil> {
        in_doubt::later_of(self.in_doubt, self.call_deadline.map(InDoubtUntil::local_only))
    }

    /// Whether it may have something at the server although the server refused.
    pub(super) fn may_be_recorded(&self) -> bool {
        self.in_doubt().is_some() || self.earlier_wait_open
    }

    /// When everything it has at the server will have ended by itself.
    pub(super) fn server_state_ends_at(&self, at: &Context<'_>) -> LocalInstant {
        let place =
            at.now.saturating_add(at.settings.polling.waiter_ttl + at.settings.call_timeout);
        let doubt = self
            .in_doubt()
            .map(|in_doubt| in_doubt.local_deadline.saturating_add(self.options.lease));
        doubt.map_or(place, |doubt| doubt.max(place))
    }

    pub(super) fn apply(
        &mut self,
        event: AcquisitionEvent,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> AcquireTransition {
        match event {
            AcquisitionEvent::Call { is_subscribed: hears } => {
                AcquireTransition::Continue(self.call(hears, ctx))
            }
            AcquisitionEvent::AcquireReply(outcome) => self.on_reply(outcome, ctx, effects),
            _ => self.wake(ctx),
        }
    }

    fn call(&mut self, hears: bool, at: &Context<'_>) -> RequestStep {
        let now = at.now;
        self.silent_since.get_or_insert(now);
        let slice = now.saturating_add(at.settings.acquire_call_timeout);
        let until = self.policy.deadline().map_or(slice, |limit| limit.min(slice));
        let lease = self.lease(now);
        let wait = self.is_waiting().then(|| self.queue_terms(lease, hears, at));
        // A window that the end of the longest hold has cut short would only make it poll more.
        let interval = at.settings.polling.poll_interval;
        let binds = |wait: &&QueueTerms| !hears && wait.claim_timeout >= interval;
        self.max_poll_delay = wait.as_ref().filter(binds).map(|wait| wait.claim_timeout / 2);
        self.in_doubt = self.in_doubt();
        self.call_deadline = Some(until);
        RequestStep::Send {
            acquire: AcquireRequest {
                lease,
                kind: self.goal,
                wait,
                is_cacheable: self.options.is_cacheable,
            },
            replicas: self.options.min_replicas,
            deadline: until,
        }
    }

    /// Whether it has a place in the queue, or may get one.
    fn is_waiting(&self) -> bool {
        match self.policy {
            WaitPolicy::Queue { .. } => true,
            WaitPolicy::Try { cached_wait: for_cached, .. } => !for_cached.is_zero(),
        }
    }

    /// The lease to request now. An upgrade's does not exceed the longest hold, which began with
    /// the read.
    fn lease(&self, now: LocalInstant) -> Duration {
        let lease = self.options.lease;
        self.hold_deadline.map_or(lease, |ends| lease.min(ends.saturating_duration_since(now)))
    }

    fn queue_terms(&self, lease: Duration, hears: bool, at: &Context<'_>) -> QueueTerms {
        let poll = &at.settings.polling;
        let window = poll.claim_timeout(hears, self.waiters_ahead);
        QueueTerms {
            // A grant lasts no longer than the lease that is requested. Without pushes it must last
            // until the next poll. An upgrade must be claimed within the longest hold all the same.
            claim_timeout: match self.goal {
                AcquireKind::Lock(..) | AcquireKind::Transfer { .. } | AcquireKind::Permits(_)
                    if !hears =>
                {
                    window
                }
                _ => window.min(lease),
            },
            waiter_ttl: poll.waiter_ttl,
            ticket: self.ticket,
            max_queue_len: at.settings.max_queue_len,
            subscribed_server: None,
            only_for_cached: self.is_try || matches!(self.policy, WaitPolicy::Try { .. }),
        }
    }

    /// Handles the outcome of a call.
    fn on_reply(
        &mut self,
        outcome: ScriptResult<AcquireReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> AcquireTransition {
        let in_doubt = match &outcome {
            Ok(told) => told.in_doubt,
            Err(failure) => failure.in_doubt(),
        };
        if let Some(until) = self.call_deadline.take() {
            let counted = in_doubt.map(|not_after| InDoubtUntil::with_not_after(until, not_after));
            self.in_doubt = in_doubt::later_of(self.in_doubt, counted);
        }
        match outcome {
            Ok(told) => {
                self.silent_since = None;
                self.has_reply = true;
                self.on_acquire_reply(told, at, fx)
            }
            Err(ScriptCallError::Call(error)) => self.on_no_reply(error, at),
            Err(failure @ ScriptCallError::Reply { .. }) => {
                self.silent_since = None;
                AcquireTransition::EndedInDoubt(RequestStep::Failed(failure.into()))
            }
        }
    }

    fn on_acquire_reply(
        &mut self,
        told: ScriptReply<AcquireReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> AcquireTransition {
        let refuse = |kind, message: &str| {
            AcquireTransition::EndedClean(RequestStep::Failed(Error::new(kind, message)))
        };
        let ScriptReply {
            body: what,
            envelope,
            sent_at: sent,
            received_at: received,
            server: node,
            replicas_confirmed: confirmed,
            ..
        } = told;
        match what {
            AcquireReply::Granted(_) if confirmed < self.options.min_replicas => {
                let error = too_few_replicas_error(confirmed, self.options.min_replicas);
                AcquireTransition::EndedInDoubt(RequestStep::Failed(error))
            }
            AcquireReply::Granted(grant) => {
                self.on_granted(grant, envelope, (sent, received), node, at, fx)
            }
            AcquireReply::Busy | AcquireReply::Recalling
                if envelope.has_pump_work && self.sweeps < MAX_TRY_SWEEPS =>
            {
                self.sweeps += 1;
                AcquireTransition::Continue(RequestStep::CallNow)
            }
            AcquireReply::Busy | AcquireReply::Recalling => {
                AcquireTransition::EndedClean(RequestStep::Busy)
            }
            AcquireReply::Queued { ticket, ahead } => {
                // The one upgrader goes before all; for it, `ahead` counts the readers.
                (self.ticket, self.waiters_ahead) = (ticket, if ticket > 0 { ahead } else { 0 });
                if let WaitPolicy::Try { deadline: until, cached_wait: for_cached } = self.policy {
                    self.is_try = true;
                    let until = until.min(at.now.saturating_add(for_cached));
                    self.policy = WaitPolicy::Queue { deadline: Some(until) };
                }
                if !self.was_queued {
                    self.was_queued = true;
                    fx.telemetry = Some(TelemetryEvent::Queued { mode: self.mode(), node, ahead });
                }
                self.wait_for_poll(at)
            }
            AcquireReply::QueueFull { .. } if matches!(self.policy, WaitPolicy::Try { .. }) => {
                AcquireTransition::EndedClean(RequestStep::Busy)
            }
            AcquireReply::QueueFull { waiters } => {
                let message = format!("{waiters} wait already, which is the limit");
                refuse(ErrorKind::TooManyWaiters, &message)
            }
            AcquireReply::LimitMismatch(limit) => {
                AcquireTransition::EndedClean(RequestStep::Failed(self.limit_mismatch(limit)))
            }
            AcquireReply::TooLate => AcquireTransition::Continue(RequestStep::CallNow), // the call arrived too late
            AcquireReply::UpgradeConflict => refuse(
                ErrorKind::Conflict,
                "another reader waits to be upgraded: one of the two must release",
            ),
            AcquireReply::Revoked => AcquireTransition::LeaseRevoked,
            AcquireReply::NotHeld => {
                AcquireTransition::LeaseLost(RequestStep::Failed(match self.goal {
                    AcquireKind::Transfer { .. } => unknown_ticket_error(),
                    _ => lease_lost_error(),
                }))
            }
        }
    }

    fn on_granted(
        &self,
        grant: Grant,
        envelope: Envelope,
        (sent, received): (LocalInstant, LocalInstant),
        node: Address,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> AcquireTransition {
        let margin = self.margin(at, deadline::remaining_at(grant, envelope.server_now));
        let ends = deadline::lease_deadline(grant, envelope.server_now, sent, margin);
        if ends <= received {
            // The answer took longer than the lease: it counts as no grant.
            fx.telemetry = Some(TelemetryEvent::GrantExpired { mode: self.mode(), node });
            let message = "the answer came when the lease was over";
            return AcquireTransition::EndedInDoubt(RequestStep::Failed(Error::new(
                ErrorKind::Unavailable,
                message,
            )));
        }
        let claim_or_renew_at = deadline::renew_at(sent, self.options.lease, at.jitter);
        AcquireTransition::Granted(NewLease {
            grant,
            deadline: ends,
            margin,
            claim_or_renew_at,
            source: GrantSource::Reply,
            server: node,
            sent_at: sent,
        })
    }

    fn on_no_reply(&mut self, error: CallError, at: &Context<'_>) -> AcquireTransition {
        match &error.kind {
            _ if self.is_transient(&error, at.now) => {
                AcquireTransition::Continue(RequestStep::CallNow)
            }
            // The place in the queue had expired, and there is no memory for a new one now.
            CallErrorKind::Rejected(said) if self.ticket > 0 && said.code == "OOM" => {
                self.wait_for_poll(at)
            }
            CallErrorKind::TimedOut(None) if self.timed_out_before_reply(at.now) => {
                AcquireTransition::EndedInDoubt(self.timed_out())
            }
            // No server has received it, so there is nothing to release.
            CallErrorKind::Overloaded
            | CallErrorKind::TimedOut(None)
            | CallErrorKind::SlotUnassigned(_)
                if !self.has_reply =>
            {
                AcquireTransition::EndedClean(RequestStep::Failed(error.into()))
            }
            CallErrorKind::PermanentConnectionError if !self.has_reply => {
                AcquireTransition::EndedClean(RequestStep::Failed(error.into()))
            }
            CallErrorKind::Rejected(said) if self.was_rejected_before_effect(said, at) => {
                AcquireTransition::EndedClean(RequestStep::Failed(error.into()))
            }
            _ => AcquireTransition::EndedInDoubt(RequestStep::Failed(error.into())),
        }
    }

    /// Whether a call that was refused has changed nothing, so that nothing must be released: the
    /// script has not begun, or it is that of a mutex, which makes one change at most.
    fn was_rejected_before_effect(&self, said: &ServerError, at: &Context<'_>) -> bool {
        at.lock_kind == LockKind::SetNxMutex || (!self.has_reply && is_rejected_before_run(said))
    }

    /// Whether to call again: a slot that cannot be served now may be served in time.
    fn is_transient(&self, error: &CallError, now: LocalInstant) -> bool {
        let least = match error.kind {
            CallErrorKind::TimedOut(_)
            | CallErrorKind::TooManyRedirects(_)
            | CallErrorKind::SlotUnassigned(_) => Duration::ZERO,
            // So near the deadline the call would not be sent either.
            CallErrorKind::Overloaded => MIN_BLAMED_SILENCE,
            _ => return false,
        };
        now.saturating_add(least) < self.policy.deadline().unwrap_or(FAR_FUTURE)
    }

    /// Whether the deadline passed just after a poll was sent, so that the server is not to blame.
    fn timed_out_before_reply(&self, now: LocalInstant) -> bool {
        let silence =
            self.silent_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.ticket > 0 && silence < MIN_BLAMED_SILENCE
    }

    /// The error if the semaphore's limit does not allow this request.
    fn limit_mismatch(&self, limit: u32) -> Error {
        let expected = match self.goal {
            AcquireKind::Permits(permits) => permits.limit.to_string(),
            AcquireKind::Lock(..) | AcquireKind::Upgrade { .. } | AcquireKind::Transfer { .. } => {
                "none".into()
            }
        };
        let message = format!("the semaphore's limit is {limit}, and not {expected}");
        Error::limit_mismatch(message, limit)
    }

    /// Rests until the next poll.
    fn wait_for_poll(&mut self, at: &Context<'_>) -> AcquireTransition {
        let poll = &at.settings.polling;
        let pause = poll.poll_delay(self.waiters_ahead, at.jitter);
        self.poll_at =
            at.now.saturating_add(self.max_poll_delay.map_or(pause, |most| pause.min(most)));
        self.wait()
    }

    fn wait(&self) -> AcquireTransition {
        let wake = self.policy.deadline().map_or(self.poll_at, |until| until.min(self.poll_at));
        AcquireTransition::Continue(RequestStep::WaitUntil(wake))
    }

    fn wake(&mut self, at: &Context<'_>) -> AcquireTransition {
        if let Some(pushed) = self.pushed_grant.take() {
            return self.claim(pushed, at.now);
        }
        if std::mem::take(&mut self.push_missed) {
            // All other waiters were told as well. They poll in the order of their places, not all
            // at once.
            let turn = at.settings.polling.staggered_delay(self.waiters_ahead, at.jitter);
            self.poll_at = self.poll_at.min(at.now.saturating_add(turn));
        }
        if self.policy.deadline().is_some_and(|until| at.now >= until) {
            AcquireTransition::EndedInDoubt(self.timed_out())
        } else if at.now >= self.poll_at {
            AcquireTransition::Continue(RequestStep::CallNow)
        } else {
            self.wait()
        }
    }

    /// The outcome when the time is up.
    fn timed_out(&self) -> RequestStep {
        if self.is_try { RequestStep::Busy } else { RequestStep::Failed(timed_out_error()) }
    }

    pub(super) fn on_push_missed(&mut self) {
        self.push_missed = true;
    }

    /// Records a grant that was pushed.
    pub(super) fn on_pushed(&mut self, pushed: GrantPush, at: &Context<'_>) {
        let GrantPush {
            grant,
            server_now: now,
            received_at: received,
            server: from,
            clock_bounds: bound,
        } = pushed;
        // While a slot moves, messages from two servers can arrive out of order.
        if self.pushed_grant.as_ref().is_some_and(|known| known.grant.token >= grant.token) {
            return;
        }
        let window = Duration::from_millis(grant.deadline.saturating_sub(now));
        let margin = self.margin(at, window);
        self.pushed_grant = Some(PushedGrant {
            grant,
            claim_deadline: deadline::pushed_deadline(grant, now, received, bound.as_ref(), margin),
            // For the claim to arrive in time, half of the maximum and a quarter of the window must
            // be left. The margin can exceed the window.
            margin,
            min_remaining: (window.saturating_sub(margin) / 2).max(window / 4),
            server: from,
        });
    }

    /// Takes the lease by a pushed grant, and claims it at once. If its end is unknown or near, or
    /// replicas must confirm it, the next poll claims it instead.
    fn claim(&self, pushed: PushedGrant, now: LocalInstant) -> AcquireTransition {
        let PushedGrant { grant, claim_deadline: ends, margin, min_remaining: least, server: from } =
            pushed;
        // An upgrade shares its acquisition with the read and with earlier upgrades, whose messages
        // can arrive late.
        let is_old = matches!(self.goal, AcquireKind::Upgrade { token } if grant.token <= token);
        match ends {
            Some(ends)
                if !is_old
                    && ends.saturating_duration_since(now) > least
                    && self.options.min_replicas == 0 =>
            {
                AcquireTransition::Granted(NewLease {
                    grant,
                    deadline: ends,
                    margin,
                    claim_or_renew_at: now,
                    source: GrantSource::Push,
                    server: from,
                    sent_at: now,
                })
            }
            _ => AcquireTransition::Continue(RequestStep::CallNow),
        }
    }

    /// The margin of a lease with this time left. A lease that is taken over can be longer than the
    /// requested one.
    fn margin(&self, at: &Context<'_>, left: Duration) -> Duration {
        at.settings.safety_margin(self.options.lease.max(left))
    }
}

/// The error for a ticket that the server does not know.
fn unknown_ticket_error() -> Error {
    let message =
        "the ticket stands for no lease: that has ended, or another client has taken it up";
    Error::new(ErrorKind::Lost, message)
}

pub(crate) fn timed_out_error() -> Error {
    Error::new(ErrorKind::TimedOut, "it was not our turn in the time that was given")
}

pub(crate) fn too_few_replicas_error(confirmed: u32, wanted: u32) -> Error {
    let message = format!("{confirmed} of the {wanted} requested replicas confirmed it in time");
    Error::new(ErrorKind::Unavailable, message)
}
