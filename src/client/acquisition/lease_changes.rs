//! Changes of a lease: upgrades, downgrades, and giving back some of the permits.

use std::time::Duration;

use crate::client::acquisition::acquire_state::{AcquireState, NewLease, timed_out_error};
use crate::client::acquisition::event::{Context, Effects, RequestStep, WorkerCall};
use crate::client::acquisition::held_lease::{HeldLease, LeaseHealth};
use crate::client::acquisition::pending_change::{ChangeKind, PendingChange};
use crate::client::acquisition::state::lease_lost_error;
use crate::client::deadline;
use crate::client::lease_options::WaitPolicy;
use crate::client::script_result::{ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::protocol::{
    AcquireKind, DowngradeRequest, Grant, LockMode, ReleasePermitsRequest, ReleaseReply, RenewReply,
};

impl HeldLease {
    pub(super) fn take_due_change(&mut self, now: LocalInstant) -> Option<WorkerCall> {
        let lease = self.renew(now).lease;
        let cached = self.options.is_cacheable;
        let shrink = ReleasePermitsRequest { keep: self.permits() };
        let downgrade = DowngradeRequest { token: self.token, lease, cached };
        self.pending_change.as_mut()?.send(now, downgrade, shrink)
    }

    pub(super) fn upgrade_mut(&mut self) -> Option<&mut AcquireState> {
        self.upgrade.as_deref_mut()
    }

    /// Begins an upgrade once no pending change can be carried out any more.
    pub(super) fn begin_upgrade(&mut self, policy: WaitPolicy, at: &Context<'_>) -> RequestStep {
        if !self.is_held(at.now) {
            return RequestStep::Failed(lease_lost_error());
        }
        // A downgrade that may still arrive names the token of the write it ends. There must be a
        // new token first.
        if self.pending_change.as_ref().is_some_and(|pending| pending.may_be_in_flight()) {
            return match policy.deadline() {
                Some(until) if at.now >= until => RequestStep::Failed(timed_out_error()),
                until => RequestStep::WaitUntil(
                    until.unwrap_or(LocalInstant::from_duration(Duration::MAX)),
                ),
            };
        }
        let pending = self.pending_change.take();
        let lingers =
            pending.as_ref().is_some_and(|one| one.transition == ChangeKind::EndUpgradeWait);
        let goal = AcquireKind::Upgrade { token: self.token };
        let upgrade = AcquireState::new(goal, &self.options, policy, at.now).continue_upgrade(
            self.renewals.hold_deadline,
            pending.and_then(|pending| pending.in_doubt()),
            lingers,
        );
        self.upgrade = Some(Box::new(upgrade));
        RequestStep::CallNow
    }

    /// The upgrade was granted. `None` if the lease has ended meanwhile.
    pub(super) fn finish_upgrade(
        &mut self,
        granted: NewLease,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> Option<RequestStep> {
        if !self.is_held(at.now) {
            return None;
        }
        let NewLease {
            grant,
            deadline: ends,
            margin,
            claim_or_renew_at,
            source: by,
            server: node,
            ..
        } = granted;
        self.in_doubt = self.in_doubt();
        self.upgrade = None;
        (self.mode, self.token, self.token_known_since) = (LockMode::Write, grant.token, at.now);
        if self.is_revoked() {
            // No upgrade is granted after a revocation, so a failover has lost it.
            self.health = LeaseHealth::Healthy;
        }
        self.extend(ends, margin);
        if claim_or_renew_at <= at.now {
            let left = &mut self.renewals.renewals_left;
            *left = left.map(|left| left.saturating_add(1));
        }
        self.schedule_renewal(claim_or_renew_at, at.now);
        fx.wake_worker_by(self.next_due());
        fx.notify_waiters = true;
        Some(RequestStep::Granted { token: grant.token, by, node })
    }

    /// The upgrade has nothing at the server, or its wait must still be ended.
    pub(super) fn settle_upgrade(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match &self.upgrade {
            Some(upgrade) if upgrade.may_be_recorded() => self.schedule_end_wait(at, fx),
            _ => self.upgrade = None,
        }
    }

    /// Leaves ending the wait for an upgrade to the worker. The read stays.
    pub(super) fn schedule_end_wait(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if let Some(upgrade) = self.upgrade.take() {
            self.schedule_change(PendingChange::new(
                ChangeKind::EndUpgradeWait,
                at.now,
                upgrade.in_doubt(),
            ));
            fx.wake_worker_by(at.now);
        }
    }

    pub(super) fn begin_downgrade(&mut self, at: &Context<'_>, fx: &mut Effects) {
        let is_over = self.is_lost() || self.is_releasing();
        if self.mode == LockMode::Write && self.pending_change.is_none() && !is_over {
            self.schedule_change(PendingChange::new(ChangeKind::Downgrade, at.now, None));
            fx.notify_waiters = true;
        }
        fx.wake_worker_by(at.now);
    }

    pub(super) fn cancel_downgrade(&mut self, fx: &mut Effects) {
        let waits = |pending: &PendingChange| {
            pending.transition == ChangeKind::Downgrade && !pending.may_be_in_flight()
        };
        if self.pending_change.as_deref().is_some_and(waits) {
            self.pending_change = None;
        }
        fx.notify_waiters = true;
    }

    /// Handles the outcome of a downgrade.
    pub(super) fn on_downgrade_reply(
        &mut self,
        outcome: ScriptResult<RenewReply>,
        at: &Context<'_>,
        fx: &mut Effects,
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
                // If replicas must confirm a lease, the next renewal extends it and is the next
                // contact.
                if self.options.min_replicas == 0 {
                    self.record_keepalive(grant, sent, fx);
                    if self.is_held(at.now) {
                        let margin = self.margin_of(grant, envelope.server_now, at);
                        self.extend(
                            deadline::lease_deadline(grant, envelope.server_now, sent, margin),
                            margin,
                        );
                    }
                } else if let Some(contact) = &mut self.keepalive {
                    contact.recall_mode = grant.recall_mode;
                }
            }
            Ok(ScriptReply { body: RenewReply::Other(_) | RenewReply::NotHeld, .. }) => {
                return self.on_not_held(at, fx);
            }
            Err(failure) => pending.on_failure(failure, at.now, fx),
        }
        fx.notify_waiters = true;
        fx.wake_worker_by(self.next_due());
    }

    /// Keeps this many permits. A call under way names more, and another one follows it.
    pub(super) fn begin_release_permits(&mut self, keep: u32, at: &Context<'_>, fx: &mut Effects) {
        if let Some(permits) = &mut self.options.permits {
            permits.count = permits.count.min(keep);
        }
        if self.pending_change.is_none() && !self.is_lost() && !self.is_releasing() {
            self.schedule_change(PendingChange::new(ChangeKind::ReleasePermits, at.now, None));
        }
        fx.wake_worker_by(at.now);
    }

    /// Handles the outcome of giving back some of the permits.
    pub(super) fn on_release_permits_reply(
        &mut self,
        keep: u32,
        outcome: ScriptResult<Option<Grant>>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        if self.is_releasing() {
            return; // the release answers for all permits
        }
        let is_all = keep <= self.permits();
        if let Ok(ScriptReply { body: what, sent_at: sent, .. }) = &outcome
            && !what.is_some_and(|grant| self.matches_token(grant.token, *sent))
        {
            return self.mark_lost(what.is_some(), at, fx);
        }
        let Some(pending) = self.pending_change_of(ChangeKind::ReleasePermits) else {
            return;
        };
        match outcome {
            Ok(_) if is_all => self.pending_change = None,
            Ok(_) => pending.send_at = Some(at.now),
            Err(failure) => pending.on_failure(failure, at.now, fx),
        }
        fx.notify_waiters = true;
        fx.wake_worker_by(self.next_due());
    }

    /// Handles the outcome of the worker's partial release: of a wait for an upgrade, or of a lease
    /// that took this one's place.
    pub(super) fn on_partial_release_reply(
        &mut self,
        only_wait: bool,
        outcome: ScriptResult<ReleaseReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let transition =
            if only_wait { ChangeKind::EndUpgradeWait } else { ChangeKind::ReleaseReplaced };
        let Some(pending) = self.pending_change_of(transition) else {
            return;
        };
        match outcome {
            Ok(ScriptReply { body: ReleaseReply::UpgradeGranted(grant), .. }) => {
                (self.token, self.token_known_since) = (grant.token, at.now);
                self.schedule_change(PendingChange::new(ChangeKind::Downgrade, at.now, None));
            }
            Ok(ScriptReply { envelope, sent_at: sent, .. }) => {
                if !pending.must_resend(envelope.server_now, sent, at.now) {
                    self.pending_change = None;
                }
            }
            Err(_) if pending.is_expired(at.now) => self.pending_change = None,
            Err(failure) => pending.on_failure(failure, at.now, fx),
        }
        fx.notify_waiters = true;
        fx.wake_worker_by(self.next_due());
    }

    fn schedule_change(&mut self, pending: PendingChange) {
        self.pending_change = Some(Box::new(pending));
    }

    /// The pending change, if it is of this kind. If the lease was lost meanwhile, another change
    /// may be pending.
    fn pending_change_of(&mut self, transition: ChangeKind) -> Option<&mut PendingChange> {
        let pending = self.pending_change.as_deref_mut();
        pending.filter(|pending| pending.transition == transition)
    }
}
