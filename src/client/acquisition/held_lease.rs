//! A lease: its deadline, what is due for it, and its end.

use std::cmp::Ordering;
use std::time::Duration;

use crate::client::acquisition::acquire_state::{AcquireState, NewLease};
use crate::client::acquisition::event::{
    Context, Effects, LossRecord, RequestStep, TelemetryEvent, WorkerCall,
};
use crate::client::acquisition::pending_change::{ChangeKind, PendingChange};
use crate::client::acquisition::pending_release::RELEASE_GRACE;
use crate::client::deadline::{self, RenewalBudget};
use crate::client::in_doubt::{self, InDoubtUntil};
use crate::client::lease_options::LeaseOptions;
use crate::client::script_result::{ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::protocol::{Grant, LockMode, ReleaseReply, RenewRequest};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldLease {
    pub(crate) mode: LockMode,
    pub(crate) token: u64,
    /// Since when the token is known. Earlier calls may be answered with the token before it.
    pub(super) token_known_since: LocalInstant,
    /// The local end; the margin is subtracted already.
    pub(crate) deadline: LocalInstant,
    /// How much earlier it ends here than at the server.
    pub(crate) margin: Duration,
    /// The requested options, for renewals and the replicas that must confirm them.
    pub(super) options: LeaseOptions,
    /// When it was granted.
    pub(super) granted_at: LocalInstant,
    pub(super) health: LeaseHealth,
    pub(super) renewals: RenewalBudget,
    pub(super) renewal_timer: RenewalTimer,
    holds_query: HoldsQuery,
    /// Of calls that have ended.
    pub(super) in_doubt: Option<InDoubtUntil>,
    /// The upgrade under way.
    pub(super) upgrade: Option<Box<AcquireState>>,
    /// The change that the worker must make.
    pub(super) pending_change: Option<Box<PendingChange>>,
    /// For a lease that can be recalled: the server's last answer.
    pub(crate) keepalive: Option<Box<Keepalive>>,
}

/// The server's last answer about a cached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Keepalive {
    /// When it was sent.
    pub(crate) sent_at: LocalInstant,
    /// Whether the server has recorded the claim.
    pub(crate) is_claimed: bool,
    /// The last token of the lock. A write owns all tokens from its own to this one.
    pub(crate) last_token: u64,
    /// The mode whose request recalls it.
    pub(crate) recall_mode: Option<LockMode>,
}

/// The condition of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LeaseHealth {
    Healthy,
    /// The last renewal failed.
    RenewalFailing,
    /// It is not renewed, and ends at its deadline.
    Revoked,
    /// Its holder releases it. It has ended for every observer before the release is sent, and its
    /// end is not a loss.
    Releasing,
    Lost {
        /// The server may have another lease of the same acquisition: a late duplicate of a call
        /// was granted anew.
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
    /// It is under way, and was due at this moment.
    InFlight(LocalInstant),
}

/// Whether to ask the server if it still has the lease.
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
        at: &Context<'_>,
    ) -> (HeldLease, RequestStep) {
        let NewLease {
            grant,
            deadline: ends,
            margin,
            claim_or_renew_at,
            source: by,
            server: node,
            sent_at: since,
        } = granted;
        let options = request.options.clone();
        let claims = claim_or_renew_at <= at.now;
        let mut renewals = options.renewals(at.now);
        renewals.renewals_left =
            renewals.renewals_left.map(|left| left.saturating_add(u32::from(claims)));
        let mut holding = HeldLease {
            mode: request.mode(),
            token: grant.token,
            token_known_since: at.now,
            deadline: renewals.clamp_to_hold(ends),
            margin,
            options,
            granted_at: at.now,
            health: LeaseHealth::Healthy,
            renewals,
            renewal_timer: RenewalTimer::Disabled,
            holds_query: HoldsQuery::default(),
            in_doubt: request.in_doubt(),
            upgrade: None,
            pending_change: None,
            keepalive: None,
        };
        if holding.options.is_cacheable {
            let Grant { last_token: fence, recall_mode: recall, .. } = grant;
            let contact = Keepalive {
                sent_at: since,
                is_claimed: !claims,
                last_token: fence,
                recall_mode: recall,
            };
            holding.keepalive = Some(Box::new(contact));
        }
        holding.schedule_renewal(claim_or_renew_at, at.now);
        (holding, RequestStep::Granted { token: grant.token, by, node })
    }

    // What callers see.

    pub(crate) fn is_held(&self, now: LocalInstant) -> bool {
        !self.is_lost() && !self.is_releasing() && now < self.deadline
    }

    /// Whether its holder has begun to release it.
    pub(crate) fn is_releasing(&self) -> bool {
        self.health == LeaseHealth::Releasing
    }

    /// The mode that its holder has. The server may still have a write of which the downgrade is
    /// pending.
    pub(crate) fn visible_mode(&self) -> LockMode {
        match self.pending_change() {
            Some(ChangeKind::Downgrade) => LockMode::Read,
            _ => self.mode,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.health, LeaseHealth::Lost { .. })
    }

    /// Whether it was lost, or its end has passed while its holder had not begun to release it.
    #[cfg(feature = "blocking")]
    pub(crate) fn has_lapsed(&self, now: LocalInstant) -> bool {
        self.is_lost() || (self.health != LeaseHealth::Releasing && now >= self.deadline)
    }

    /// Whether the server may have another lease in its place.
    pub(crate) fn may_be_replaced(&self) -> bool {
        matches!(self.health, LeaseHealth::Lost { replaced: true, .. })
    }

    /// Whether it is not being extended: renewals fail or are late, or it was revoked.
    pub(crate) fn is_at_risk(&self, now: LocalInstant) -> bool {
        let overdue = match self.renewal_timer {
            RenewalTimer::Disabled => false,
            RenewalTimer::DueAt(at) | RenewalTimer::InFlight(at) => {
                at.saturating_add(self.options.lease / 6) < now
            }
        };
        overdue || self.health != LeaseHealth::Healthy
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.health == LeaseHealth::Revoked
    }

    /// Whether it is revoked, or was before it was lost.
    pub(crate) fn was_revoked(&self) -> bool {
        matches!(self.health, LeaseHealth::Revoked | LeaseHealth::Lost { revoked: true, .. })
    }

    /// How many more renewals are sent, if there is a limit.
    pub(crate) fn renewals_left(&self) -> Option<u32> {
        self.renewals.renewals_left
    }

    /// From here on it counts as in use, and is not recalled.
    pub(crate) fn stop_caching(&mut self) {
        self.options.is_cacheable = false;
    }

    /// A guard has the reserved lease from now on. Its limits of renewals count from here.
    pub(super) fn begin_use(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.options.reserved = false;
        self.renewals = self.options.renewals(at.now);
        self.deadline = self.renewals.clamp_to_hold(self.deadline);
        // A claim that is due or under way does not count against the limit.
        let is_due = match self.renewal_timer {
            RenewalTimer::Disabled => false,
            RenewalTimer::DueAt(due) => due <= at.now,
            RenewalTimer::InFlight(_) => true,
        };
        let left = &mut self.renewals.renewals_left;
        *left = left.map(|left| left.saturating_add(u32::from(is_due)));
        if let RenewalTimer::DueAt(due) = self.renewal_timer {
            self.schedule_renewal(due, at.now);
        }
        if self.health == LeaseHealth::RenewalFailing {
            self.health = LeaseHealth::Healthy;
        }
        fx.wake_worker_by(self.next_due());
    }

    /// The change that the worker must make.
    pub(crate) fn pending_change(&self) -> Option<ChangeKind> {
        self.pending_change.as_ref().map(|pending| pending.transition)
    }

    /// The permits that it holds, or 0 for another kind of lock.
    pub(crate) fn permits(&self) -> u32 {
        self.options.permits.map_or(0, |permits| permits.count)
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.options.min_replicas
    }

    /// A renewal to send now.
    pub(crate) fn renew(&self, now: LocalInstant) -> RenewRequest {
        let lease = self.renewals.lease(now, self.options.lease);
        RenewRequest {
            lease,
            mode: self.mode,
            token: self.token,
            permits: self.permits(),
            cached: self.options.is_cacheable,
        }
    }

    /// The length of the lease that was requested.
    pub(crate) fn requested_lease(&self) -> Duration {
        self.options.lease
    }

    /// Attempts without an answer that may still be carried out.
    pub(crate) fn in_doubt(&self) -> Option<InDoubtUntil> {
        let upgrade = self.upgrade.as_ref().and_then(|acquiring| acquiring.in_doubt());
        let pending = self.pending_change.as_ref().and_then(|pending| pending.in_doubt());
        in_doubt::later_of(in_doubt::later_of(self.in_doubt, upgrade), pending)
    }

    // Time.

    /// When the worker must look at it next.
    pub(super) fn next_due(&self) -> LocalInstant {
        let renewal = match self.renewal_timer {
            RenewalTimer::DueAt(at) => Some(at),
            RenewalTimer::Disabled | RenewalTimer::InFlight(_) => None,
        };
        let pending = self.pending_change.as_ref().and_then(|pending| pending.send_at());
        renewal.into_iter().chain(pending).fold(self.deadline, LocalInstant::min)
    }

    /// When everything it has at the server will have ended by itself, if nothing more is sent for
    /// it.
    pub(super) fn server_state_ends_at(&self, now: LocalInstant) -> LocalInstant {
        // A renewal without an answer may have extended it.
        let lease = self.options.lease;
        let ends = self.deadline.max(now.saturating_add(lease)).saturating_add(self.margin);
        self.in_doubt()
            .map_or(ends, |in_doubt| ends.max(in_doubt.local_deadline.saturating_add(lease)))
    }

    /// Moves the end to a later moment, at most to the end of the longest hold. Nothing extends a
    /// revoked lease.
    pub(super) fn extend(&mut self, ends: LocalInstant, margin: Duration) {
        let ends = self.renewals.clamp_to_hold(ends);
        if !self.is_revoked() && ends > self.deadline {
            (self.deadline, self.margin) = (ends, margin);
        }
    }

    /// The margin of a lease in the server's answer, which can be longer than the requested one.
    pub(super) fn margin_of(&self, grant: Grant, server_now: u64, at: &Context<'_>) -> Duration {
        at.settings.safety_margin(self.options.lease.max(deadline::remaining_at(grant, server_now)))
    }

    /// Schedules its renewal, if its renewals go on by `then`.
    pub(super) fn schedule_renewal(&mut self, due: LocalInstant, then: LocalInstant) {
        self.renewal_timer = match self.renewals.can_renew(then) {
            true => RenewalTimer::DueAt(due),
            false => RenewalTimer::Disabled,
        };
    }

    pub(super) fn on_timer(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self.health {
            LeaseHealth::Releasing => {}
            LeaseHealth::Lost { .. } => {
                fx.worker_calls[1] = self.take_due_change(at.now);
                let due = self.pending_change.as_ref().and_then(|pending| pending.send_at());
                due.into_iter().for_each(|due| fx.wake_worker_by(due));
            }
            _ if !self.is_held(at.now) => self.mark_lost(false, at, fx),
            _ => {
                // The answer to a renewal also answers the question.
                let renewal = self.take_due_renewal(at.now);
                self.holds_query.is_due &= renewal.is_none();
                let asks = renewal.or_else(|| self.take_due_query());
                fx.worker_calls = [asks, self.take_due_change(at.now)];
                fx.wake_worker_by(self.next_due());
            }
        }
    }

    fn take_due_query(&mut self) -> Option<WorkerCall> {
        let HoldsQuery { is_due, is_sent } = self.holds_query;
        if !is_due || is_sent {
            return None;
        }
        self.holds_query = HoldsQuery { is_due: false, is_sent: true };
        Some(WorkerCall::Holds { ends: self.deadline })
    }

    // What the server says of it.

    /// Records the server's answer about a cached lease. Answers can arrive out of order.
    pub(super) fn record_keepalive(&mut self, grant: Grant, sent: LocalInstant, fx: &mut Effects) {
        if let Some(contact) = &mut self.keepalive {
            let Grant { last_token: fence, recall_mode: recall, .. } = grant;
            let is_newer = sent >= contact.sent_at;
            contact.recall_mode = if is_newer { recall } else { contact.recall_mode.or(recall) };
            contact.last_token = if is_newer { fence } else { contact.last_token };
            (contact.sent_at, contact.is_claimed) = (contact.sent_at.max(sent), true);
            fx.notify_waiters = true;
        }
    }

    /// Whether the token in an answer means this lease. The call was sent at `sent`.
    ///
    /// A newer token is that of an upgrade whose grant has not been received. If there was no
    /// upgrade, it is another lease. An older token is what the server had before the upgrade. If
    /// the server still has that one, the upgrade is gone.
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

    // Its end.

    /// A message says that a forced release has ended it. Anybody may be able to publish that, and
    /// a failover may have undone it since, so the server is asked.
    pub(super) fn query_after_force_release(
        &mut self,
        token: u64,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        if token >= self.token && self.is_held(at.now) {
            self.holds_query.is_due = true;
            fx.wake_worker_by(at.now);
        }
    }

    /// Handles the server's answer. Only an answer that it does not hold the lock, or holds it by
    /// another token, counts. Otherwise the next renewal decides.
    pub(super) fn on_holds_reply(
        &mut self,
        outcome: ScriptResult<Option<u64>>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        self.holds_query.is_sent = false;
        if !self.is_held(at.now) {
            return;
        }
        if let Ok(ScriptReply { body: what, sent_at: sent, .. }) = outcome {
            let is_this_one = what.is_some_and(|token| self.matches_token(token, sent));
            if !is_this_one {
                return self.mark_lost(what.is_some(), at, fx);
            }
        }
        if self.holds_query.is_due {
            fx.wake_worker_by(at.now);
        }
    }

    /// Checks whether its end has passed.
    pub(super) fn expire(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if !self.is_releasing() && !self.is_held(at.now) {
            self.mark_lost(false, at, fx);
        }
    }

    /// The server says that it has no lease with this token. If it has another lease of this
    /// acquisition, that is released.
    pub(super) fn on_not_held(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if !self.is_releasing() {
            self.mark_lost(true, at, fx);
        }
    }

    /// Loses it for good. What may have taken its place is released.
    pub(super) fn mark_lost(&mut self, replaced: bool, at: &Context<'_>, fx: &mut Effects) {
        if self.is_lost() {
            return;
        }
        let over = self.server_state_ends_at(at.now);
        self.in_doubt = self.in_doubt();
        self.health = LeaseHealth::Lost { replaced, revoked: self.is_revoked() };
        let give_back = || {
            let give_back = PendingChange::new(ChangeKind::ReleaseReplaced, at.now, self.in_doubt);
            Box::new(give_back.with_expiry(over.saturating_add(RELEASE_GRACE)))
        };
        (self.upgrade, self.pending_change) = (None, replaced.then(give_back));
        fx.notify_end = true;
        fx.loss = Some(LossRecord {
            mode: self.mode,
            token: self.token,
            held_for: at.now.saturating_duration_since(self.granted_at),
            by_server: at.now < self.deadline,
            client_failed: false,
            is_reported: self.keepalive.is_none() && !self.options.reserved,
        });
        if replaced {
            fx.wake_worker_by(at.now);
        }
    }

    /// The client has failed, and renews nothing any more.
    pub(super) fn client_failed(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.health == LeaseHealth::Releasing {
            return;
        }
        self.mark_lost(false, at, fx);
        if let Some(lost) = &mut fx.loss {
            lost.client_failed = true;
        }
    }

    /// Reports how long it lasted, unless its end was reported before.
    pub(super) fn note_end(&self, how: &'static str, now: LocalInstant, fx: &mut Effects) {
        if !self.is_lost() && !self.is_releasing() {
            fx.hold_end = Some((self.mode, how, now.saturating_duration_since(self.granted_at)));
        }
    }

    /// The holder sends its own release, so nothing else is sent for it. The lease has ended for
    /// every observer from here on, because the server may grant the lock to others before its
    /// answer arrives.
    pub(super) fn begin_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end("released", at.now, fx);
        self.in_doubt = self.in_doubt();
        (self.upgrade, self.pending_change) = (None, None);
        if !self.is_lost() {
            self.health = LeaseHealth::Releasing;
            fx.notify_end = true;
        }
    }

    /// Handles the answer to the holder's own release. If anything may still arrive, the release
    /// goes on when the guard is dropped.
    pub(super) fn on_release_reply(
        &self,
        told: ScriptReply<ReleaseReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let ScriptReply { sent_at: sent, body: what, server: node, .. } = told;
        fx.telemetry = Some(TelemetryEvent::Released {
            node,
            ended: what,
            took: at.now.saturating_duration_since(sent),
        });
        fx.deregister = self.in_doubt.is_none();
    }

    /// Stops tracking it, unless there may be another lease of this acquisition.
    pub(super) fn stop_tracking(&mut self, how: &'static str, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end(how, at.now, fx);
        fx.deregister = !self.may_be_replaced();
    }
}
