//! Renewals of a lease, and the replies to renewals.

use crate::acquisition::deadline;
use crate::acquisition::error::AcquisitionError;
use crate::acquisition::event::{Context, Effects, RequestStep, TelemetryEvent, WorkerCall};
use crate::acquisition::held_lease::{HeldLease, LeaseHealth, RenewalTimer};
use crate::protocol::{Grant, LockMode, RenewReply, RenewRequest, ScriptReply, ScriptResult};
use crate::time::LocalInstant;

impl HeldLease {
    /// Returns the renewal to send, if it is due. It counts as sent from here on.
    pub(super) fn take_due_renewal(&mut self, now: LocalInstant) -> Option<WorkerCall> {
        let RenewalTimer::DueAt(due) = self.renewal_timer else {
            return None;
        };
        if due > now {
            return None;
        }
        if !self.renewals.can_renew(now) {
            self.renewal_timer = RenewalTimer::Disabled;
            return None;
        }
        self.renewal_timer = RenewalTimer::InFlight(due);
        let (renew, confirmation) = (self.renew(now), self.options.confirmation);
        Some(WorkerCall::Renew { renew, confirmation, deadline: self.deadline })
    }

    /// Returns a renewal with this token, if the token belongs to an upgrade whose reply has not
    /// arrived.
    pub fn renew_upgrade(&self, token: u64, now: LocalInstant) -> Option<RenewRequest> {
        let is_upgrade = token > self.token && self.may_be_upgraded();
        is_upgrade.then(|| RenewRequest { mode: LockMode::Write, token, ..self.renew(now) })
    }

    /// Handles the outcome of a renewal.
    pub(super) fn on_renew_outcome(
        &mut self,
        outcome: ScriptResult<RenewReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        if let RenewalTimer::InFlight(due) = self.renewal_timer {
            self.renewal_timer = RenewalTimer::DueAt(due);
        }
        if matches!(self.health, LeaseHealth::Lost { .. } | LeaseHealth::Releasing) {
            effects.next_step = match outcome.map(|reply| reply.body) {
                Ok(RenewReply::Renewed(_)) => None,
                Ok(RenewReply::Revoked(_) | RenewReply::Other(_) | RenewReply::NotHeld) => {
                    Some(RequestStep::Failed(AcquisitionError::LeaseLost))
                }
                Err(failure) => Some(RequestStep::Failed(failure.into())),
            };
            return;
        }
        if !self.is_held(ctx.now) {
            // Callers may already have observed the loss, so the lease stays lost whatever the
            // reply is.
            return self.mark_lost(false, ctx, effects);
        }
        match outcome {
            Ok(reply) => self.on_renew_reply(reply, ctx, effects),
            Err(failure) => {
                self.on_renew_failure(failure.into(), ctx, effects);
            }
        }
        if !self.is_lost() {
            effects.wake_worker_by(self.next_due());
        }
    }

    fn on_renew_reply(
        &mut self,
        reply: ScriptReply<RenewReply>,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        let ScriptReply { body, envelope, sent_at, server, confirmed, .. } = reply;
        let (mode, took) = (self.mode, ctx.now.saturating_duration_since(sent_at));
        let renewed = |outcome| Some(TelemetryEvent::Renewed { mode, server, outcome, took });
        match body {
            RenewReply::Renewed(grant) | RenewReply::Revoked(grant) | RenewReply::Other(grant)
                if !self.matches_token(grant.token, sent_at) =>
            {
                effects.telemetry = renewed("not_held");
                self.mark_lost(true, ctx, effects);
            }
            // The server has granted the upgrade. The reply to the upgrade has the write's
            // deadline.
            RenewReply::Other(grant) => {
                effects.next_step = Some(RequestStep::Failed(AcquisitionError::UpgradeInFlight));
                if grant.token != self.token {
                    let next = deadline::renew_at(sent_at, self.options.lease, ctx.jitter);
                    self.schedule_renewal(next, next);
                }
            }
            // The renewal was sent before the lease was revoked, and a failover may have lost its
            // effect.
            RenewReply::Renewed(_) if self.is_revoked() => {
                effects.telemetry = renewed("revoked");
                effects.next_step = Some(RequestStep::Failed(AcquisitionError::LeaseRevoked));
            }
            RenewReply::Renewed(grant) => {
                if let Err(reason) = confirmed {
                    // The server has recalled it all the same.
                    if let Some(keepalive) = &mut self.keepalive {
                        keepalive.recall_mode = keepalive.recall_mode.or(grant.recall_mode);
                    }
                    return self.on_renew_failure(reason.into(), ctx, effects);
                }
                effects.telemetry = renewed("renewed");
                if self.health == LeaseHealth::RenewalFailing {
                    self.health = LeaseHealth::Healthy;
                }
                (self.is_risk_reported, self.is_claimed) = (false, true);
                self.renewals.record_renewal();
                self.record_keepalive(grant, sent_at, effects);
                let margin = self.margin_of(grant, envelope.server_now, ctx);
                self.extend(
                    deadline::lease_deadline(grant, envelope.server_now, sent_at, margin),
                    margin,
                );
                let next = deadline::renew_at(sent_at, self.options.lease, ctx.jitter);
                self.schedule_renewal(next, next);
            }
            RenewReply::Revoked(grant) => {
                effects.telemetry = renewed("revoked");
                // No renewal extends it any more. If a failover has lost an earlier one, it ends
                // earlier than that reply said.
                if grant.token == self.token {
                    let margin = self.margin_of(grant, envelope.server_now, ctx);
                    self.deadline = self.deadline.min(deadline::lease_deadline(
                        grant,
                        envelope.server_now,
                        sent_at,
                        margin,
                    ));
                }
                self.record_keepalive(
                    Grant { recall_mode: Some(LockMode::Write), ..grant },
                    sent_at,
                    effects,
                );
                (self.health, self.renewal_timer) = (LeaseHealth::Revoked, RenewalTimer::Disabled);
                let is_held = self.is_held(ctx.now);
                effects.next_step = Some(RequestStep::Failed(if is_held {
                    AcquisitionError::LeaseRevoked
                } else {
                    AcquisitionError::LeaseLost
                }));
                effects.notify_waiters = true;
            }
            RenewReply::NotHeld => {
                effects.telemetry = renewed("not_held");
                self.mark_lost(false, ctx, effects);
            }
        }
    }

    /// Handles a reply to another call, which reports that the lease was revoked. The next renewal
    /// returns the deadline.
    pub(super) fn on_revocation_seen(&mut self, ctx: &Context<'_>, effects: &mut Effects) {
        if let RenewalTimer::DueAt(_) = self.renewal_timer {
            self.renewal_timer = RenewalTimer::DueAt(ctx.now);
            effects.wake_worker_by(ctx.now);
        }
    }

    fn on_renew_failure(
        &mut self,
        error: AcquisitionError,
        ctx: &Context<'_>,
        effects: &mut Effects,
    ) {
        effects.telemetry =
            Some(TelemetryEvent::RenewalFailed { mode: self.mode, error: error.to_string() });
        effects.next_step = Some(RequestStep::Failed(error));
        if self.health == LeaseHealth::Healthy {
            self.health = LeaseHealth::RenewalFailing;
        }
        self.schedule_renewal(deadline::retry_at(ctx.now, self.options.lease, ctx.jitter), ctx.now);
        effects.notify_waiters = true;
    }
}
