//! A lease: how long it is good, its renewals, and its end.

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
    /// Since when the token is known: what was sent before may be answered with the one before it.
    pub(super) token_since: Moment,
    /// When it ends here: the margin is off already.
    pub(crate) ends: Moment,
    /// What was requested: what a renewal requests, and what replicas must confirm.
    pub(super) options: LeaseOptions,
    pub(crate) margin: Duration,
    /// When it was taken.
    pub(super) since: Moment,
    standing: Standing,
    pub(super) renewals: Renewals,
    pub(super) renewal: NextRenewal,
    question: Question,
    /// Of calls that are over.
    pub(super) in_doubt: Option<InDoubt>,
    /// An upgrade is under way.
    pub(super) upgrade: Option<Box<Acquiring>>,
    /// What the worker has to change about it.
    pub(super) pending: Option<Box<Pending>>,
    /// Of one that may be called back: what the server said last.
    pub(crate) contact: Option<Box<Contact>>,
}

/// What the last contact with the server said about a cached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contact {
    /// When it was sent.
    pub(crate) sent: Moment,
    /// The server has it as claimed.
    pub(crate) claimed: bool,
    /// The last token of the lock: a write owns all from its own up to this one.
    pub(crate) fence: u64,
    /// What calls it back.
    pub(crate) recall: Option<Mode>,
}

/// How a lease stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Good,
    /// The last renewal failed.
    Failing,
    /// It ends at its deadline, and is not renewed.
    Revoked,
    /// Its holder is giving it back: it is not renewed, and its end is no loss.
    Releasing,
    Lost {
        /// The server may have another lease of the same acquisition: a late duplicate of a call
        /// was granted anew.
        replaced: bool,
    },
}

/// The renewal that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NextRenewal {
    Never,
    Due(Moment),
    /// On its way, and was due then.
    Sent(Moment),
}

/// Whether the server is to be asked if it still holds.
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

    /// The server may have another lease in its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.standing == Standing::Lost { replaced: true }
    }

    /// Whether it is not made longer: renewals fail or are late, it was revoked, or it is being
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

    /// From here on it is in use, and not to be called back.
    pub(crate) fn uncache(&mut self) {
        self.options.cached = false;
    }

    /// The change of it that is owed.
    pub(crate) fn pending(&self) -> Option<Transition> {
        self.pending.as_ref().map(|pending| pending.transition)
    }

    /// The permits that it holds, none where it is of another lock.
    pub(crate) fn permits(&self) -> u32 {
        self.options.permits.map_or(0, |permits| permits.count)
    }

    pub(crate) fn replicas(&self) -> u32 {
        self.options.replicas
    }

    /// A renewal that is sent now.
    pub(crate) fn renew(&self, now: Moment) -> Renew {
        let lease = self.renewals.lease(now, self.options.lease);
        Renew { lease, cached: self.options.cached }
    }

    /// Until when any attempt without an answer can still be carried out.
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

    /// When whatever the server has of it has ended by itself, if nothing more is sent for it.
    pub(super) fn over(&self, now: Moment) -> Moment {
        // A renewal without an answer may have made it longer than is known here.
        let lease = self.options.lease;
        let ends = self.ends.max(now.after(lease)).after(self.margin);
        self.in_doubt().map_or(ends, |in_doubt| ends.max(in_doubt.until.after(lease)))
    }

    /// Takes note of a later end, which no longest hold allows to be later than its own.
    fn prolong(&mut self, ends: Moment) {
        self.ends = self.ends.max(self.renewals.within_hold(ends));
    }

    /// Has it renewed at that moment, if its renewals go on by `then`.
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
                // The answer to a renewal answers the question as well.
                let renewal = self.due_renewal(horizon, at.now);
                self.question.is_due &= renewal.is_none();
                let asks = renewal.or_else(|| self.due_question());
                fx.sends = [asks, self.due_change(horizon, at.now)];
                fx.look_by(self.next_due());
            }
        }
    }

    /// The renewal that is to be sent by then, if one is; it counts as sent from here on.
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

    /// Takes in what a renewal came to.
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
            // Somebody may have seen that it was lost by now: so it stays, whatever the server
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

    /// Takes note of what the server said of a cached lease. Answers can come out of their order.
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

    /// Whether a lease with this token is this one, as the answer says to a call that was sent at
    /// `sent`.
    ///
    /// A newer token is that of an upgrade which was granted and not heard of yet; if none can have
    /// been, it is another lease. An older one is what the server knew before the upgrade; if it is
    /// still all that it knows, the upgrade is gone.
    fn is_named_by(&self, token: u64, sent: Moment) -> bool {
        match token.cmp(&self.token) {
            Ordering::Equal => true,
            Ordering::Greater => self.may_be_upgraded(),
            Ordering::Less => sent <= self.token_since,
        }
    }

    /// An upgrade is under way, or was given up and may be granted all the same.
    fn may_be_upgraded(&self) -> bool {
        self.upgrade.is_some() || self.pending() == Some(Transition::EndWait)
    }

    // Its end.

    /// A message says that it was ended by force. Whoever may publish can say so, and a failover
    /// may have lost that end since: the server is asked.
    pub(super) fn doubt(&mut self, token: u64, at: &Context<'_>, fx: &mut Effects) {
        if token >= self.token && self.standing != Standing::Releasing && self.is_held(at.now) {
            self.question.is_due = true;
            fx.look_by(at.now);
        }
    }

    /// Takes in what the server says: only an answer that it does not hold, or by another token,
    /// counts. Else the next renewal tells.
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

    /// Its end may have passed.
    pub(super) fn expire(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.standing != Standing::Releasing && !self.is_held(at.now) {
            self.lose(false, at, fx);
        }
    }

    /// The server says that it has no lease with this token: if it has another one of this
    /// acquisition, that is released.
    pub(super) fn taken(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.standing != Standing::Releasing {
            self.lose(true, at, fx);
        }
    }

    /// It is lost for good; what may have taken its place is released.
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

    /// Has its length told, if its end was not told yet.
    pub(super) fn note_end(&self, how: &'static str, now: Moment, fx: &mut Effects) {
        if !self.is_lost() && self.standing != Standing::Releasing {
            fx.held = Some((self.mode, how, now.since(self.since)));
        }
    }

    /// Its holder releases it by a call of its own: nothing else is to be sent for it.
    pub(super) fn begin_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end("released", at.now, fx);
        self.in_doubt = self.in_doubt();
        (self.upgrade, self.pending) = (None, None);
        if !self.is_lost() {
            self.standing = Standing::Releasing;
        }
    }

    /// It is left alone, unless there may be another lease of this acquisition.
    pub(super) fn leave_alone(&mut self, how: &'static str, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end(how, at.now, fx);
        fx.over = !self.is_replaced();
    }

    // Changes.

    pub(super) fn upgrading(&mut self) -> Option<&mut Acquiring> {
        self.upgrade.as_deref_mut()
    }

    /// An upgrade begins when no change that is pending can be carried out any more.
    pub(super) fn begin_upgrade(&mut self, policy: WaitPolicy, at: &Context<'_>) -> Next {
        if !self.is_held(at.now) {
            return Next::Failed(lost());
        }
        // A downgrade that may still arrive has the token of the write that it ends: there must be
        // a new one first.
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

    /// The upgrade was granted. Nothing if the lease has ended meanwhile.
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

    /// The server has nothing of the upgrade, or its wait is still to be ended.
    pub(super) fn settle_upgrade(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match &self.upgrade {
            Some(upgrade) if upgrade.may_be_there() => self.end_wait(at, fx),
            _ => self.upgrade = None,
        }
    }

    /// Leaves the end of a wait for an upgrade to the worker. The read stays.
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

    /// Of its permits it keeps so many. What is on its way names more, and is followed by another.
    pub(super) fn begin_shrink(&mut self, keep: u32, at: &Context<'_>, fx: &mut Effects) {
        if let Some(permits) = &mut self.options.permits {
            permits.count = permits.count.min(keep);
        }
        if self.pending.is_none() && !self.is_lost() && self.standing != Standing::Releasing {
            self.owe(Pending::new(Transition::Shrink, at.now, None));
        }
        fx.look_by(at.now);
    }

    /// Takes in what giving back a part of the permits came to.
    pub(super) fn shrunk(
        &mut self,
        keep: u32,
        outcome: Outcome<Option<Grant>>,
        at: &Context<'_>,
        fx: &mut Effects,
    ) {
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

    /// The pending transition of this kind. The lease may have been lost meanwhile, and owe
    /// something else.
    fn owed(&mut self, transition: Transition) -> Option<&mut Pending> {
        let pending = self.pending.as_deref_mut();
        pending.filter(|pending| pending.transition == transition)
    }

    /// Takes in what a downgrade came to.
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
                // Where replicas have to confirm a lease, the next renewal makes it longer, and is
                // the next contact.
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

    /// Takes in what the worker's release of a part of it came to: of a wait for an upgrade, or of
    /// what took its place.
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

    /// Takes in the answer to the holder's own release. If anything may still arrive, the release
    /// goes on when the guard is dropped.
    pub(super) fn given_back(&self, told: Told<Ended>, at: &Context<'_>, fx: &mut Effects) {
        let Told { sent, what, node, .. } = told;
        fx.note = Some(Note::Released { node, ended: what, took: at.now.since(sent) });
        fx.over = self.in_doubt.is_none();
    }
}
