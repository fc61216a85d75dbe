//! A lease: its deadline, what is due for it, and its end.

use std::cmp::Ordering;
use std::time::Duration;

use crate::client::acquisition::acquiring::{Acquiring, Granted};
use crate::client::acquisition::event::{Context, Effects, Lost, Next, Note, Sending};
use crate::client::acquisition::pending::{Pending, Transition};
use crate::client::acquisition::releasing::RELEASE_GRACE;
use crate::client::deadline::{self, Renewals};
use crate::client::in_doubt::{self, InDoubt};
use crate::client::reply::{Outcome, Told};
use crate::client::request::LeaseOptions;
use crate::clock::Moment;
use crate::protocol::{Ended, Grant, Mode, Renew};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// Since when the token is known. Earlier calls may be answered with the token before it.
    pub(super) token_since: Moment,
    /// The local end; the margin is subtracted already.
    pub(crate) ends: Moment,
    /// How much earlier it ends here than at the server.
    pub(crate) margin: Duration,
    /// The requested options, for renewals and the replicas that must confirm them.
    pub(super) options: LeaseOptions,
    /// When it was granted.
    pub(super) since: Moment,
    pub(super) standing: Standing,
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
pub(super) enum Standing {
    Good,
    /// The last renewal failed.
    Failing,
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
        let Granted { grant, ends, margin, claim_or_renew_at, by, node, sent: since } = granted;
        let options = request.options.clone();
        let claims = claim_or_renew_at <= at.now;
        let mut renewals = options.renewals(at.now);
        renewals.left = renewals.left.map(|left| left.saturating_add(u32::from(claims)));
        let mut holding = Holding {
            mode: request.mode(),
            token: grant.token,
            token_since: at.now,
            ends: renewals.within_hold(ends),
            margin,
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
        !self.is_lost() && !self.is_releasing() && now < self.ends
    }

    /// Whether its holder has begun to release it.
    pub(crate) fn is_releasing(&self) -> bool {
        self.standing == Standing::Releasing
    }

    /// The mode that its holder has. The server may still have a write of which the downgrade is
    /// pending.
    pub(crate) fn visible_mode(&self) -> Mode {
        match self.pending() {
            Some(Transition::Downgrade) => Mode::Read,
            _ => self.mode,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost { .. })
    }

    /// Whether it was lost, or its end has passed while its holder had not begun to release it.
    #[cfg(feature = "blocking")]
    pub(crate) fn has_lapsed(&self, now: Moment) -> bool {
        self.is_lost() || (self.standing != Standing::Releasing && now >= self.ends)
    }

    /// Whether the server may have another lease in its place.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(self.standing, Standing::Lost { replaced: true, .. })
    }

    /// Whether it is not being extended: renewals fail or are late, or it was revoked.
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

    /// Whether it is revoked, or was before it was lost.
    pub(crate) fn was_revoked(&self) -> bool {
        matches!(self.standing, Standing::Revoked | Standing::Lost { revoked: true, .. })
    }

    /// How many more renewals are sent, if there is a limit.
    pub(crate) fn renewals_left(&self) -> Option<u32> {
        self.renewals.left
    }

    /// From here on it counts as in use, and is not recalled.
    pub(crate) fn uncache(&mut self) {
        self.options.cached = false;
    }

    /// A guard has the reserved lease from now on. Its limits of renewals count from here.
    pub(super) fn begin_use(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.options.reserved = false;
        self.renewals = self.options.renewals(at.now);
        self.ends = self.renewals.within_hold(self.ends);
        // A claim that is due or under way does not count against the limit.
        let is_due = match self.renewal {
            NextRenewal::Never => false,
            NextRenewal::Due(due) => due <= at.now,
            NextRenewal::Sent(_) => true,
        };
        let left = &mut self.renewals.left;
        *left = left.map(|left| left.saturating_add(u32::from(is_due)));
        if let NextRenewal::Due(due) = self.renewal {
            self.renew_at(due, at.now);
        }
        if self.standing == Standing::Failing {
            self.standing = Standing::Good;
        }
        fx.look_by(self.next_due());
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
        Renew {
            lease,
            mode: self.mode,
            token: self.token,
            permits: self.permits(),
            cached: self.options.cached,
        }
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

    /// Moves the end to a later moment, at most to the end of the longest hold. Nothing extends a
    /// revoked lease.
    pub(super) fn prolong(&mut self, ends: Moment, margin: Duration) {
        let ends = self.renewals.within_hold(ends);
        if !self.is_revoked() && ends > self.ends {
            (self.ends, self.margin) = (ends, margin);
        }
    }

    /// The margin of a lease in the server's answer, which can be longer than the requested one.
    pub(super) fn margin_of(&self, grant: Grant, server_now: u64, at: &Context<'_>) -> Duration {
        at.settings.margin(self.options.lease.max(deadline::left(grant, server_now)))
    }

    /// Schedules its renewal, if its renewals go on by `then`.
    pub(super) fn renew_at(&mut self, due: Moment, then: Moment) {
        self.renewal = match self.renewals.go_on(then) {
            true => NextRenewal::Due(due),
            false => NextRenewal::Never,
        };
    }

    pub(super) fn look(&mut self, at: &Context<'_>, fx: &mut Effects) {
        match self.standing {
            Standing::Releasing => {}
            Standing::Lost { .. } => {
                fx.sends[1] = self.due_change(at.now);
                let due = self.pending.as_ref().and_then(|pending| pending.due());
                due.into_iter().for_each(|due| fx.look_by(due));
            }
            _ if !self.is_held(at.now) => self.lose(false, at, fx),
            _ => {
                // The answer to a renewal also answers the question.
                let renewal = self.due_renewal(at.now);
                self.question.is_due &= renewal.is_none();
                let asks = renewal.or_else(|| self.due_question());
                fx.sends = [asks, self.due_change(at.now)];
                fx.look_by(self.next_due());
            }
        }
    }

    fn due_question(&mut self) -> Option<Sending> {
        let Question { is_due, is_sent } = self.question;
        if !is_due || is_sent {
            return None;
        }
        self.question = Question { is_due: false, is_sent: true };
        Some(Sending::Ask { ends: self.ends })
    }

    // What the server says of it.

    /// Records the server's answer about a cached lease. Answers can arrive out of order.
    pub(super) fn note_contact(&mut self, grant: Grant, sent: Moment, fx: &mut Effects) {
        if let Some(contact) = &mut self.contact {
            let Grant { fence, recall, .. } = grant;
            let is_newer = sent >= contact.sent;
            contact.recall = if is_newer { recall } else { contact.recall.or(recall) };
            contact.fence = if is_newer { fence } else { contact.fence };
            (contact.sent, contact.claimed) = (contact.sent.max(sent), true);
            fx.changed = true;
        }
    }

    /// Whether the token in an answer means this lease. The call was sent at `sent`.
    ///
    /// A newer token is that of an upgrade whose grant has not been received. If there was no
    /// upgrade, it is another lease. An older token is what the server had before the upgrade. If
    /// the server still has that one, the upgrade is gone.
    pub(super) fn is_named_by(&self, token: u64, sent: Moment) -> bool {
        match token.cmp(&self.token) {
            Ordering::Equal => true,
            Ordering::Greater => self.may_be_upgraded(),
            Ordering::Less => sent <= self.token_since,
        }
    }

    /// Whether an upgrade is under way, or was given up and may still be granted.
    pub(super) fn may_be_upgraded(&self) -> bool {
        self.upgrade.is_some() || self.pending() == Some(Transition::EndWait)
    }

    // Its end.

    /// A message says that a forced release has ended it. Anybody may be able to publish that, and
    /// a failover may have undone it since, so the server is asked.
    pub(super) fn doubt(&mut self, token: u64, at: &Context<'_>, fx: &mut Effects) {
        if token >= self.token && self.is_held(at.now) {
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
        if !self.is_held(at.now) {
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
        if !self.is_releasing() && !self.is_held(at.now) {
            self.lose(false, at, fx);
        }
    }

    /// The server says that it has no lease with this token. If it has another lease of this
    /// acquisition, that is released.
    pub(super) fn taken(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if !self.is_releasing() {
            self.lose(true, at, fx);
        }
    }

    /// Loses it for good. What may have taken its place is released.
    pub(super) fn lose(&mut self, replaced: bool, at: &Context<'_>, fx: &mut Effects) {
        if self.is_lost() {
            return;
        }
        let over = self.over(at.now);
        self.in_doubt = self.in_doubt();
        self.standing = Standing::Lost { replaced, revoked: self.is_revoked() };
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
            client_failed: false,
            is_reported: self.contact.is_none() && !self.options.reserved,
        });
        if replaced {
            fx.look_by(at.now);
        }
    }

    /// The client has failed, and renews nothing any more.
    pub(super) fn client_failed(&mut self, at: &Context<'_>, fx: &mut Effects) {
        if self.standing == Standing::Releasing {
            return;
        }
        self.lose(false, at, fx);
        if let Some(lost) = &mut fx.lost {
            lost.client_failed = true;
        }
    }

    /// Reports how long it lasted, unless its end was reported before.
    pub(super) fn note_end(&self, how: &'static str, now: Moment, fx: &mut Effects) {
        if !self.is_lost() && !self.is_releasing() {
            fx.held = Some((self.mode, how, now.since(self.since)));
        }
    }

    /// The holder sends its own release, so nothing else is sent for it. The lease has ended for
    /// every observer from here on, because the server may grant the lock to others before its
    /// answer arrives.
    pub(super) fn begin_release(&mut self, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end("released", at.now, fx);
        self.in_doubt = self.in_doubt();
        (self.upgrade, self.pending) = (None, None);
        if !self.is_lost() {
            self.standing = Standing::Releasing;
            fx.ended = true;
        }
    }

    /// Handles the answer to the holder's own release. If anything may still arrive, the release
    /// goes on when the guard is dropped.
    pub(super) fn given_back(&self, told: Told<Ended>, at: &Context<'_>, fx: &mut Effects) {
        let Told { sent, what, node, .. } = told;
        fx.note = Some(Note::Released { node, ended: what, took: at.now.since(sent) });
        fx.over = self.in_doubt.is_none();
    }

    /// Stops tracking it, unless there may be another lease of this acquisition.
    pub(super) fn leave_alone(&mut self, how: &'static str, at: &Context<'_>, fx: &mut Effects) {
        self.expire(at, fx);
        self.note_end(how, at.now, fx);
        fx.over = !self.is_replaced();
    }
}
