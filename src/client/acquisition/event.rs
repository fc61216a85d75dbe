//! What happens to an acquisition, and what is to be done about it.

use std::time::Duration;

use crate::client::lost::Loss;
use crate::client::reply::{Outcome, Told};
use crate::client::request::WaitPolicy;
use crate::client::settings::Settings;
use crate::clock::Moment;
use crate::error::Error;
use crate::node::Address;
use crate::protocol::{
    Acquire, Acquired, Downgrade, Ended, Grant, LockKey, Mode, Release, Renew, Renewed, Shrink,
};
use crate::router::ClockBound;

/// What a transition knows besides the state and the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    /// From 0 to 1: what spreads timers.
    pub(crate) random: f64,
    pub(crate) settings: &'a Settings,
}

#[derive(Debug)]
pub(crate) enum Event {
    // Of a request, which is for a new lease or for an upgrade.
    /// It is time to call. The client hears of grants in the lock's slot, or does not.
    Call {
        hears: bool,
    },
    /// The call has come to an end.
    Acquired(Outcome<Acquired>),
    /// Something may have changed, or the time to wake has come.
    Wake,
    /// A message may have been lost.
    Missed,
    /// A grant came by push.
    Pushed(Box<Pushed>),
    /// The request is over or was dropped: what it does not hold is given up.
    Leave,

    // Of a holder.
    /// The read is to become a write.
    Upgrade(WaitPolicy),
    /// The write is to become a read.
    Downgrade,
    /// Of its permits it keeps so many.
    Shrink {
        keep: u32,
    },
    /// The write is to remain one: a downgrade that was not sent yet is called off.
    StayWriter,
    /// The holder releases it by a call of its own.
    Release,
    /// That call was answered. If it is not, a [`Drop`](Event::Drop) follows.
    GivenBack(Told<Ended>),
    /// It is left to its lease.
    Keep,
    /// It is left to whoever has its ticket.
    HandOn,
    /// It is given up, whatever it has.
    Drop,

    /// A message says that a forced release has ended the lease with this token.
    Ended {
        token: u64,
    },

    // Of the worker.
    /// The time to look at it has come.
    Look,
    /// The token by which the server says that it holds, if it does.
    Asked(Outcome<Option<u64>>),
    Renewed(Outcome<Renewed>),
    Downgraded(Outcome<Renewed>),
    /// The lease by which the server says that it holds so many permits, if it does.
    Shrunk {
        keep: u32,
        outcome: Outcome<Option<Grant>>,
    },
    Released {
        only_wait: bool,
        outcome: Outcome<Ended>,
    },
}

impl Event {
    /// Whether it is an answer that says that work is left over at the server.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Event::Acquired(Ok(Told { envelope, .. }))
            | Event::Asked(Ok(Told { envelope, .. }))
            | Event::Renewed(Ok(Told { envelope, .. }))
            | Event::Downgraded(Ok(Told { envelope, .. }))
            | Event::Shrunk { outcome: Ok(Told { envelope, .. }), .. }
            | Event::Released { outcome: Ok(Told { envelope, .. }), .. }
            | Event::GivenBack(Told { envelope, .. }) => envelope.more,
            _ => false,
        }
    }
}

/// A grant as it came by push.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) grant: Grant,
    /// The server's time when it was sent, ms.
    pub(crate) now: u64,
    pub(crate) received: Moment,
    pub(crate) from: Address,
    /// Of that server's clock.
    pub(crate) bound: Option<ClockBound>,
}

/// What is to be done after a transition, when the state is not locked any more.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The worker is to look at it by then.
    pub(crate) look: Option<Moment>,
    /// The callers that wait for a change are to look.
    pub(crate) changed: bool,
    /// The lease has ended, or the request has: callers are told, and what depends on the lease is
    /// cancelled.
    pub(crate) ended: bool,
    /// Nothing more can come of it: it is forgotten.
    pub(crate) over: bool,
    /// The server has work left over: go on with `pump`.
    pub(crate) pump: bool,
    /// The lease was lost.
    pub(crate) lost: Option<Lost>,
    /// What else is to be told.
    pub(crate) note: Option<Note>,
    /// The hold has ended in this way, after so long.
    pub(crate) held: Option<(Mode, &'static str, Duration)>,
    /// What the worker is to send: at most a renewal or a question, and a change or a release.
    pub(crate) sends: [Option<Sending>; 2],
    /// How the request goes on.
    pub(crate) next: Option<Next>,
}

impl Effects {
    pub(crate) fn look_by(&mut self, due: Moment) {
        self.look = Some(self.look.map_or(due, |earlier| earlier.min(due)));
    }
}

/// A lease that was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    pub(crate) held: Duration,
    /// It ended before its time.
    pub(crate) taken: bool,
    /// Its guards are counted by its cache, which tells of the loss.
    pub(crate) cached: bool,
}

impl Lost {
    pub(crate) fn outcome(&self) -> &'static str {
        if self.taken { "taken" } else { "expired" }
    }

    pub(crate) fn of(self, lock: &LockKey) -> Loss {
        let Lost { mode, token, held, .. } = self;
        Loss { lock: lock.name.clone(), slot: lock.slot, mode, token, held, guards: 1 }
    }
}

/// For logs and metrics.
#[derive(Debug)]
pub(crate) enum Note {
    Queued { mode: Mode, node: Address, ahead: u64 },
    GrantedLate { mode: Mode, node: Address },
    Renewed { mode: Mode, node: Address, outcome: &'static str, took: Duration },
    RenewalFailed { mode: Mode, why: String },
    ChangeRefused(Error),
    Released { node: Address, ended: Ended, took: Duration },
    ReleaseFailed(Error),
}

/// What the worker sends for an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sending {
    /// So many replicas must confirm it; it is of use until the lease ends.
    Renew {
        renew: Renew,
        replicas: u32,
        ends: Moment,
    },
    /// Whether it holds; it is of use until the lease ends.
    Ask {
        ends: Moment,
    },
    Downgrade(Downgrade),
    Shrink(Shrink),
    Release(Release),
}

/// How a request goes on.
#[derive(Debug)]
pub(crate) enum Next {
    /// [`Call`](Event::Call) again, now.
    Again,
    /// The same, at this moment.
    Pause(Moment),
    /// Send this; it is of use until then.
    Send {
        acquire: Acquire,
        replicas: u32,
        until: Moment,
    },
    /// [`Wake`](Event::Wake) it at this moment, or when something has changed.
    Wait(Moment),
    Held {
        token: u64,
        by: By,
        node: Address,
    },
    /// It was a try, and others hold.
    Refused,
    Failed(Error),
}

/// How a grant came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Answer,
    Push,
}
