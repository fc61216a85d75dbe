//! Renewals of a lease, and the server's answers to them.

use crate::client::acquisition::acquiring::too_few_replicas;
use crate::client::acquisition::event::{Context, Effects, Next, Note, Sending};
use crate::client::acquisition::holding::{Holding, NextRenewal, Standing};
use crate::client::acquisition::state::{lost, revoked};
use crate::client::deadline;
use crate::client::reply::{Outcome, Told};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Grant, Mode, Renew, Renewed};

impl Holding {
    /// The renewal to send now, if it is due. It counts as sent from here on.
    pub(super) fn due_renewal(&mut self, now: Moment) -> Option<Sending> {
        let NextRenewal::Due(due) = self.renewal else {
            return None;
        };
        if due > now {
            return None;
        }
        if !self.renewals.go_on(now) {
            self.renewal = NextRenewal::Never;
            return None;
        }
        self.renewal = NextRenewal::Sent(due);
        let (renew, replicas) = (self.renew(now), self.options.replicas);
        Some(Sending::Renew { renew, replicas, ends: self.ends })
    }

    /// The renewal that names this token, if it is that of an upgrade whose answer has not come.
    pub(crate) fn renew_upgrade(&self, token: u64, now: Moment) -> Option<Renew> {
        let is_upgrade = token > self.token && self.may_be_upgraded();
        is_upgrade.then(|| Renew { mode: Mode::Write, token, ..self.renew(now) })
    }

    /// Handles the outcome of a renewal.
    pub(super) fn renewed(
        &mut self,
        outcome: Outcome<Renewed>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        if let NextRenewal::Sent(due) = self.renewal {
            self.renewal = NextRenewal::Due(due);
        }
        if matches!(self.standing, Standing::Lost { .. } | Standing::Releasing) {
            fx.next = match outcome.map(|told| told.what) {
                Ok(Renewed::Held(_)) => None,
                Ok(Renewed::Revoked(_) | Renewed::Other(_) | Renewed::Lost) => {
                    Some(Next::Failed(lost()))
                }
                Err(failure) => Some(Next::Failed(failure.into())),
            };
            return;
        }
        if !self.is_held(at.now) {
            // Somebody may have seen by now that it was lost, so it stays lost whatever the server
            // says.
            return self.lose(false, at, fx);
        }
        match outcome {
            Ok(told) => self.renewal_answered(told, at, fx),
            Err(failure) => {
                let why = failure.to_string();
                self.renewal_failed(why, failure.into(), at, fx);
            }
        }
        if !self.is_lost() {
            fx.look_by(self.next_due());
        }
    }

    fn renewal_answered(&mut self, told: Told<Renewed>, at: &Context<'_>, fx: &mut Effects) {
        let Told { what, envelope, sent, node, confirmed, .. } = told;
        let (mode, took) = (self.mode, at.now.since(sent));
        let note = |outcome| Some(Note::Renewed { mode, node, outcome, took });
        match what {
            Renewed::Held(grant) | Renewed::Revoked(grant) | Renewed::Other(grant)
                if !self.is_named_by(grant.token, sent) =>
            {
                fx.note = note("lost");
                self.lose(true, at, fx);
            }
            // The server has granted the upgrade, whose answer tells of the write and its deadline.
            Renewed::Other(grant) => {
                fx.next = Some(Next::Failed(upgrading()));
                if grant.token != self.token {
                    let next = deadline::renew_at(sent, self.options.lease, at.random);
                    self.renew_at(next, next);
                }
            }
            // It was sent before the lease was revoked, and a failover may have lost what it did.
            Renewed::Held(_) if self.is_revoked() => {
                fx.note = note("revoked");
                fx.next = Some(Next::Failed(revoked()));
            }
            Renewed::Held(grant) if confirmed >= self.options.replicas => {
                fx.note = note("held");
                if self.standing == Standing::Failing {
                    self.standing = Standing::Good;
                }
                self.renewals.count_one();
                self.note_contact(grant, sent, fx);
                let margin = self.margin_of(grant, envelope.now, at);
                self.prolong(deadline::ends(grant, envelope.now, sent, margin), margin);
                let next = deadline::renew_at(sent, self.options.lease, at.random);
                self.renew_at(next, next);
            }
            Renewed::Held(_) => {
                let error = too_few_replicas(confirmed, self.options.replicas);
                self.renewal_failed(error.to_string(), error, at, fx);
            }
            Renewed::Revoked(grant) => {
                fx.note = note("revoked");
                // No renewal extends it any more. If a failover has lost an earlier one, it ends
                // earlier than that one said.
                if grant.token == self.token {
                    let margin = self.margin_of(grant, envelope.now, at);
                    self.ends = self.ends.min(deadline::ends(grant, envelope.now, sent, margin));
                }
                self.note_contact(Grant { recall: Some(Mode::Write), ..grant }, sent, fx);
                (self.standing, self.renewal) = (Standing::Revoked, NextRenewal::Never);
                let is_held = self.is_held(at.now);
                fx.next = Some(Next::Failed(if is_held { revoked() } else { lost() }));
                fx.changed = true;
            }
            Renewed::Lost => {
                fx.note = note("lost");
                self.lose(false, at, fx);
            }
        }
    }

    /// The server says to another call that the lease was revoked. The next renewal tells the
    /// deadline.
    pub(super) fn heard_of_revocation(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if let NextRenewal::Due(_) = self.renewal {
            self.renewal = NextRenewal::Due(at.now);
            fx.look_by(at.now);
        }
    }

    fn renewal_failed(&mut self, why: String, error: Error, at: &Context<'_>, fx: &mut Effects) {
        fx.note = Some(Note::RenewalFailed { mode: self.mode, why });
        fx.next = Some(Next::Failed(error));
        if self.standing == Standing::Good {
            self.standing = Standing::Failing;
        }
        self.renew_at(deadline::retry_at(at.now, self.options.lease, at.random), at.now);
        fx.changed = true;
    }
}

/// The error of a renewal that named the read when the server had granted its upgrade.
fn upgrading() -> Error {
    let message = "the lease is being upgraded; renew it once the upgrade has ended";
    Error::new(ErrorKind::Unavailable, message)
}
