//! Changes of a lease that the worker must make. There is one at a time.

use crate::client::acquisition::event::{Effects, Note, Sending};
use crate::client::acquisition::releasing::{AGAIN, Doubt};
use crate::client::in_doubt::InDoubt;
use crate::client::reply::Failure;
use crate::clock::Moment;
use crate::protocol::{Downgrade, Release, Shrink};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transition {
    /// An upgrade was given up: end its wait. If it was granted meanwhile, a downgrade follows.
    EndWait,
    /// From write to read.
    Downgrade,
    /// Give back some of the permits.
    Shrink,
    /// The lease was lost, and the server has another one of its acquisition: release that.
    GiveBack,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) transition: Transition,
    /// When to send it (again). `None` while it is under way.
    pub(super) due: Option<Moment>,
    /// Whether it may have been carried out.
    tried: bool,
    pub(super) doubt: Doubt,
    /// When what it would end has ended by itself, so that it need not be tried again. `None` if
    /// that is the end of the lease.
    pub(super) give_up: Option<Moment>,
}

impl Pending {
    pub(super) fn new(transition: Transition, due: Moment, in_doubt: Option<InDoubt>) -> Pending {
        let doubt = Doubt::new(in_doubt);
        Pending { transition, due: Some(due), tried: false, doubt, give_up: None }
    }

    /// Sets when to give it up.
    pub(super) fn until(self, give_up: Moment) -> Pending {
        Pending { give_up: Some(give_up), ..self }
    }

    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }

    pub(super) fn in_doubt(&self) -> Option<InDoubt> {
        self.doubt.in_doubt
    }

    /// Whether it is under way, or is a downgrade that may still arrive.
    pub(super) fn may_be_under_way(&self) -> bool {
        self.due.is_none() || (self.transition == Transition::Downgrade && self.tried)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.give_up.is_some_and(|give_up| now >= give_up)
    }

    /// What to send now, if anything is due. It counts as sent from here on.
    pub(super) fn send(
        &mut self,
        now: Moment,
        downgrade: Downgrade,
        shrink: Shrink,
    ) -> Option<Sending> {
        self.due.take_if(|due| *due <= now)?;
        self.tried = true;
        Some(match self.transition {
            Transition::EndWait => Sending::Release(Release { only_wait: true }),
            Transition::GiveBack => Sending::Release(Release { only_wait: false }),
            Transition::Downgrade => Sending::Downgrade(downgrade),
            Transition::Shrink => Sending::Shrink(shrink),
        })
    }

    /// It was answered. True if it must be sent once more, because an attempt without an answer may
    /// still be carried out.
    pub(super) fn goes_on(&mut self, server_now: u64, sent: Moment, now: Moment) -> bool {
        self.due = self.doubt.ends(server_now, sent, now);
        self.due.is_some()
    }

    /// It failed, and is tried again.
    pub(super) fn failed(&mut self, failure: Failure, now: Moment, fx: &mut Effects) {
        if !failure.is_passing() {
            fx.note = Some(Note::ChangeRefused(failure.into()));
        }
        self.due = Some(now.after(AGAIN));
    }
}
