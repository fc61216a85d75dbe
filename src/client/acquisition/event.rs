//! The events of an acquisition, and their effects.

use std::time::Duration;

use crate::client::lost::Loss;
use crate::client::reply::{Outcome, Told};
use crate::client::request::WaitPolicy;
use crate::client::settings::Settings;
use crate::clock::Moment;
use crate::error::Error;
use crate::node::Address;
use crate::protocol::{
    Acquire, Acquired, Downgrade, Ended, Grant, Kind, LockKey, Mode, Release, Renew, Renewed,
    Shrink,
};
use crate::router::ClockBound;

/// What a transition uses besides the state and the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Moment,
    /// From 0 to 1, to spread timers.
    pub(crate) random: f64,
    pub(crate) settings: &'a Settings,
    /// The kind of the lock.
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Event {
    // Of a request, which is for a new lease or for an upgrade.
    /// It is time to call. `hears` says whether the client receives grants in the lock's slot.
    Call {
        hears: bool,
    },
    /// The call has ended.
    Acquired(Outcome<Acquired>),
    /// Something may have changed, or the time to wake has come.
    Wake,
    /// A message may have been lost.
    Missed,
    /// A grant was pushed.
    Pushed(Box<Pushed>),
    /// The request has ended or was dropped: what it does not hold is released.
    Leave,

    // Of a holder.
    /// A guard has the reserved lease from now on.
    BeginUse,
    /// Turn the read into a write.
    Upgrade(WaitPolicy),
    /// Turn the write into a read.
    Downgrade,
    /// Keep this many of the permits.
    Shrink {
        keep: u32,
    },
    /// Keep the write: cancel a downgrade that was not sent yet.
    StayWriter,
    /// The holder sends its own release.
    Release,
    /// That release was answered. Without an answer, a [`Drop`](Event::Drop) follows.
    GivenBack(Told<Ended>),
    /// Leave it to its lease.
    Keep,
    /// Leave it to the holder of its ticket.
    HandOn,
    /// Give it up in any state.
    Drop,

    /// The client has failed: nothing more is sent for it.
    ClientFailed,
    /// A message says that a forced release has ended the lease with this token.
    Ended {
        token: u64,
    },

    // Of the worker.
    /// It is time to look at it.
    Look,
    /// The server's answer: the token by which it holds the lock, if it does.
    Asked(Outcome<Option<u64>>),
    Renewed(Outcome<Renewed>),
    Downgraded(Outcome<Renewed>),
    /// The server's answer: the lease by which it holds this many permits, if it does.
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
    /// Whether it is an answer that reports work left at the server.
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

/// A grant as it was pushed.
#[derive(Debug)]
pub(crate) struct Pushed {
    pub(crate) grant: Grant,
    /// The server's time when it was sent, ms.
    pub(crate) now: u64,
    pub(crate) received: Moment,
    pub(crate) from: Address,
    /// The bound of that server's clock.
    pub(crate) bound: Option<ClockBound>,
}

/// What to do after a transition, once the state is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// When the transition took place.
    pub(crate) now: Moment,
    /// When the worker must look at it.
    pub(crate) look: Option<Moment>,
    /// Wake the callers that wait for a change.
    pub(crate) changed: bool,
    /// The lease or the request has ended: notify callers, and cancel what depends on the lease.
    pub(crate) ended: bool,
    /// It has ended: remove it from the registry.
    pub(crate) over: bool,
    /// The server has work left: continue it by `pump`.
    pub(crate) pump: bool,
    /// What is left is a release.
    pub(crate) is_release: bool,
    /// The lease was lost.
    pub(crate) lost: Option<Lost>,
    /// An event to emit.
    pub(crate) note: Option<Note>,
    /// The hold has ended: its mode, the way it ended, and how long it lasted.
    pub(crate) held: Option<(Mode, &'static str, Duration)>,
    /// What the worker sends: at most a renewal or a question, and a change or a release.
    pub(crate) sends: [Option<Sending>; 2],
    /// How the request continues.
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
    /// Whether it ended before its deadline.
    pub(crate) taken: bool,
    /// Whether it ended because the client has failed.
    pub(crate) client_failed: bool,
    /// Whether the loss is reported here. The cache reports that of a cached lease, and a reserved
    /// lease has no guard.
    pub(crate) is_reported: bool,
}

impl Lost {
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Lost { client_failed: true, .. } => "client_failed",
            Lost { taken: true, .. } => "taken",
            _ => "expired",
        }
    }

    pub(crate) fn of(self, lock: &LockKey) -> Loss {
        let Lost { mode, token, held, .. } = self;
        Loss { lock: lock.name.clone(), slot: lock.slot, mode, token, held, guards: 1 }
    }
}

/// An event for logs and metrics.
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
    /// It needs this many replicas' confirmation, and is useless after the end of the lease.
    Renew {
        renew: Renew,
        replicas: u32,
        ends: Moment,
    },
    /// Ask whether it holds the lock. It is useless after the end of the lease.
    Ask {
        ends: Moment,
    },
    Downgrade(Downgrade),
    Shrink(Shrink),
    Release(Release),
}

/// How a request continues.
#[derive(Debug)]
pub(crate) enum Next {
    /// [`Call`](Event::Call) again at once.
    Again,
    /// Send this call, which is useless after `until`.
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
    /// It was a try, and others hold the lock.
    Refused,
    Failed(Error),
}

/// How a grant arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Answer,
    Push,
}
