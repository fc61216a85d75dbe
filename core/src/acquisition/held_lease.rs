//! A held lease: its deadline, the calls that are due, and its end.

use std::cmp::Ordering;
use std::time::Duration;

use crate::acquisition::acquire_state::{AcquireState, NewLease};
use crate::acquisition::deadline::{self, RenewalBudget};
use crate::acquisition::event::{
    Context, Effects, GrantSource, LossRecord, RequestStep, TelemetryEvent, WorkerCall,
};
use crate::acquisition::in_doubt::{self, InDoubtUntil};
use crate::acquisition::lease_options::LeaseOptions;
use crate::acquisition::pending_change::{ChangeKind, ChangeRefusal, PendingChange};
use crate::acquisition::pending_release::{InDoubtAttempts, RELEASE_GRACE};
use crate::protocol::{
    Confirmation, Grant, LockMode, ReleaseReply, ReleaseRequest, RenewRequest, to_millis,
};
use crate::protocol::{ScriptReply, ScriptResult};
use crate::time::LocalInstant;

/// How much shorter a renewed lease is because calls and replies have whole milliseconds.
const MILLIS_ROUNDING: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldLease {
    pub mode: LockMode,
    pub token: u64,
    /// When this client learned the token. Replies to earlier calls may have the previous token.
    pub(super) token_known_since: LocalInstant,
    /// The local end. It is earlier than the end at the server by `margin`.
    pub deadline: LocalInstant,
    /// How much earlier the lease ends here than at the server.
    pub margin: Duration,
    /// The requested options, for renewals and the replicas that must confirm them.
    pub(super) options: LeaseOptions,
    /// When it was granted.
    pub(super) granted_at: LocalInstant,
    pub(super) health: LeaseHealth,
    /// Whether it was reported that the lease is at risk, since the last renewal that succeeded.
    pub(super) is_risk_reported: bool,
    pub(super) renewals: RenewalBudget,
    pub(super) renewal_timer: RenewalTimer,
    holds_query: HoldsQuery,
    /// Whether the server knows that this client has the lease: a pushed grant must be claimed.
    pub(super) is_claimed: bool,
    /// The latest moment at which an ended call may still run at the server.
    pub(super) in_doubt: Option<InDoubtUntil>,
    /// The upgrade in flight.
    pub(super) upgrade: Option<Box<AcquireState>>,
    /// The change that the worker must make.
    pub(super) pending_change: Option<Box<PendingChange>>,
    /// The server's last reply about a cached lease; `None` for other leases.
    pub keepalive: Option<Box<Keepalive>>,
    /// The time until which the lock stays taken at least, server ms.
    pub keep_until: Option<u64>,
}

/// The server's last reply about a cached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keepalive {
    /// When the call with this reply was sent.
    pub sent_at: LocalInstant,
    /// Whether the server has recorded the claim.
    pub is_claimed: bool,
    /// The last token of the lock. A write owns all tokens from its own to this one.
    pub last_token: u64,
    /// The mode that another client wants, if the lease is recalled.
    pub recall_mode: Option<LockMode>,
}

/// The condition of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeaseHealth {
    Healthy,
    RenewalFailing,
    /// It is not renewed, and ends at its deadline.
    Revoked,
    /// Its holder releases it. It has ended for every observer before the release is sent, and its
    /// end is not a loss.
    Releasing,
    Lost {
        /// The server may have another lease of the same acquisition: a late duplicate of a call
        /// was granted again.
        replaced: bool,
        /// It was revoked before.
        revoked: bool,
    },
}

/// The next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RenewalTimer {
    Disabled,
    DueAt(LocalInstant),
    /// It is in flight, and was due at this moment.
    InFlight(LocalInstant),
}

/// Whether to send `holds`, which returns whether the server still has the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct HoldsQuery {
    is_due: bool,
    is_sent: bool,
}

impl HeldLease {
    /// The lease that a request was granted.
    pub(super) fn new(
        request: &AcquireState,
        granted: NewLease,
        ctx: &Context<'_>,
    ) -> (HeldLease, RequestStep) {
        let NewLease {
            grant,
            deadline,
            margin,
            claim_or_renew_at,
            source,
            server,
            sent_at,
            taken_at,
        } = granted;
        let options = request.options.clone();
        let keep_until = options.at_least.map(|least| taken_at.saturating_add(to_millis(least)));
        let is_claimed = source != GrantSource::Push;
        let mut renewals = options.renewals(ctx.now);
        renewals.allow_one_more(!is_claimed);
        let mut held_lease = HeldLease {
            mode: request.mode(),
            token: grant.token,
            token_known_since: ctx.now,
            deadline: renewals.clamp_to_hold(deadline),
            margin,
            options,
            granted_at: ctx.now,
            health: LeaseHealth::Healthy,
            is_risk_reported: false,
            renewals,
            renewal_timer: RenewalTimer::Disabled,
            holds_query: HoldsQuery::default(),
            is_claimed,
            in_doubt: request.in_doubt(),
            upgrade: None,
            pending_change: None,
            keepalive: None,
            keep_until,
        };
        if held_lease.options.is_cacheable {
            let Grant { last_token, recall_mode, .. } = grant;
            let keepalive = Keepalive { sent_at, is_claimed, last_token, recall_mode };
            held_lease.keepalive = Some(Box::new(keepalive));
        }
        held_lease.schedule_renewal(claim_or_renew_at, ctx.now);
        (held_lease, RequestStep::Granted { token: grant.token, source, server })
    }

    // Queries of callers.

    pub fn is_held(&self, now: LocalInstant) -> bool {
        !self.is_lost() && !self.is_releasing() && now < self.deadline
    }

    /// Whether the holder has begun to release it.
    pub fn is_releasing(&self) -> bool {
        self.health == LeaseHealth::Releasing
    }

    /// The mode that its holder has. The server may still have a write of which the downgrade is
    /// pending.
    pub fn visible_mode(&self) -> LockMode {
        match self.pending_change() {
            Some(ChangeKind::Downgrade) => LockMode::Read,
            _ => self.mode,
        }
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.health, LeaseHealth::Lost { .. })
    }

    /// Whether it was lost, or its end has passed while its holder had not begun to release it.
    pub fn has_lapsed(&self, now: LocalInstant) -> bool {
        self.is_lost() || (self.health != LeaseHealth::Releasing && now >= self.deadline)
    }

    /// Whether the server may have another lease in its place.
    pub fn may_be_replaced(&self) -> bool {
        matches!(self.health, LeaseHealth::Lost { replaced: true, .. })
    }

    /// Whether the lease may end soon: renewals fail or are late, or it was revoked.
    pub fn is_uncertain(&self, now: LocalInstant) -> bool {
        self.overdue_from().is_some_and(|from| from <= now) || self.health != LeaseHealth::Healthy
    }

    /// From when on the next renewal is late. The cache sends a keep-alive at least once in a sixth
    /// of the lease.
    fn overdue_from(&self) -> Option<LocalInstant> {
        match self.renewal_timer {
            RenewalTimer::Disabled => {
                let keepalive = self.keepalive.as_ref()?;
                Some(keepalive.sent_at.saturating_add(self.options.lease / 3))
            }
            RenewalTimer::DueAt(due) | RenewalTimer::InFlight(due) => {
                Some(due.saturating_add(self.options.lease / 6))
            }
        }
    }

    /// From when on the lease is at risk, unless a renewal succeeds before: a renewal has failed or
    /// is late, and less than half of the lease is left. `None` if it is not renewed, or lasts to
    /// the end of the longest hold.
    pub fn at_risk_from(&self) -> Option<LocalInstant> {
        let longest = self.deadline.saturating_add(self.margin + MILLIS_ROUNDING);
        if self.renewals.hold_deadline.is_some_and(|ends| longest >= ends) {
            return None;
        }
        let half = self.deadline.saturating_sub(self.options.lease / 2);
        match self.health {
            LeaseHealth::RenewalFailing => Some(half),
            LeaseHealth::Healthy => self.overdue_from().map(|from| from.max(half)),
            LeaseHealth::Revoked | LeaseHealth::Releasing | LeaseHealth::Lost { .. } => None,
        }
    }

    /// Reports once that the lease is at risk.
    fn report_risk(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        let is_at_risk = self.at_risk_from().is_some_and(|from| from <= ctx.now);
        if !is_at_risk || self.is_risk_reported {
            return;
        }
        (self.is_risk_reported, effects.notify_waiters) = (true, true);
        if self.has_own_reports() {
            let left = self.deadline.saturating_duration_since(ctx.now);
            effects.telemetry =
                Some(TelemetryEvent::AtRisk { mode: self.mode, token: self.token, left });
        }
    }

    /// Whether its risk and its loss are reported here. The cache and a Redlock report those of
    /// their leases, and a reserved lease has no guard.
    fn has_own_reports(&self) -> bool {
        self.keepalive.is_none() && !self.options.reserved && !self.options.is_member
    }

    pub fn is_revoked(&self) -> bool {
        self.health == LeaseHealth::Revoked
    }

    /// Whether it is revoked, or was before it was lost.
    pub fn was_revoked(&self) -> bool {
        matches!(self.health, LeaseHealth::Revoked | LeaseHealth::Lost { revoked: true, .. })
    }

    /// How many more renewals are sent, if there is a limit.
    pub fn renewals_left(&self) -> Option<u32> {
        self.renewals.renewals_left
    }

    /// Renewals after this report the lease as in use, and the server does not recall it.
    pub fn stop_caching(&mut self) {
        self.options.is_cacheable = false;
    }

    /// A guard takes the reserved lease. The limits of its renewals count from here.
    pub(super) fn begin_use(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        self.options.reserved = false;
        if self.is_lost() {
            // The loss came after the caller's last look, and was not reported then.
            effects.loss = Some(self.loss_record(ctx));
            return;
        }
        self.is_risk_reported = false;
        self.renewals = self.options.renewals(ctx.now);
        self.deadline = self.renewals.clamp_to_hold(self.deadline);
        // A claim does not count against the limit, and neither does a renewal in flight.
        let is_in_flight = matches!(self.renewal_timer, RenewalTimer::InFlight(_));
        self.renewals.allow_one_more(is_in_flight || !self.is_claimed);
        if let RenewalTimer::DueAt(due) = self.renewal_timer {
            self.schedule_renewal(due, ctx.now);
        }
        if self.health == LeaseHealth::RenewalFailing {
            self.health = LeaseHealth::Healthy;
        }
        effects.wake_worker_by(self.next_due());
    }

    /// The change that the worker must make.
    pub fn pending_change(&self) -> Option<ChangeKind> {
        self.pending_change.as_ref().map(|pending| pending.transition)
    }

    /// Why a server refused the last attempt at the pending change, if it did.
    pub fn change_refusal(&self) -> Option<&ChangeRefusal> {
        self.pending_change.as_ref()?.refusal.as_ref()
    }

    /// Returns the number of held permits, or 0 for other kinds of locks.
    pub fn permits(&self) -> u32 {
        self.options.permits.map_or(0, |permits| permits.count)
    }

    pub fn confirmation(&self) -> Confirmation {
        self.options.confirmation
    }

    /// A renewal to send now.
    pub fn renew(&self, now: LocalInstant) -> RenewRequest {
        let lease = self.renewals.lease(now, self.options.lease);
        RenewRequest {
            lease,
            mode: self.mode,
            token: self.token,
            permits: self.permits(),
            cached: self.options.is_cacheable,
        }
    }

    /// The release of all that the acquisition has, or of all that its shortest time permits.
    /// A lease that replaced a lost one is not kept.
    pub fn release_request(&self) -> ReleaseRequest {
        let keep_until = self.keep_until.filter(|_| !self.may_be_replaced());
        ReleaseRequest { keep_until, ..ReleaseRequest::ALL }
    }

    /// A release frees the lock at once, and a renewal requests the usual lease.
    pub(super) fn cancel_at_least(&mut self) {
        (self.keep_until, self.renewals.kept_until, self.options.at_least) = (None, None, None);
    }

    /// The length of the lease that was requested.
    pub fn requested_lease(&self) -> Duration {
        self.options.lease
    }

    /// Attempts without an answer that may still be carried out.
    pub fn in_doubt(&self) -> Option<InDoubtUntil> {
        let upgrade = self.upgrade.as_ref().and_then(|request| request.in_doubt());
        let pending = self.pending_change.as_ref().and_then(|pending| pending.in_doubt());
        in_doubt::later_of(in_doubt::later_of(self.in_doubt, upgrade), pending)
    }

    // Time.

    /// When the worker must handle it next.
    pub(super) fn next_due(&self) -> LocalInstant {
        let renewal = match self.renewal_timer {
            RenewalTimer::DueAt(due) => Some(due),
            RenewalTimer::Disabled | RenewalTimer::InFlight(_) => None,
        };
        let pending = self.pending_change.as_ref().and_then(|pending| pending.send_at);
        let risk = self.at_risk_from().filter(|_| !self.is_risk_reported);
        renewal.into_iter().chain(pending).chain(risk).fold(self.deadline, LocalInstant::min)
    }

    /// When the state of this acquisition at the server has expired, if no further call is sent.
    pub(super) fn server_state_ends_at(&self, now: LocalInstant) -> LocalInstant {
        // A renewal without an answer may have extended it.
        let lease = self.options.covering_lease();
        let ends = self.deadline.max(now.saturating_add(lease)).saturating_add(self.margin);
        self.in_doubt()
            .map_or(ends, |in_doubt| ends.max(in_doubt.local_deadline.saturating_add(lease)))
    }

    /// Moves the end to a later moment, at most to the end of the longest hold. Nothing extends a
    /// revoked lease.
    pub(super) fn extend(&mut self, deadline: LocalInstant, margin: Duration) {
        let deadline = self.renewals.clamp_to_hold(deadline);
        if !self.is_revoked() && deadline > self.deadline {
            (self.deadline, self.margin) = (deadline, margin);
        }
    }

    /// The margin of a lease in the server's answer, which can be longer than the requested one.
    pub(super) fn margin_of(&self, grant: Grant, server_now: u64, ctx: &Context<'_>) -> Duration {
        ctx.settings
            .safety_margin(self.options.lease.max(deadline::remaining_at(grant, server_now)))
    }

    /// Schedules its renewal, if the limits allow a renewal at `next_start`.
    pub(super) fn schedule_renewal(&mut self, due: LocalInstant, next_start: LocalInstant) {
        self.renewal_timer = match self.renewals.can_renew(next_start) {
            true => RenewalTimer::DueAt(due),
            false => RenewalTimer::Disabled,
        };
    }

    pub(super) fn on_timer(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        match self.health {
            LeaseHealth::Releasing => {}
            LeaseHealth::Lost { .. } => {
                effects.worker_calls[1] = self.take_due_change(ctx.now);
                let due = self.pending_change.as_ref().and_then(|pending| pending.send_at);
                due.into_iter().for_each(|due| effects.wake_worker_by(due));
            }
            _ if !self.is_held(ctx.now) => self.mark_lost(false, ctx, effects),
            _ => {
                self.report_risk(ctx, effects);
                // The reply to a renewal also answers `holds`.
                let renewal = self.take_due_renewal(ctx.now);
                self.holds_query.is_due &= renewal.is_none();
                let query = renewal.or_else(|| self.take_due_query());
                effects.worker_calls = [query, self.take_due_change(ctx.now)];
                effects.wake_worker_by(self.next_due());
            }
        }
    }

    fn take_due_query(&mut self) -> Option<WorkerCall> {
        let HoldsQuery { is_due, is_sent } = self.holds_query;
        if !is_due || is_sent {
            return None;
        }
        self.holds_query = HoldsQuery { is_due: false, is_sent: true };
        Some(WorkerCall::Holds { deadline: self.deadline })
    }

    // The server's replies.

    /// Records the server's answer about a cached lease. Answers can arrive out of order.
    pub(super) fn record_keepalive(
        &mut self,
        grant: Grant,
        sent: LocalInstant,
        effects: &mut Effects,
    ) {
        if let Some(keepalive) = &mut self.keepalive {
            let Grant { last_token, recall_mode, .. } = grant;
            let is_newer = sent >= keepalive.sent_at;
            keepalive.recall_mode =
                if is_newer { recall_mode } else { keepalive.recall_mode.or(recall_mode) };
            keepalive.last_token = if is_newer { last_token } else { keepalive.last_token };
            (keepalive.sent_at, keepalive.is_claimed) = (keepalive.sent_at.max(sent), true);
            effects.notify_waiters = true;
        }
    }

    /// Returns true if the token in a reply belongs to this lease. The call was sent at `sent`.
    ///
    /// A newer token belongs to an upgrade whose grant has not been received or, without an
    /// upgrade, to another lease. An older token is the token before the upgrade. If a call that
    /// was sent after the upgrade gets it, the server has lost the upgrade.
    pub(super) fn matches_token(&self, token: u64, sent: LocalInstant) -> bool {
        match token.cmp(&self.token) {
            Ordering::Equal => true,
            Ordering::Greater => self.may_be_upgraded(),
            Ordering::Less => sent <= self.token_known_since,
        }
    }

    /// Whether an upgrade is under way, or was given up and may still be granted.
    pub(super) fn may_be_upgraded(&self) -> bool {
        self.upgrade.is_some() || self.pending_change() == Some(ChangeKind::EndUpgradeWait)
    }

    // The end.

    /// Handles a message that a forced release has ended the lease. Other users may be able to
    /// publish such a message, and a failover may have undone the release, so `holds` is sent.
    pub(super) fn query_after_force_release(
        &mut self,
        token: u64,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        if token >= self.token && self.is_held(ctx.now) {
            self.holds_query.is_due = true;
            effects.wake_worker_by(ctx.now);
        }
    }

    /// Handles the reply to `holds`. The lease is lost if the server has no lease of this
    /// acquisition, or one with another token. After a failed call the next renewal decides.
    pub(super) fn on_holds_reply(
        &mut self,
        outcome: ScriptResult<Option<u64>>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        self.holds_query.is_sent = false;
        if !self.is_held(ctx.now) {
            return;
        }
        if let Ok(ScriptReply { body, sent_at: sent, .. }) = outcome {
            let is_this_one = body.is_some_and(|token| self.matches_token(token, sent));
            if !is_this_one {
                return self.mark_lost(body.is_some(), ctx, effects);
            }
        }
        if self.holds_query.is_due {
            effects.wake_worker_by(ctx.now);
        }
    }

    /// Checks whether its end has passed.
    pub(super) fn expire(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        if !self.is_releasing() && !self.is_held(ctx.now) {
            self.mark_lost(false, ctx, effects);
        }
    }

    /// The server has no lease with this token. If it has another lease of this acquisition, that
    /// lease is released.
    pub(super) fn on_not_held(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        if !self.is_releasing() {
            self.mark_lost(true, ctx, effects);
        }
    }

    /// Marks the lease as lost, for good. With `replaced`, the lease that replaced it is released.
    pub(super) fn mark_lost(&mut self, replaced: bool, ctx: &Context<'_>, effects: &mut Effects) {
        if self.is_lost() {
            return;
        }
        let expires_at = self.server_state_ends_at(ctx.now).saturating_add(RELEASE_GRACE);
        self.in_doubt = self.in_doubt();
        self.health = LeaseHealth::Lost { replaced, revoked: self.is_revoked() };
        let release_replaced = || {
            let doubt = self.in_doubt.map(|in_doubt| InDoubtAttempts::new(in_doubt, expires_at));
            let change = PendingChange::new(ChangeKind::ReleaseReplaced, ctx.now, doubt);
            Box::new(change.with_expiry(expires_at))
        };
        (self.upgrade, self.pending_change) = (None, replaced.then(release_replaced));
        effects.notify_end = true;
        effects.loss = Some(self.loss_record(ctx));
        if replaced {
            effects.wake_worker_by(ctx.now);
        }
    }

    fn loss_record(&self, ctx: &Context<'_>) -> LossRecord {
        LossRecord {
            mode: self.mode,
            token: self.token,
            held_for: ctx.now.saturating_duration_since(self.granted_at),
            by_server: ctx.now < self.deadline,
            client_failed: false,
            is_reported: self.has_own_reports(),
        }
    }

    /// The client has failed, and renews no leases.
    pub(super) fn client_failed(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        if self.health == LeaseHealth::Releasing {
            return;
        }
        self.mark_lost(false, ctx, effects);
        if let Some(lost) = &mut effects.loss {
            lost.client_failed = true;
        }
    }

    /// Records how long the lease was held, unless its end was recorded before.
    pub(super) fn record_end(
        &self,
        outcome: &'static str,
        now: LocalInstant,
        effects: &mut Effects,
    ) {
        if !self.is_lost() && !self.is_releasing() {
            effects.hold_end =
                Some((self.mode, outcome, now.saturating_duration_since(self.granted_at)));
        }
    }

    /// The holder sends its own release, so no other call is sent for the acquisition. The lease
    /// has ended for every observer from here on, because the server may grant the lock to others
    /// before its answer arrives.
    pub(super) fn begin_release(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        self.expire(ctx, effects);
        self.record_end("released", ctx.now, effects);
        self.in_doubt = self.in_doubt();
        (self.upgrade, self.pending_change) = (None, None);
        if !self.is_lost() {
            self.health = LeaseHealth::Releasing;
            effects.notify_end = true;
        }
    }

    /// Handles the reply to the holder's own release. If a reply to another call may still arrive,
    /// the acquisition is released again when the guard is dropped.
    pub(super) fn on_release_reply(
        &self,
        reply: ScriptReply<ReleaseReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let ScriptReply { sent_at: sent, body, server, .. } = reply;
        effects.telemetry = Some(TelemetryEvent::Released {
            server,
            outcome: body,
            took: ctx.now.saturating_duration_since(sent),
        });
        effects.deregister = self.in_doubt.is_none();
    }

    /// Stops tracking the lease, unless there may be another lease of this acquisition.
    pub(super) fn stop_tracking(
        &mut self,
        outcome: &'static str,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        self.expire(ctx, effects);
        self.record_end(outcome, ctx.now, effects);
        effects.deregister = !self.may_be_replaced();
    }
}
