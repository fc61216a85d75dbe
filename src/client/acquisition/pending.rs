//! Changes of a lease that the worker owes. There is one at a time.

use crate::client::acquisition::event::{Effects, Note, Sending};
use crate::client::acquisition::releasing::{AGAIN, Doubt};
use crate::client::in_doubt::InDoubt;
use crate::client::reply::Failure;
use crate::clock::Moment;
use crate::protocol::{Downgrade, Release, Shrink};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transition {
    /// An upgrade was given up: end its wait. If it has been granted meanwhile, a downgrade
    /// follows.
    EndWait,
    /// From write to read.
    Downgrade,
    /// A part of the permits is given back.
    Shrink,
    /// The lease was lost, and another one of its acquisition stands in its place: release that.
    GiveBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) transition: Transition,
    /// When to send it, again; `None` while it is on its way.
    pub(super) due: Option<Moment>,
    /// It may have been carried out.
    tried: bool,
    pub(super) doubt: Doubt,
    /// What it is to end has ended by itself by then, and it need not be tried again. `None` where
    /// the end of the lease ends it.
    pub(super) give_up: Option<Moment>,
}

impl Pending {
    pub(super) fn new(transition: Transition, due: Moment, in_doubt: Option<InDoubt>) -> Pending {
        let doubt = Doubt::new(in_doubt);
        Pending { transition, due: Some(due), tried: false, doubt, give_up: None }
    }

    /// It is given up then.
    pub(super) fn until(self, give_up: Moment) -> Pending {
        Pending { give_up: Some(give_up), ..self }
    }

    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }

    pub(super) fn in_doubt(&self) -> Option<InDoubt> {
        self.doubt.in_doubt
    }

    /// Whether it is on its way, or is a downgrade that can still arrive.
    pub(super) fn may_be_under_way(&self) -> bool {
        self.due.is_none() || (self.transition == Transition::Downgrade && self.tried)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.give_up.is_some_and(|give_up| now >= give_up)
    }

    /// What is to be sent by then, if anything is; it counts as sent from here on.
    pub(super) fn send(
        &mut self,
        horizon: Moment,
        downgrade: Downgrade,
        shrink: Shrink,
    ) -> Option<Sending> {
        self.due.take_if(|due| *due <= horizon)?;
        self.tried = true;
        Some(match self.transition {
            Transition::EndWait => Sending::Release(Release { only_wait: true }),
            Transition::GiveBack => Sending::Release(Release { only_wait: false }),
            Transition::Downgrade => Sending::Downgrade(downgrade),
            Transition::Shrink => Sending::Shrink(shrink),
        })
    }

    /// It was answered. True if it must be sent once more, for an attempt without an answer that
    /// can still be carried out.
    pub(super) fn goes_on(&mut self, server_now: u64, sent: Moment, now: Moment) -> bool {
        self.due = self.doubt.ends(server_now, sent, now);
        self.due.is_some()
    }

    /// It came to nothing, and is tried again.
    pub(super) fn failed(&mut self, failure: Failure, now: Moment, fx: &mut Effects) {
        if !failure.is_passing() {
            fx.note = Some(Note::ChangeRefused(failure.into()));
        }
        self.due = Some(now.after(AGAIN));
    }
}
