//! Changes of a lease: upgrades, downgrades, and giving back some of the permits.

use std::time::Duration;

use crate::client::acquisition::acquiring::{Acquiring, Granted, out_of_time};
use crate::client::acquisition::event::{Context, Effects, Next, Sending};
use crate::client::acquisition::holding::{Holding, Standing};
use crate::client::acquisition::pending::{Pending, Transition};
use crate::client::acquisition::state::lost;
use crate::client::deadline;
use crate::client::reply::{Outcome, Told};
use crate::client::request::WaitPolicy;
use crate::clock::Moment;
use crate::protocol::{Downgrade, Ended, Goal, Grant, Mode, Renewed, Shrink};

impl Holding {
    pub(super) fn due_change(&mut self, now: Moment) -> Option<Sending> {
        let lease = self.renew(now).lease;
        let cached = self.options.cached;
        let shrink = Shrink { keep: self.permits() };
        let downgrade = Downgrade { token: self.token, lease, cached };
        self.pending.as_mut()?.send(now, downgrade, shrink)
    }

    pub(super) fn upgrading(&mut self) -> Option<&mut Acquiring> {
        self.upgrade.as_deref_mut()
    }

    /// Begins an upgrade once no pending change can be carried out any more.
    pub(super) fn begin_upgrade(&mut self, policy: WaitPolicy, at: &Context<'_>) -> Next {
        if !self.is_held(at.now) {
            return Next::Failed(lost());
        }
        // A downgrade that may still arrive names the token of the write it ends. There must be a
        // new token first.
        if self.pending.as_ref().is_some_and(|pending| pending.may_be_under_way()) {
            return match policy.until() {
                Some(until) if at.now >= until => Next::Failed(out_of_time()),
                until => Next::Wait(until.unwrap_or(Moment::from_origin(Duration::MAX))),
            };
        }
        let pending = self.pending.take();
        let lingers = pending.as_ref().is_some_and(|one| one.transition == Transition::EndWait);
        let goal = Goal::Upgrade { token: self.token };
        let upgrade = Acquiring::new(goal, &self.options, policy, at.now).following(
            self.renewals.hold_ends,
            pending.and_then(|pending| pending.in_doubt()),
            lingers,
        );
        self.upgrade = Some(Box::new(upgrade));
        Next::Again
    }

    /// The upgrade was granted. `None` if the lease has ended meanwhile.
    pub(super) fn become_writer(
        &mut self,
        granted: Granted,
        at: &Context<'_>,
        fx: &mut Effects,
    ) -> Option<Next> {
        if !self.is_held(at.now) {
            return None;
        }
        let Granted { grant, ends, margin, claim_or_renew_at, by, node, .. } = granted;
        self.in_doubt = self.in_doubt();
        self.upgrade = None;
        (self.mode, self.token, self.token_since) = (Mode::Write, grant.token, at.now);
        if self.is_revoked() {
            // No upgrade is granted after a revocation, so a failover has lost it.
            self.standing = Standing::Good;
        }
        self.prolong(ends, margin);
        if claim_or_renew_at <= at.now {
            let left = &mut self.renewals.left;
            *left = left.map(|left| left.saturating_add(1));
        }
        self.renew_at(claim_or_renew_at, at.now);
        fx.look_by(self.next_due());
        fx.changed = true;
        Some(Next::Held { token: grant.token, by, node })
    }

    /// The upgrade has nothing at the server, or its wait must still be ended.
    pub(super) fn settle_upgrade(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match &self.upgrade {
            Some(upgrade) if upgrade.may_be_there() => self.end_wait(at, fx),
            _ => self.upgrade = None,
        }
    }

    /// Leaves ending the wait for an upgrade to the worker. The read stays.
    pub(super) fn end_wait(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if let Some(upgrade) = self.upgrade.take() {
            self.owe(Pending::new(Transition::EndWait, at.now, upgrade.in_doubt()));
            fx.look_by(at.now);
        }
    }

    pub(super) fn begin_downgrade(&mut self, at: &Context<'_>, fx: &mut Effects) {
        let is_over = self.is_lost() || self.is_releasing();
        if self.mode == Mode::Write && self.pending.is_none() && !is_over {
            self.owe(Pending::new(Transition::Downgrade, at.now, None));
            fx.changed = true;
        }
        fx.look_by(at.now);
    }

    pub(super) fn stay_writer(&mut self, fx: &mut Effects) {
        let waits = |pending: &Pending| {
            pending.transition == Transition::Downgrade && !pending.may_be_under_way()
        };
        if self.pending.as_deref().is_some_and(waits) {
            self.pending = None;
        }
        fx.changed = true;
    }

    /// Handles the outcome of a downgrade.
    pub(super) fn downgraded(
        &mut self,
        outcome: Outcome<Renewed>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let Some(pending) = self.owed(Transition::Downgrade) else {
            return;
        };
        match outcome {
            Ok(Told {
                what: Renewed::Held(grant) | Renewed::Revoked(grant),
                envelope,
                sent,
                ..
            }) => {
                (self.mode, self.pending) = (Mode::Read, None);
                // If replicas must confirm a lease, the next renewal extends it and is the next
                // contact.
                if self.options.replicas == 0 {
                    self.note_contact(grant, sent, fx);
                    if self.is_held(at.now) {
                        let margin = self.margin_of(grant, envelope.now, at);
                        self.prolong(deadline::ends(grant, envelope.now, sent, margin), margin);
                    }
                } else if let Some(contact) = &mut self.contact {
                    contact.recall = grant.recall;
                }
            }
            Ok(Told { what: Renewed::Other(_) | Renewed::Lost, .. }) => {
                return self.taken(at, fx);
            }
            Err(failure) => pending.failed(failure, at.now, fx),
        }
        fx.changed = true;
        fx.look_by(self.next_due());
    }

    /// Keeps this many permits. A call under way names more, and another one follows it.
    pub(super) fn begin_shrink(&mut self, keep: u32, at: &Context<'_>, fx: &mut Effects) {
        if let Some(permits) = &mut self.options.permits {
            permits.count = permits.count.min(keep);
        }
        if self.pending.is_none() && !self.is_lost() && !self.is_releasing() {
            self.owe(Pending::new(Transition::Shrink, at.now, None));
        }
        fx.look_by(at.now);
    }

    /// Handles the outcome of giving back some of the permits.
    pub(super) fn shrunk(
        &mut self,
        keep: u32,
        outcome: Outcome<Option<Grant>>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        if self.is_releasing() {
            return; // the release answers for all permits
        }
        let is_all = keep <= self.permits();
        if let Ok(Told { what, sent, .. }) = &outcome
            && !what.is_some_and(|grant| self.is_named_by(grant.token, *sent))
        {
            return self.lose(what.is_some(), at, fx);
        }
        let Some(pending) = self.owed(Transition::Shrink) else {
            return;
        };
        match outcome {
            Ok(_) if is_all => self.pending = None,
            Ok(_) => pending.due = Some(at.now),
            Err(failure) => pending.failed(failure, at.now, fx),
        }
        fx.changed = true;
        fx.look_by(self.next_due());
    }

    /// Handles the outcome of the worker's partial release: of a wait for an upgrade, or of a lease
    /// that took this one's place.
    pub(super) fn released(
        &mut self,
        only_wait: bool,
        outcome: Outcome<Ended>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        let transition = if only_wait { Transition::EndWait } else { Transition::GiveBack };
        let Some(pending) = self.owed(transition) else {
            return;
        };
        match outcome {
            Ok(Told { what: Ended::Writing(grant), .. }) => {
                (self.token, self.token_since) = (grant.token, at.now);
                self.owe(Pending::new(Transition::Downgrade, at.now, None));
            }
            Ok(Told { envelope, sent, .. }) => {
                if !pending.goes_on(envelope.now, sent, at.now) {
                    self.pending = None;
                }
            }
            Err(_) if pending.is_over(at.now) => self.pending = None,
            Err(failure) => pending.failed(failure, at.now, fx),
        }
        fx.changed = true;
        fx.look_by(self.next_due());
    }

    fn owe(&mut self, pending: Pending) {
        self.pending = Some(Box::new(pending));
    }

    /// The pending change, if it is of this kind. If the lease was lost meanwhile, another change
    /// may be pending.
    fn owed(&mut self, transition: Transition) -> Option<&mut Pending> {
        let pending = self.pending.as_deref_mut();
        pending.filter(|pending| pending.transition == transition)
    }
}
