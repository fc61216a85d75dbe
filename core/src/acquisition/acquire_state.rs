//! A request under way: when it calls, how it handles the answer, and when it wakes.

use std::time::Duration;

use crate::acquisition::config::MIN_BLAMED_SILENCE;
use crate::acquisition::deadline;
use crate::acquisition::error::AcquisitionError;
use crate::acquisition::event::{
    AcquisitionEvent, Context, Effects, GrantPush, GrantSource, RequestStep, TelemetryEvent,
};
use crate::acquisition::in_doubt::{self, InDoubtUntil};
use crate::acquisition::lease_options::{LeaseOptions, WaitPolicy};
use crate::protocol::{
    AcquireKind, AcquireReply, AcquireRequest, CallError, CallErrorKind, Envelope, Grant, LockKind,
    LockMode, QueueTerms, ScriptReply, ScriptResult, is_rejected_before_write, to_millis,
};
use crate::resp::{Address, ServerError};
use crate::time::LocalInstant;

/// The maximum repetitions of a call that dead holders or waiters block, until all of them are
/// removed.
const MAX_SWEEPS: u32 = 10_000;

/// The largest limit of a queue that is sent. The fast paths take twelve digits, and no server has
/// memory for more waiters.
const MAX_QUEUE_LEN: u64 = 999_999_999_999;

const FAR_FUTURE: LocalInstant = LocalInstant::from_duration(Duration::MAX);

/// A request that makes calls or has a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireState {
    pub(super) goal: AcquireKind,
    pub(super) options: LeaseOptions,
    pub(super) policy: WaitPolicy,
    /// The end of the longest hold. An upgrade takes it from the read.
    pub(super) hold_deadline: Option<LocalInstant>,
    /// The ticket of the waiter, or 0.
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
    /// Whether the server may still have an earlier upgrade, which waits or was granted.
    earlier_upgrade_open: bool,
    pub(super) pushed_grant: Option<PushedGrant>,
    /// When to poll.
    pub(super) poll_at: LocalInstant,
    /// The longest time until the next poll, if no message will come: half of the claim window that
    /// the last call gave, without the time for confirmations. The first call gives it without
    /// knowing the place.
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
    /// When it was granted, server ms.
    pub(super) granted_at: u64,
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
    /// The lease that the upgrade should change was revoked. It has nothing else at the server.
    LeaseRevoked,
    /// The lease that the upgrade should change is lost.
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
    /// When the lock was taken, server ms.
    pub(super) taken_at: u64,
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
            earlier_upgrade_open: false,
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
        hold_deadline: Option<LocalInstant>,
        in_doubt: Option<InDoubtUntil>,
        earlier_upgrade_open: bool,
    ) -> AcquireState {
        (self.hold_deadline, self.in_doubt, self.earlier_upgrade_open) =
            (hold_deadline, in_doubt, earlier_upgrade_open);
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
        self.in_doubt().is_some() || self.earlier_upgrade_open
    }

    /// When the state of this acquisition at the server has expired.
    pub(super) fn server_state_ends_at(&self, ctx: &Context<'_>) -> LocalInstant {
        let waiter_expires_at =
            ctx.now.saturating_add(ctx.settings.polling.waiter_ttl + ctx.settings.call_timeout);
        let lease_expires_at = self
            .in_doubt()
            .map(|in_doubt| in_doubt.local_deadline.saturating_add(self.options.covering_lease()));
        lease_expires_at.map_or(waiter_expires_at, |at| at.max(waiter_expires_at))
    }

    pub(super) fn apply(
        &mut self,
        event: AcquisitionEvent,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> AcquireTransition {
        match event {
            AcquisitionEvent::Call { is_subscribed } => {
                AcquireTransition::Continue(self.call(is_subscribed, ctx))
            }
            AcquisitionEvent::AcquireReply(outcome) => self.on_reply(outcome, ctx, effects),
            _ => self.wake(ctx),
        }
    }

    fn call(&mut self, is_subscribed: bool, ctx: &Context<'_>) -> RequestStep {
        let now = ctx.now;
        self.silent_since.get_or_insert(now);
        let call_timeout = ctx.settings.acquire_call_timeout + self.options.confirmation.timeout();
        let call_limit = now.saturating_add(call_timeout);
        let deadline =
            self.policy.deadline().map_or(call_limit, |deadline| deadline.min(call_limit));
        let lease = self.lease(now);
        let wait = self.is_waiting().then(|| self.queue_terms(lease, is_subscribed, ctx));
        // A window that the end of the longest hold has cut short would only make it poll more.
        let interval = ctx.settings.polling.poll_interval;
        let for_polls = |wait: &QueueTerms| wait.claim_timeout.saturating_sub(self.claim_delay());
        let binds = |window: &Duration| !is_subscribed && *window >= interval;
        self.max_poll_delay = wait.as_ref().map(for_polls).filter(binds).map(|window| window / 2);
        self.in_doubt = self.in_doubt();
        self.call_deadline = Some(deadline);
        RequestStep::Send {
            acquire: AcquireRequest {
                lease,
                kind: self.goal,
                wait,
                is_cacheable: self.options.is_cacheable,
            },
            confirmation: self.options.confirmation,
            deadline,
        }
    }

    /// Whether it is in the queue, or may be queued.
    fn is_waiting(&self) -> bool {
        match self.policy {
            WaitPolicy::Queue { .. } => true,
            WaitPolicy::Try { cached_wait: for_cached, .. } => !for_cached.is_zero(),
        }
    }

    /// The lease to request now. An upgrade's does not exceed the longest hold, which began with
    /// the read.
    fn lease(&self, now: LocalInstant) -> Duration {
        let lease = self.options.covering_lease();
        self.hold_deadline
            .map_or(lease, |deadline| lease.min(deadline.saturating_duration_since(now)))
    }

    /// How much later a claim may arrive because of confirmations: the reply to the last call waits
    /// for its own, and the claim waits for the group before it.
    fn claim_delay(&self) -> Duration {
        2 * self.options.confirmation.timeout()
    }

    fn queue_terms(&self, lease: Duration, is_subscribed: bool, ctx: &Context<'_>) -> QueueTerms {
        let poll = &ctx.settings.polling;
        let window = poll.claim_timeout(is_subscribed, self.waiters_ahead) + self.claim_delay();
        QueueTerms {
            // A grant lasts no longer than the lease that is requested. Without pushes it must last
            // until the next poll. An upgrade must be claimed within the longest hold all the same.
            claim_timeout: match self.goal {
                AcquireKind::Lock(..) | AcquireKind::Transfer { .. } | AcquireKind::Permits(_)
                    if !is_subscribed =>
                {
                    window
                }
                _ => window.min(lease),
            },
            waiter_ttl: poll.waiter_ttl,
            ticket: self.ticket,
            max_queue_len: ctx.settings.max_queue_len.min(MAX_QUEUE_LEN),
            subscribed_server: None,
            only_for_cached: self.is_try || matches!(self.policy, WaitPolicy::Try { .. }),
        }
    }

    /// Handles the outcome of a call.
    fn on_reply(
        &mut self,
        outcome: ScriptResult<AcquireReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> AcquireTransition {
        let in_doubt = match &outcome {
            Ok(reply) => reply.in_doubt,
            Err(failure) => failure.in_doubt,
        };
        if let Some(until) = self.call_deadline.take() {
            let attempts = InDoubtUntil::of_ended_call(until, in_doubt);
            self.in_doubt = in_doubt::later_of(self.in_doubt, attempts);
        }
        match outcome {
            Ok(reply) => {
                self.silent_since = None;
                self.has_reply = true;
                self.on_acquire_reply(reply, ctx, effects)
            }
            Err(error) => {
                if let CallErrorKind::Reply(_) = error.kind {
                    self.silent_since = None;
                }
                self.on_no_reply(error, ctx)
            }
        }
    }

    fn on_acquire_reply(
        &mut self,
        reply: ScriptReply<AcquireReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> AcquireTransition {
        let refuse = |error| AcquireTransition::EndedClean(RequestStep::Failed(error));
        let ScriptReply { body, envelope, sent_at, received_at, server, confirmed, .. } = reply;
        match body {
            AcquireReply::Granted(grant) => match confirmed {
                Ok(()) => {
                    self.on_granted(grant, envelope, (sent_at, received_at), server, ctx, effects)
                }
                Err(reason) => AcquireTransition::EndedInDoubt(RequestStep::Failed(reason.into())),
            },
            AcquireReply::Busy | AcquireReply::Recalling | AcquireReply::QueueFull { .. }
                if envelope.has_more_work && self.sweeps < MAX_SWEEPS =>
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
                    // The claim must be confirmed within this time too.
                    let wait = for_cached + self.options.confirmation.timeout();
                    let until = until.min(ctx.now.saturating_add(wait));
                    self.policy = WaitPolicy::Queue { deadline: Some(until) };
                }
                if !self.was_queued {
                    self.was_queued = true;
                    effects.telemetry =
                        Some(TelemetryEvent::Queued { mode: self.mode(), server, ahead });
                }
                self.wait_for_poll(ctx)
            }
            AcquireReply::QueueFull { .. } if matches!(self.policy, WaitPolicy::Try { .. }) => {
                AcquireTransition::EndedClean(RequestStep::Busy)
            }
            AcquireReply::QueueFull { waiters } => refuse(AcquisitionError::QueueFull { waiters }),
            AcquireReply::LimitMismatch(limit) => refuse(self.limit_mismatch(limit)),
            AcquireReply::TooLate => AcquireTransition::Continue(RequestStep::CallNow), // the call arrived too late
            AcquireReply::UpgradeConflict => refuse(AcquisitionError::UpgradeConflict),
            AcquireReply::Revoked => AcquireTransition::LeaseRevoked,
            AcquireReply::NotHeld => {
                AcquireTransition::LeaseLost(RequestStep::Failed(match self.goal {
                    AcquireKind::Transfer { .. } => AcquisitionError::UnknownTransfer,
                    _ => AcquisitionError::LeaseLost,
                }))
            }
        }
    }

    fn on_granted(
        &self,
        grant: Grant,
        envelope: Envelope,
        (sent, received): (LocalInstant, LocalInstant),
        server: Address,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> AcquireTransition {
        let margin = self.margin(ctx, deadline::remaining_at(grant, envelope.server_now));
        let deadline = deadline::lease_deadline(grant, envelope.server_now, sent, margin);
        if deadline <= received {
            // The answer took longer than the lease: it counts as no grant.
            effects.telemetry = Some(TelemetryEvent::GrantExpired { mode: self.mode(), server });
            let error = AcquisitionError::GrantExpired;
            return AcquireTransition::EndedInDoubt(RequestStep::Failed(error));
        }
        // A repeated call was granted its lease earlier.
        let lease_start = grant.deadline.saturating_sub(to_millis(self.options.covering_lease()));
        let claim_or_renew_at = deadline::renew_at(sent, self.options.lease, ctx.jitter);
        AcquireTransition::Granted(NewLease {
            grant,
            deadline,
            margin,
            claim_or_renew_at,
            source: GrantSource::Reply,
            server,
            sent_at: sent,
            taken_at: envelope.server_now.min(lease_start),
        })
    }

    fn on_no_reply(&mut self, error: CallError, ctx: &Context<'_>) -> AcquireTransition {
        match &error.kind {
            _ if self.is_transient(&error, ctx.now) => {
                AcquireTransition::Continue(RequestStep::CallNow)
            }
            // The waiter had expired, and the server has no memory for a new one now.
            CallErrorKind::Rejected(rejection) if self.was_queued && rejection.code == "OOM" => {
                self.wait_for_poll(ctx)
            }
            CallErrorKind::TimedOut(None) if self.timed_out_before_reply(ctx.now) => {
                AcquireTransition::EndedInDoubt(self.timed_out())
            }
            // No server has received it, or each one refused it before the script ran: there is
            // nothing to release.
            CallErrorKind::Overloaded
            | CallErrorKind::TimedOut(_)
            | CallErrorKind::TooManyRedirects(_)
            | CallErrorKind::SlotUnassigned(_)
            | CallErrorKind::Unconnected { .. }
                if !self.has_reply =>
            {
                AcquireTransition::EndedClean(RequestStep::Failed(error.into()))
            }
            CallErrorKind::Rejected(rejection)
                if self.was_rejected_before_effect(rejection, ctx) =>
            {
                AcquireTransition::EndedClean(RequestStep::Failed(error.into()))
            }
            _ => AcquireTransition::EndedInDoubt(RequestStep::Failed(error.into())),
        }
    }

    /// Returns true if a rejected call changed nothing, so that no release is needed. The script
    /// wrote nothing, or it is the script of a mutex, which makes one change at most.
    fn was_rejected_before_effect(&self, rejection: &ServerError, ctx: &Context<'_>) -> bool {
        ctx.lock_kind == LockKind::SetNxMutex
            || (!self.has_reply && is_rejected_before_write(rejection))
    }

    /// Whether to call again: a slot that cannot be served now may be served in time.
    fn is_transient(&self, error: &CallError, now: LocalInstant) -> bool {
        let min_remaining = match error.kind {
            CallErrorKind::TimedOut(_)
            | CallErrorKind::TooManyRedirects(_)
            | CallErrorKind::SlotUnassigned(_) => Duration::ZERO,
            // So near the deadline the call would not be sent either.
            CallErrorKind::Overloaded => MIN_BLAMED_SILENCE,
            _ => return false,
        };
        now.saturating_add(min_remaining) < self.policy.deadline().unwrap_or(FAR_FUTURE)
    }

    /// Whether a timeout that ends now is the server's fault, which has not answered a call.
    pub(super) fn is_server_silent(&self, now: LocalInstant) -> bool {
        self.silent_since.is_some() && !self.timed_out_before_reply(now)
    }

    /// How long the server has not answered its calls.
    pub fn silence(&self, now: LocalInstant) -> Duration {
        self.silent_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Whether the deadline passed just after a poll was sent, so that the server is not to blame.
    fn timed_out_before_reply(&self, now: LocalInstant) -> bool {
        self.was_queued && self.silence(now) < MIN_BLAMED_SILENCE
    }

    /// The error if the semaphore's limit does not allow this request.
    fn limit_mismatch(&self, limit: u32) -> AcquisitionError {
        let expected = match self.goal {
            AcquireKind::Permits(permits) => Some(permits.limit),
            _ => None,
        };
        AcquisitionError::LimitMismatch { limit, expected }
    }

    /// Waits until the next poll.
    fn wait_for_poll(&mut self, ctx: &Context<'_>) -> AcquireTransition {
        let poll = &ctx.settings.polling;
        let pause = poll.poll_delay(self.waiters_ahead, ctx.jitter);
        self.poll_at =
            ctx.now.saturating_add(self.max_poll_delay.map_or(pause, |max| pause.min(max)));
        self.wait()
    }

    fn wait(&self) -> AcquireTransition {
        let wake = self.policy.deadline().map_or(self.poll_at, |until| until.min(self.poll_at));
        AcquireTransition::Continue(RequestStep::WaitUntil(wake))
    }

    fn wake(&mut self, ctx: &Context<'_>) -> AcquireTransition {
        if let Some(pushed) = self.pushed_grant.take() {
            return self.claim(pushed, ctx.now);
        }
        if std::mem::take(&mut self.push_missed) {
            // All other waiters were notified as well. They poll in the order of the queue, not all
            // at once.
            let turn = ctx.settings.polling.staggered_delay(self.waiters_ahead, ctx.jitter);
            self.poll_at = self.poll_at.min(ctx.now.saturating_add(turn));
        }
        if self.policy.deadline().is_some_and(|until| ctx.now >= until) {
            AcquireTransition::EndedInDoubt(self.timed_out())
        } else if ctx.now >= self.poll_at {
            AcquireTransition::Continue(RequestStep::CallNow)
        } else {
            self.wait()
        }
    }

    /// The outcome when the time is up.
    fn timed_out(&self) -> RequestStep {
        if self.is_try {
            return RequestStep::Busy;
        }
        RequestStep::Failed(AcquisitionError::TimedOut { waiters_ahead: self.waiters_ahead })
    }

    pub(super) fn on_push_missed(&mut self) {
        self.push_missed = true;
    }

    pub(super) fn on_pushed(&mut self, pushed: GrantPush, ctx: &Context<'_>) {
        let GrantPush { grant, server_now, received_at: received, server, clock_bounds } = pushed;
        // While a slot moves, messages from two servers can arrive out of order.
        if self.pushed_grant.as_ref().is_some_and(|known| known.grant.token >= grant.token) {
            return;
        }
        let window = Duration::from_millis(grant.deadline.saturating_sub(server_now));
        let margin = self.margin(ctx, window);
        self.pushed_grant = Some(PushedGrant {
            grant,
            claim_deadline: deadline::pushed_deadline(
                grant,
                server_now,
                received,
                clock_bounds.as_ref(),
                margin,
            ),
            // For the claim to arrive in time, half of the maximum and a quarter of the window must
            // be left. The margin can exceed the window.
            margin,
            min_remaining: (window.saturating_sub(margin) / 2).max(window / 4),
            server,
            granted_at: server_now,
        });
    }

    /// Takes the lease by a pushed grant, and claims it at once. If its end is unknown or near, or
    /// it must be confirmed, the next poll claims it instead. So does a poll for a lock that must
    /// stay taken for a shortest time: until the claim, the server keeps it for the claim window
    /// only.
    fn claim(&self, pushed: PushedGrant, now: LocalInstant) -> AcquireTransition {
        let PushedGrant { grant, claim_deadline, margin, min_remaining, server, granted_at } =
            pushed;
        // An upgrade shares its acquisition with the read and with earlier upgrades, whose messages
        // can arrive late.
        let is_old = matches!(self.goal, AcquireKind::Upgrade { token } if grant.token <= token);
        match claim_deadline {
            Some(deadline)
                if !is_old
                    && deadline.saturating_duration_since(now) > min_remaining
                    && self.options.confirmation.is_empty()
                    && self.options.at_least.is_none() =>
            {
                AcquireTransition::Granted(NewLease {
                    grant,
                    deadline,
                    margin,
                    claim_or_renew_at: now,
                    source: GrantSource::Push,
                    server,
                    sent_at: now,
                    taken_at: granted_at,
                })
            }
            _ => AcquireTransition::Continue(RequestStep::CallNow),
        }
    }

    /// The margin of a lease with this time left. A lease that is taken over can be longer than the
    /// requested one.
    fn margin(&self, ctx: &Context<'_>, left: Duration) -> Duration {
        ctx.settings.safety_margin(self.options.lease.max(left))
    }
}
