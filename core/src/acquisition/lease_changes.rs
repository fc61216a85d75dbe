//! Changes of a lease: upgrades, downgrades, and giving back some of the permits.

use std::time::Duration;

use crate::acquisition::acquire_state::{AcquireState, NewLease};
use crate::acquisition::deadline;
use crate::acquisition::error::AcquisitionError;
use crate::acquisition::event::{Context, Effects, GrantSource, RequestStep, WorkerCall};
use crate::acquisition::held_lease::{HeldLease, LeaseHealth};
use crate::acquisition::lease_options::WaitPolicy;
use crate::acquisition::pending_change::{ChangeKind, PendingChange};
use crate::acquisition::pending_release::{InDoubtAttempts, RELEASE_GRACE};
use crate::protocol::{
    AcquireKind, DowngradeRequest, Grant, LockMode, ReleasePermitsRequest, ReleaseReply, RenewReply,
};
use crate::protocol::{ScriptReply, ScriptResult};
use crate::time::LocalInstant;

impl HeldLease {
    pub(super) fn take_due_change(&mut self, now: LocalInstant) -> Option<WorkerCall> {
        let lease = self.renew(now).lease;
        let cached = self.options.is_cacheable;
        let release_permits = ReleasePermitsRequest { keep: self.permits() };
        let downgrade = DowngradeRequest { token: self.token, lease, cached };
        self.pending_change.as_mut()?.send(now, downgrade, release_permits)
    }

    pub(super) fn upgrade_mut(&mut self) -> Option<&mut AcquireState> {
        self.upgrade.as_deref_mut()
    }

    /// Begins an upgrade when the server can carry out no pending change.
    pub(super) fn begin_upgrade(&mut self, policy: WaitPolicy, ctx: &Context<'_>) -> RequestStep {
        if !self.is_held(ctx.now) {
            return RequestStep::Failed(AcquisitionError::LeaseLost);
        }
        // A downgrade that may still arrive names the token of the write it ends. There must be a
        // new token first.
        if self.pending_change.as_ref().is_some_and(|pending| pending.may_be_in_flight()) {
            return match policy.deadline() {
                Some(deadline) if ctx.now >= deadline => {
                    RequestStep::Failed(AcquisitionError::TimedOut { waiters_ahead: 0 })
                }
                deadline => RequestStep::WaitUntil(
                    deadline.unwrap_or(LocalInstant::from_duration(Duration::MAX)),
                ),
            };
        }
        let pending = self.pending_change.take();
        // Either the end of an earlier wait, or the downgrade of a write: if this upgrade ends
        // without a grant, the write or the wait at the server must still be undone.
        let earlier_upgrade_open = pending.is_some();
        let goal = AcquireKind::Upgrade { token: self.token };
        let upgrade = AcquireState::new(goal, &self.options, policy, ctx.now).continue_upgrade(
            self.renewals.hold_deadline,
            pending.and_then(|pending| pending.in_doubt()),
            earlier_upgrade_open,
        );
        self.upgrade = Some(Box::new(upgrade));
        RequestStep::CallNow
    }

    /// The upgrade was granted. `None` if the lease has ended.
    pub(super) fn finish_upgrade(
        &mut self,
        granted: NewLease,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) -> Option<RequestStep> {
        if !self.is_held(ctx.now) {
            return None;
        }
        let NewLease { grant, deadline, margin, claim_or_renew_at, source, server, .. } = granted;
        self.in_doubt = self.in_doubt();
        self.upgrade = None;
        (self.mode, self.token, self.token_known_since) = (LockMode::Write, grant.token, ctx.now);
        if self.is_revoked() {
            // No upgrade is granted after a revocation, so a failover has lost it.
            self.health = LeaseHealth::Healthy;
        }
        self.extend(deadline, margin);
        self.is_claimed = source != GrantSource::Push;
        self.renewals.allow_one_more(!self.is_claimed);
        self.schedule_renewal(claim_or_renew_at, ctx.now);
        effects.wake_worker_by(self.next_due());
        effects.notify_waiters = true;
        Some(RequestStep::Granted { token: grant.token, source, server })
    }

    /// The upgrade has nothing at the server, or its wait must still be ended.
    pub(super) fn settle_upgrade(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        match &self.upgrade {
            Some(upgrade) if upgrade.may_be_recorded() => self.schedule_end_wait(ctx, effects),
            _ => self.upgrade = None,
        }
    }

    /// Leaves ending the wait for an upgrade to the worker. The read stays.
    pub(super) fn schedule_end_wait(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        if let Some(upgrade) = self.upgrade.take() {
            let expire_at = upgrade.server_state_ends_at(ctx).saturating_add(RELEASE_GRACE);
            let doubt =
                upgrade.in_doubt().map(|in_doubt| InDoubtAttempts::new(in_doubt, expire_at));
            let change = PendingChange::new(ChangeKind::EndUpgradeWait, ctx.now, doubt);
            self.schedule_change(change);
            effects.wake_worker_by(ctx.now);
        }
    }

    pub(super) fn begin_downgrade(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        let is_over = self.is_lost() || self.is_releasing();
        if self.mode == LockMode::Write && self.pending_change.is_none() && !is_over {
            self.cancel_at_least(); // a later upgrade does not have it either
            self.schedule_change(PendingChange::new(ChangeKind::Downgrade, ctx.now, None));
            effects.notify_waiters = true;
        }
        effects.wake_worker_by(ctx.now);
    }

    /// The holder writes again. The downgrade of an upgrade that was given up is not cancelled: its
    /// holder reads.
    pub(super) fn cancel_downgrade(&mut self, effects: &mut Effects) {
        let is_writer = self.mode == LockMode::Write;
        let waits = |pending: &PendingChange| {
            pending.transition == ChangeKind::Downgrade && !pending.may_be_in_flight()
        };
        if is_writer && self.pending_change.as_deref().is_some_and(waits) {
            self.pending_change = None;
        }
        effects.notify_waiters = true;
    }

    /// Handles the outcome of a downgrade.
    pub(super) fn on_downgrade_reply(
        &mut self,
        outcome: ScriptResult<RenewReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let Some(pending) = self.pending_change_of(ChangeKind::Downgrade) else {
            return;
        };
        match outcome {
            Ok(ScriptReply {
                body: RenewReply::Renewed(grant) | RenewReply::Revoked(grant),
                envelope,
                sent_at: sent,
                ..
            }) => {
                (self.mode, self.pending_change) = (LockMode::Read, None);
                // If a lease must be confirmed, the next renewal extends it and is the next
                // keep-alive.
                if self.options.confirmation.is_empty() {
                    self.record_keepalive(grant, sent, effects);
                    if self.is_held(ctx.now) {
                        let margin = self.margin_of(grant, envelope.server_now, ctx);
                        self.extend(
                            deadline::lease_deadline(grant, envelope.server_now, sent, margin),
                            margin,
                        );
                    }
                } else if let Some(keepalive) = &mut self.keepalive {
                    keepalive.recall_mode = grant.recall_mode;
                }
            }
            Ok(ScriptReply { body: RenewReply::Other(_) | RenewReply::NotHeld, .. }) => {
                return self.on_not_held(ctx, effects);
            }
            Err(failure) => pending.on_failure(failure, ctx.now, effects),
        }
        effects.notify_waiters = true;
        effects.wake_worker_by(self.next_due());
    }

    /// Keeps this many permits. A call under way names more, and another one follows it.
    pub(super) fn begin_release_permits(
        &mut self,
        keep: u32,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        if let Some(permits) = &mut self.options.permits {
            permits.count = permits.count.min(keep);
        }
        if self.pending_change.is_none() && !self.is_lost() && !self.is_releasing() {
            self.schedule_change(PendingChange::new(ChangeKind::ReleasePermits, ctx.now, None));
        }
        effects.wake_worker_by(ctx.now);
    }

    /// Handles the outcome of `release_permits`.
    pub(super) fn on_release_permits_reply(
        &mut self,
        keep: u32,
        outcome: ScriptResult<Option<Grant>>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        if self.is_releasing() {
            return; // the release answers for all permits
        }
        let is_all = keep <= self.permits();
        if let Ok(ScriptReply { body, sent_at: sent, .. }) = &outcome
            && !body.is_some_and(|grant| self.matches_token(grant.token, *sent))
        {
            return self.mark_lost(body.is_some(), ctx, effects);
        }
        let Some(pending) = self.pending_change_of(ChangeKind::ReleasePermits) else {
            return;
        };
        match outcome {
            Ok(_) if is_all => self.pending_change = None,
            Ok(_) => pending.send_at = Some(ctx.now),
            Err(failure) => pending.on_failure(failure, ctx.now, effects),
        }
        effects.notify_waiters = true;
        effects.wake_worker_by(self.next_due());
    }

    /// Handles the outcome of the worker's partial release: of a wait for an upgrade, or of a lease
    /// that took this one's place.
    pub(super) fn on_partial_release_reply(
        &mut self,
        wait_only: bool,
        outcome: ScriptResult<ReleaseReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let transition =
            if wait_only { ChangeKind::EndUpgradeWait } else { ChangeKind::ReleaseReplaced };
        let Some(pending) = self.pending_change_of(transition) else {
            return;
        };
        match outcome {
            Ok(ScriptReply { body: ReleaseReply::UpgradeGranted(grant), .. }) => {
                (self.token, self.token_known_since) = (grant.token, ctx.now);
                self.schedule_change(PendingChange::new(ChangeKind::Downgrade, ctx.now, None));
            }
            Ok(ScriptReply { envelope, sent_at: sent, .. }) => {
                if !pending.must_resend(envelope.server_now, sent, ctx.now) {
                    self.pending_change = None;
                }
            }
            Err(_) if pending.is_expired(ctx.now) => self.pending_change = None,
            Err(failure) => pending.on_failure(failure, ctx.now, effects),
        }
        effects.notify_waiters = true;
        effects.wake_worker_by(self.next_due());
    }

    fn schedule_change(&mut self, pending: PendingChange) {
        self.pending_change = Some(Box::new(pending));
    }

    /// The pending change, if it is of this kind. If the lease was lost since, another change may
    /// be pending.
    fn pending_change_of(&mut self, transition: ChangeKind) -> Option<&mut PendingChange> {
        let pending = self.pending_change.as_deref_mut();
        pending.filter(|pending| pending.transition == transition)
    }
}
