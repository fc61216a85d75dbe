//! Renewals of a lease, and the server's answers to them.

use crate::client::acquisition::acquire_state::too_few_replicas_error;
use crate::client::acquisition::event::{
    Context, Effects, RequestStep, TelemetryEvent, WorkerCall,
};
use crate::client::acquisition::held_lease::{HeldLease, LeaseHealth, RenewalTimer};
use crate::client::acquisition::state::{lease_lost_error, lease_revoked_error};
use crate::client::deadline;
use crate::client::script_result::{ScriptReply, ScriptResult};
use crate::clock::LocalInstant;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Grant, LockMode, RenewReply, RenewRequest};

impl HeldLease {
    /// The renewal to send now, if it is due. It counts as sent from here on.
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
        let (renew, replicas) = (self.renew(now), self.options.min_replicas);
        Some(WorkerCall::Renew { renew, replicas, ends: self.deadline })
    }

    /// The renewal that names this token, if it is that of an upgrade whose answer has not come.
    pub(crate) fn renew_upgrade(&self, token: u64, now: LocalInstant) -> Option<RenewRequest> {
        let is_upgrade = token > self.token && self.may_be_upgraded();
        is_upgrade.then(|| RenewRequest { mode: LockMode::Write, token, ..self.renew(now) })
    }

    /// Handles the outcome of a renewal.
    pub(super) fn on_renew_outcome(
        &mut self,
        outcome: ScriptResult<RenewReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        if let RenewalTimer::InFlight(due) = self.renewal_timer {
            self.renewal_timer = RenewalTimer::DueAt(due);
        }
        if matches!(self.health, LeaseHealth::Lost { .. } | LeaseHealth::Releasing) {
            fx.next_step = match outcome.map(|told| told.body) {
                Ok(RenewReply::Renewed(_)) => None,
                Ok(RenewReply::Revoked(_) | RenewReply::Other(_) | RenewReply::NotHeld) => {
                    Some(RequestStep::Failed(lease_lost_error()))
                }
                Err(failure) => Some(RequestStep::Failed(failure.into())),
            };
            return;
        }
        if !self.is_held(at.now) {
            // Somebody may have seen by now that it was lost, so it stays lost whatever the server
            // says.
            return self.mark_lost(false, at, fx);
        }
        match outcome {
            Ok(told) => self.on_renew_reply(told, at, fx),
            Err(failure) => {
                let why = failure.to_string();
                self.on_renew_failure(why, failure.into(), at, fx);
            }
        }
        if !self.is_lost() {
            fx.wake_worker_by(self.next_due());
        }
    }

    fn on_renew_reply(
        &mut self,
        told: ScriptReply<RenewReply>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let ScriptReply {
            body: what,
            envelope,
            sent_at: sent,
            server: node,
            replicas_confirmed: confirmed,
            ..
        } = told;
        let (mode, took) = (self.mode, at.now.saturating_duration_since(sent));
        let note = |outcome| Some(TelemetryEvent::Renewed { mode, node, outcome, took });
        match what {
            RenewReply::Renewed(grant) | RenewReply::Revoked(grant) | RenewReply::Other(grant)
                if !self.matches_token(grant.token, sent) =>
            {
                fx.telemetry = note("lost");
                self.mark_lost(true, at, fx);
            }
            // The server has granted the upgrade, whose answer tells of the write and its deadline.
            RenewReply::Other(grant) => {
                fx.next_step = Some(RequestStep::Failed(upgrading()));
                if grant.token != self.token {
                    let next = deadline::renew_at(sent, self.options.lease, at.jitter);
                    self.schedule_renewal(next, next);
                }
            }
            // It was sent before the lease was revoked, and a failover may have lost what it did.
            RenewReply::Renewed(_) if self.is_revoked() => {
                fx.telemetry = note("revoked");
                fx.next_step = Some(RequestStep::Failed(lease_revoked_error()));
            }
            RenewReply::Renewed(grant) if confirmed >= self.options.min_replicas => {
                fx.telemetry = note("held");
                if self.health == LeaseHealth::RenewalFailing {
                    self.health = LeaseHealth::Healthy;
                }
                self.renewals.record_renewal();
                self.record_keepalive(grant, sent, fx);
                let margin = self.margin_of(grant, envelope.server_now, at);
                self.extend(
                    deadline::lease_deadline(grant, envelope.server_now, sent, margin),
                    margin,
                );
                let next = deadline::renew_at(sent, self.options.lease, at.jitter);
                self.schedule_renewal(next, next);
            }
            RenewReply::Renewed(_) => {
                let error = too_few_replicas_error(confirmed, self.options.min_replicas);
                self.on_renew_failure(error.to_string(), error, at, fx);
            }
            RenewReply::Revoked(grant) => {
                fx.telemetry = note("revoked");
                // No renewal extends it any more. If a failover has lost an earlier one, it ends
                // earlier than that one said.
                if grant.token == self.token {
                    let margin = self.margin_of(grant, envelope.server_now, at);
                    self.deadline = self.deadline.min(deadline::lease_deadline(
                        grant,
                        envelope.server_now,
                        sent,
                        margin,
                    ));
                }
                self.record_keepalive(
                    Grant { recall_mode: Some(LockMode::Write), ..grant },
                    sent,
                    fx,
                );
                (self.health, self.renewal_timer) = (LeaseHealth::Revoked, RenewalTimer::Disabled);
                let is_held = self.is_held(at.now);
                fx.next_step = Some(RequestStep::Failed(if is_held {
                    lease_revoked_error()
                } else {
                    lease_lost_error()
                }));
                fx.notify_waiters = true;
            }
            RenewReply::NotHeld => {
                fx.telemetry = note("lost");
                self.mark_lost(false, at, fx);
            }
        }
    }

    /// The server says to another call that the lease was revoked. The next renewal tells the
    /// deadline.
    pub(super) fn on_revocation_seen(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if let RenewalTimer::DueAt(_) = self.renewal_timer {
            self.renewal_timer = RenewalTimer::DueAt(at.now);
            fx.wake_worker_by(at.now);
        }
    }

    fn on_renew_failure(&mut self, why: String, error: Error, at: &Context<'_>, fx: &mut Effects) {
        fx.telemetry = Some(TelemetryEvent::RenewalFailed { mode: self.mode, why });
        fx.next_step = Some(RequestStep::Failed(error));
        if self.health == LeaseHealth::Healthy {
            self.health = LeaseHealth::RenewalFailing;
        }
        self.schedule_renewal(deadline::retry_at(at.now, self.options.lease, at.jitter), at.now);
        fx.notify_waiters = true;
    }
}

/// The error of a renewal that named the read when the server had granted its upgrade.
fn upgrading() -> Error {
    let message = "the lease is being upgraded; renew it once the upgrade has ended";
    Error::new(ErrorKind::Unavailable, message)
}
