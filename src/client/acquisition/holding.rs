//! A lease: its deadline, its renewals, and its end.

use std::cmp::Ordering;
use std::time::Duration;

use crate::client::acquisition::acquiring::{Acquiring, Granted, out_of_time, too_few_replicas};
use crate::client::acquisition::event::{Context, Effects, Lost, Next, Note, Sending};
use crate::client::acquisition::pending::{Pending, Transition};
use crate::client::acquisition::releasing::{HORIZON, RELEASE_GRACE};
use crate::client::acquisition::state::{lost, revoked};
use crate::client::deadline::{self, Renewals};
use crate::client::in_doubt::{self, InDoubt};
use crate::client::reply::{Outcome, Told};
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::clock::Moment;
use crate::error::Error;
use crate::protocol::{Downgrade, Ended, Goal, Grant, Mode, Renew, Renewed, Shrink};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// Since when the token is known. Earlier calls may be answered with the token before it.
    pub(super) token_since: Moment,
    /// The local end; the margin is subtracted already.
    pub(crate) ends: Moment,
    /// The requested options, for renewals and the replicas that must confirm them.
    pub(super) options: LeaseOptions,
    pub(crate) margin: Duration,
    /// When it was granted.
    pub(super) since: Moment,
    standing: Standing,
    pub(super) renewals: Renewals,
    pub(super) renewal: NextRenewal,
    question: Question,
    /// Of calls that have ended.
    pub(super) in_doubt: Option<InDoubt>,
    /// The upgrade under way.
    pub(super) upgrade: Option<Box<Acquiring>>,
    /// The change that the worker must make.
    pub(super) pending: Option<Box<Pending>>,
    /// For a lease that can be recalled: the server's last answer.
    pub(crate) contact: Option<Box<Contact>>,
}

/// The server's last answer about a cached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contact {
    /// When it was sent.
    pub(crate) sent: Moment,
    /// Whether the server has recorded the claim.
    pub(crate) claimed: bool,
    /// The last token of the lock. A write owns all tokens from its own to this one.
    pub(crate) fence: u64,
    /// The mode whose request recalls it.
    pub(crate) recall: Option<Mode>,
}

/// The condition of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Good,
    /// The last renewal failed.
    Failing,
    /// It is not renewed, and ends at its deadline.
    Revoked,
    /// Its holder is releasing it: it is not renewed, and its end is not a loss.
    Releasing,
    Lost {
        /// The server may have another lease of the same acquisition: a late duplicate of a call
        /// was granted anew.
        replaced: bool,
    },
}

/// The next renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NextRenewal {
    Never,
    Due(Moment),
    /// It is under way, and was due at this moment.
    Sent(Moment),
}

/// Whether to ask the server if it still has the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Question {
    is_due: bool,
    is_sent: bool,
}

impl Holding {
    /// The lease that a request was granted.
    pub(super) fn new(request: &Acquiring, granted: Granted, at: &Context<'_>) -> (Holding, Next) {
        let Granted { grant, ends, claim_or_renew_at, by, node, sent: since } = granted;
        let options = request.options.clone();
        let claims = claim_or_renew_at <= at.now;
        let left = match options.renewal {
            Renewal::Automatic => None,
            Renewal::AtMost(most) => Some(most),
            Renewal::Manual => Some(0),
        };
        let renewals = Renewals {
            left: left.map(|left| left.saturating_add(u32::from(claims))),
            hold_ends: options.hold.map(|hold| at.now.after(hold)),
        };
        let mut holding = Holding {
            mode: request.mode(),
            token: grant.token,
            token_since: at.now,
            ends,
            margin: at.settings.margin(options.lease),
            options,
            since: at.now,
            standing: Standing::Good,
            renewals,
            renewal: NextRenewal::Never,
            question: Question::default(),
            in_doubt: request.in_doubt(),
            upgrade: None,
            pending: None,
            contact: None,
        };
        if holding.options.cached {
            let Grant { fence, recall, .. } = grant;
            let contact = Contact { sent: since, claimed: !claims, fence, recall };
            holding.contact = Some(Box::new(contact));
        }
        holding.renew_at(claim_or_renew_at, at.now);
        (holding, Next::Held { token: grant.token, by, node })
    }

    // What callers see.

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        !self.is_lost() && now < self.ends
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost { .. })
    }

    /// Whether the server may have another lease in its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.standing == Standing::Lost { replaced: true }
    }

    /// Whether it is not being extended: renewals fail or are late, it was revoked, or it is being
    /// released.
    pub(crate) fn is_shaky(&self, now: Moment) -> bool {
        let overdue = match self.renewal {
            NextRenewal::Never => false,
            NextRenewal::Due(at) | NextRenewal::Sent(at) => at.after(self.options.lease / 6) < now,
        };
        overdue || self.standing != Standing::Good
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.standing == Standing::Revoked
    }

    /// From here on it counts as in use, and is not recalled.
    pub(crate) fn uncache(&mut self) {
        self.options.cached = false;
    }

    /// The change that the worker must make.
    pub(crate) fn pending(&self) -> Option<Transition> {
        self.pending.as_ref().map(|pending| pending.transition)
    }

    /// The permits that it holds, or 0 for another kind of lock.
    pub(crate) fn permits(&self) -> u32 {
        self.options.permits.map_or(0, |permits| permits.count)
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.options.replicas
    }

    /// A renewal to send now.
    pub(crate) fn renew(&self, now: Moment) -> Renew {
        let lease = self.renewals.lease(now, self.options.lease);
        Renew { lease, cached: self.options.cached }
    }

    /// The length of the lease that was requested.
    pub(crate) fn requested_lease(&self) -> Duration {
        self.options.lease
    }

    /// Attempts without an answer that may still be carried out.
    pub(crate) fn in_doubt(&self) -> Option<InDoubt> {
        let upgrade = self.upgrade.as_ref().and_then(|acquiring| acquiring.in_doubt());
        let pending = self.pending.as_ref().and_then(|pending| pending.in_doubt());
        in_doubt::both(in_doubt::both(self.in_doubt, upgrade), pending)
    }

    // Time.

    /// When the worker must look at it next.
    pub(super) fn next_due(&self) -> Moment {
        let renewal = match self.renewal {
            NextRenewal::Due(at) => Some(at),
            NextRenewal::Never | NextRenewal::Sent(_) => None,
        };
        let pending = self.pending.as_ref().and_then(|pending| pending.due());
        renewal.into_iter().chain(pending).fold(self.ends, Moment::min)
    }

    /// When everything it has at the server will have ended by itself, if nothing more is sent for
    /// it.
    pub(super) fn over(&self, now: Moment) -> Moment {
        // A renewal without an answer may have extended it.
        let lease = self.options.lease;
        let ends = self.ends.max(now.after(lease)).after(self.margin);
        self.in_doubt().map_or(ends, |in_doubt| ends.max(in_doubt.until.after(lease)))
    }

    /// Moves the end to a later moment, at most to the end of the longest hold.
    fn prolong(&mut self, ends: Moment) {
        self.ends = self.ends.max(self.renewals.within_hold(ends));
    }

    /// Schedules its renewal, if its renewals go on by `then`.
    fn renew_at(&mut self, due: Moment, then: Moment) {
        self.renewal = match self.renewals.go_on(then) {
            true => NextRenewal::Due(due),
            false => NextRenewal::Never,
        };
    }

    pub(super) fn look(&mut self, at: &Context<'_>, fx: &mut Effects) {
        let horizon = at.now.after(HORIZON);
        match self.standing {
            Standing::Releasing => {}
            Standing::Lost { .. } => {
                fx.sends[1] = self.due_change(horizon, at.now);
                let due = self.pending.as_ref().and_then(|pending| pending.due());
                due.into_iter().for_each(|due| fx.look_by(due));
            }
            _ if !self.is_held(at.now) => self.lose(false, at, fx),
            _ => {
                // The answer to a renewal also answers the question.
                let renewal = self.due_renewal(horizon, at.now);
                self.question.is_due &= renewal.is_none();
                let asks = renewal.or_else(|| self.due_question());
                fx.sends = [asks, self.due_change(horizon, at.now)];
                fx.look_by(self.next_due());
            }
        }
    }

    /// The renewal to send by then, if there is one. It counts as sent from here on.
    fn due_renewal(&mut self, horizon: Moment, now: Moment) -> Option<Sending> {
        let NextRenewal::Due(due) = self.renewal else {
            return None;
        };
        if due > horizon {
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

    fn due_question(&mut self) -> Option<Sending> {
        let Question { is_due, is_sent } = self.question;
        if !is_due || is_sent {
            return None;
        }
        self.question = Question { is_due: false, is_sent: true };
        Some(Sending::Ask { ends: self.ends })
    }

    fn due_change(&mut self, horizon: Moment, now: Moment) -> Option<Sending> {
        let lease = self.renew(now).lease;
        let cached = self.options.cached;
        let shrink = Shrink { keep: self.permits() };
        let downgrade = Downgrade { token: self.token, lease, cached };
        self.pending.as_mut()?.send(horizon, downgrade, shrink)
    }

    // Renewals.

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
                Ok(Renewed::Revoked(_)) => Some(Next::Failed(revoked())),
                Ok(Renewed::Lost) => Some(Next::Failed(lost())),
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
            Renewed::Held(grant) | Renewed::Revoked(grant)
                if !self.is_named_by(grant.token, sent) =>
            {
                fx.note = note("lost");
                self.lose(true, at, fx);
            }
            Renewed::Held(grant) if confirmed >= self.options.replicas => {
                fx.note = note("held");
                if self.standing == Standing::Failing {
                    self.standing = Standing::Good;
                }
                self.renewals.count_one();
                self.note_contact(grant, sent, fx);
                self.prolong(deadline::ends(grant, envelope.now, sent, self.margin));
                let next = deadline::renew_at(sent, self.options.lease, at.random);
                self.renew_at(next, next);
            }
            Renewed::Held(_) => {
                let error = too_few_replicas(confirmed, self.options.replicas);
                self.renewal_failed(error.to_string(), error, at, fx);
            }
            Renewed::Revoked(grant) => {
                fx.note = note("revoked");
                self.note_contact(Grant { recall: Some(Mode::Write), ..grant }, sent, fx);
                (self.standing, self.renewal) = (Standing::Revoked, NextRenewal::Never);
                fx.next = Some(Next::Failed(revoked()));
                fx.changed = true;
            }
            Renewed::Lost => {
                fx.note = note("lost");
                self.lose(false, at, fx);
            }
        }
    }

    /// Records the server's answer about a cached lease. Answers can arrive out of order.
    fn note_contact(&mut self, grant: Grant, sent: Moment, fx: &mut Effects) {
        if let Some(contact) = &mut self.contact {
            let Grant { fence, recall, .. } = grant;
            let is_newer = sent >= contact.sent;
            contact.recall = if is_newer { recall } else { contact.recall.or(recall) };
            contact.fence = if is_newer { fence } else { contact.fence };
            (contact.sent, contact.claimed) = (contact.sent.max(sent), true);
            fx.changed = true;
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

    /// Whether the token in an answer means this lease. The call was sent at `sent`.
    ///
    /// A newer token is that of an upgrade whose grant has not been received. If there was no
    /// upgrade, it is another lease. An older token is what the server had before the upgrade. If
    /// the server still has that one, the upgrade is gone.
    fn is_named_by(&self, token: u64, sent: Moment) -> bool {
        match token.cmp(&self.token) {
            Ordering::Equal => true,
            Ordering::Greater => self.may_be_upgraded(),
            Ordering::Less => sent <= self.token_since,
        }
    }

    /// Whether an upgrade is under way, or was given up and may still be granted.
    fn may_be_upgraded(&self) -> bool {
        self.upgrade.is_some() || self.pending() == Some(Transition::EndWait)
    }

    // Its end.

    /// A message says that a forced release has ended it. Anybody may be able to publish that, and
    /// a failover may have undone it since, so the server is asked.
    pub(super) fn doubt(&mut self, token: u64, at: &Context<'_>, fx: &mut Effects) {
        if token >= self.token && self.standing != Standing::Releasing && self.is_held(at.now) {
            self.question.is_due = true;
            fx.look_by(at.now);
        }
    }

    /// Handles the server's answer. Only an answer that it does not hold the lock, or holds it by
    /// another token, counts. Otherwise the next renewal decides.
    pub(super) fn asked(
        &mut self,
        outcome: Outcome<Option<u64>>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
        self.question.is_sent = false;
        if self.standing == Standing::Releasing || !self.is_held(at.now) {
            return;
        }
        if let Ok(Told { what, sent, .. }) = outcome {
            let is_this_one = what.is_some_and(|token| self.is_named_by(token, sent));
            if !is_this_one {
                return self.lose(what.is_some(), at, fx);
            }
        }
        if self.question.is_due {
            fx.look_by(at.now);
        }
    }

    /// Checks whether its end has passed.
    pub(super) fn expire(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.standing != Standing::Releasing && !self.is_held(at.now) {
            self.lose(false, at, fx);
        }
    }

    /// The server says that it has no lease with this token. If it has another lease of this
    /// acquisition, that is released.
    pub(super) fn taken(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.standing != Standing::Releasing {
            self.lose(true, at, fx);
        }
    }

    /// Loses it for good. What may have taken its place is released.
    fn lose(&mut self, replaced: bool, at: &Context<'_>, fx: &mut Effects) {
        if self.is_lost() {
            return;
        }
        let over = self.over(at.now);
        self.in_doubt = self.in_doubt();
        self.standing = Standing::Lost { replaced };
        let give_back = || {
            let give_back = Pending::new(Transition::GiveBack, at.now, self.in_doubt);
            Box::new(give_back.until(over.after(RELEASE_GRACE)))
        };
        (self.upgrade, self.pending) = (None, replaced.then(give_back));
        fx.ended = true;
        fx.lost = Some(Lost {
            mode: self.mode,
            token: self.token,
            held: at.now.since(self.since),
            taken: at.now < self.ends,
            cached: self.contact.is_some(),
        });
        if replaced {
            fx.look_by(at.now);
        }
    }

    /// Reports how long it lasted, unless its end was reported before.
    pub(super) fn note_end(&self, how: &'static str, now: Moment, fx: &mut Effects) {
        if !self.is_lost() && self.standing != Standing::Releasing {
            fx.held = Some((self.mode, how, now.since(self.since)));
        }
    }

    /// The holder sends its own release, so nothing else is sent for it.
    pub(super) fn begin_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end("released", at.now, fx);
        self.in_doubt = self.in_doubt();
        (self.upgrade, self.pending) = (None, None);
        if !self.is_lost() {
            self.standing = Standing::Releasing;
        }
    }

    /// Stops tracking it, unless there may be another lease of this acquisition.
    pub(super) fn leave_alone(&mut self, how: &'static str, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end(how, at.now, fx);
        fx.over = !self.is_replaced();
    }

    // Changes.

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
        let Granted { grant, ends, claim_or_renew_at, by, node, .. } = granted;
        self.in_doubt = self.in_doubt();
        self.upgrade = None;
        (self.mode, self.token, self.token_since) = (Mode::Write, grant.token, at.now);
        self.prolong(ends);
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
        if self.mode == Mode::Write && self.pending.is_none() && !self.is_lost() {
            self.owe(Pending::new(Transition::Downgrade, at.now, None));
        }
        fx.look_by(at.now);
    }

    /// Keeps this many permits. A call under way names more, and another one follows it.
    pub(super) fn begin_shrink(&mut self, keep: u32, at: &Context<'_>, fx: &mut Effects) {
        if let Some(permits) = &mut self.options.permits {
            permits.count = permits.count.min(keep);
        }
        if self.pending.is_none() && !self.is_lost() && self.standing != Standing::Releasing {
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
        if self.standing == Standing::Releasing {
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

    pub(super) fn stay_writer(&mut self, fx: &mut Effects) {
        let waits = |pending: &Pending| {
            pending.transition == Transition::Downgrade && !pending.may_be_under_way()
        };
        if self.pending.as_deref().is_some_and(waits) {
            self.pending = None;
        }
        fx.changed = true;
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
                        self.prolong(deadline::ends(grant, envelope.now, sent, self.margin));
                    }
                } else if let Some(contact) = &mut self.contact {
                    contact.recall = grant.recall;
                }
            }
            Ok(Told { what: Renewed::Lost, .. }) => {
                return self.taken(at, fx);
            }
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

    /// Handles the answer to the holder's own release. If anything may still arrive, the release
    /// goes on when the guard is dropped.
    pub(super) fn given_back(&self, told: Told<Ended>, at: &Context<'_>, fx: &mut Effects) {
        let Told { sent, what, node, .. } = told;
        fx.note = Some(Note::Released { node, ended: what, took: at.now.since(sent) });
        fx.over = self.in_doubt.is_none();
    }
}
