//! One acquisition: an id from the first call made for it until the last thing that could come of
//! it is over.

use std::cmp::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::client::deadline::Renewals;
use crate::client::in_doubt::{self, InDoubt};
use crate::client::telemetry;
use crate::clock::Moment;
use crate::node::Address;
use crate::protocol::{AcquisitionId, Grant, LockKey, Mode};

/// Shared by its caller (a request, then a guard), the registry, and the worker.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) id: AcquisitionId,
    /// The number in the acquisition id, its place in the registry.
    pub(crate) count: u64,
    pub(crate) lock: LockKey,
    /// The lease that was requested: an attempt that had no answer may have been granted it.
    lease: Duration,
    state: Mutex<State>,
    /// Told of a push, of a poll that is due, of a change of the lease, and of its end. Many may
    /// listen, so all are told.
    pub(crate) changed: Notify,
    /// Cancelled when the lease ends; made for the first caller that wants it.
    cancellation: OnceLock<CancellationToken>,
}

#[derive(Debug)]
pub(crate) enum State {
    Acquiring(Acquiring),
    Held(Holding),
    /// Given up here, and not yet known to be gone from the server.
    Releasing(Releasing),
    /// Over.
    Ended,
}

/// Calls are being made, or a place in the queue is held.
#[derive(Debug, Default)]
pub(crate) struct Acquiring {
    /// A grant that was pushed.
    pub(crate) pushed: Option<Pushed>,
    /// Something happened that a push could have been lost in: poll now.
    pub(crate) poll: bool,
    /// Until when attempts without an answer can still be carried out.
    pub(crate) in_doubt: Option<InDoubt>,
    /// A wait that was given up before this began has not been ended at the server.
    pub(crate) lingers: bool,
}

/// A grant as it came by push.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) grant: Grant,
    /// The server's time when it was sent, ms.
    pub(crate) now: u64,
    pub(crate) received: Moment,
    pub(crate) from: Address,
}

/// A lease.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// Since when the token is known: what was sent before may be answered with the one before it.
    pub(crate) token_since: Moment,
    /// When it ends here: the margin is off already.
    pub(crate) ends: Moment,
    /// What a renewal requests.
    pub(crate) lease: Duration,
    pub(crate) margin: Duration,
    /// When the next renewal is due, if one is.
    pub(crate) renew_at: Option<Moment>,
    pub(crate) renewals: Renewals,
    /// A renewal is on its way.
    pub(crate) renewing: bool,
    /// The last renewal failed.
    pub(crate) failing: bool,
    pub(crate) revoked: bool,
    pub(crate) lost: bool,
    /// It was lost, and the server may have a lease of the same acquisition that is another: a late
    /// duplicate of a call was granted anew.
    pub(crate) replaced: bool,
    /// As in [`Acquiring::in_doubt`].
    pub(crate) in_doubt: Option<InDoubt>,
    /// When it was taken.
    pub(crate) since: Moment,
    /// How many replicas must confirm what makes it longer.
    pub(crate) replicas: u32,
    /// Its holder is giving it back: it is renewed no more, and its end is no loss.
    pub(crate) releasing: bool,
    /// An upgrade is under way.
    pub(crate) upgrade: Option<Box<Acquiring>>,
    /// What the worker has to change about it.
    pub(crate) pending: Option<Box<PendingTransition>>,
}

/// A change of a lease that the worker owes. There is one at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingTransition {
    pub(crate) kind: TransitionKind,
    /// When to send it, again.
    pub(crate) due: Moment,
    /// It is on its way.
    pub(crate) sent: bool,
    /// It may have been carried out.
    pub(crate) tried: bool,
    /// As in [`Releasing`].
    pub(crate) in_doubt: Option<InDoubt>,
    pub(crate) in_doubt_until: Option<u64>,
    /// What it is to end has ended by itself by then, and it need not be tried again. `None` where
    /// the end of the lease ends it.
    pub(crate) give_up: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransitionKind {
    /// An upgrade was given up: end its wait. If it has been granted meanwhile, a downgrade
    /// follows.
    EndWait,
    /// From write to read.
    Downgrade,
    /// The lease was lost, and another one of its acquisition stands in its place: release that.
    GiveBack,
}

/// The release that the worker owes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Releasing {
    pub(crate) in_doubt: Option<InDoubt>,
    /// Server ms past which an attempt without an answer cannot be carried out any more; a release
    /// answered later is the last.
    pub(crate) in_doubt_until: Option<u64>,
    /// When whatever is left there has ended by itself.
    pub(crate) give_up: Moment,
    /// When to send it, again.
    pub(crate) due: Moment,
    /// It is on its way.
    pub(crate) sent: bool,
    /// How often it has failed.
    pub(crate) failures: u32,
}

impl Acquisition {
    pub(crate) fn new(id: AcquisitionId, count: u64, lock: LockKey, lease: Duration) -> Self {
        let state = Mutex::new(State::Acquiring(Acquiring::default()));
        Acquisition {
            id,
            count,
            lock,
            lease,
            state,
            changed: Notify::new(),
            cancellation: OnceLock::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When what attempts without an answer may have been granted has ended.
    pub(crate) fn doubt_ends(&self, in_doubt: InDoubt) -> Moment {
        in_doubt.until.after(self.lease)
    }

    /// When whatever the server has of a lease has ended by itself, if nothing more is sent for it.
    pub(crate) fn over(&self, holding: &Holding, now: Moment) -> Moment {
        // A renewal without an answer may have made it longer than is known here.
        let ends = holding.ends.max(now.after(holding.lease)).after(holding.margin);
        holding.in_doubt().map_or(ends, |in_doubt| ends.max(self.doubt_ends(in_doubt)))
    }

    /// The request or the upgrade under way, if there is one.
    pub(crate) fn with_acquiring<T>(&self, act: impl FnOnce(&mut Acquiring) -> T) -> Option<T> {
        match &mut *self.state() {
            State::Acquiring(acquiring) => Some(act(acquiring)),
            State::Held(Holding { upgrade: Some(acquiring), .. }) => Some(act(acquiring)),
            _ => None,
        }
    }

    /// The lease, if there is one, whether it is lost or not.
    pub(crate) fn with_holding<T>(&self, act: impl FnOnce(&mut Holding) -> T) -> Option<T> {
        match &mut *self.state() {
            State::Held(holding) => Some(act(holding)),
            _ => None,
        }
    }

    /// A token that is cancelled when the lease ends.
    pub(crate) fn cancellation(&self) -> &CancellationToken {
        self.cancellation.get_or_init(CancellationToken::new)
    }

    /// Tells everyone who listens that the lease has ended.
    pub(crate) fn tell_end(&self) {
        self.changed.notify_waiters();
        if let Some(token) = self.cancellation.get() {
            token.cancel();
        }
    }
}

impl Holding {
    pub(crate) fn is_held(&self, now: Moment) -> bool {
        !self.lost && now < self.ends
    }

    /// Notes its length, if its end was not noted yet.
    pub(crate) fn end(&self, how: &'static str, now: Moment) {
        if !self.lost && !self.releasing {
            telemetry::held(self.mode, how, now.since(self.since));
        }
    }

    /// Whether a renewal should have succeeded by now: whatever the reason, time is running out.
    pub(crate) fn is_overdue(&self, now: Moment) -> bool {
        self.renew_at.is_some_and(|at| at.after(self.lease / 6) < now)
    }

    /// When the worker must look at it next.
    pub(crate) fn next_due(&self) -> Moment {
        let renewal = self.renew_at.filter(|_| !self.renewing);
        let pending = self.pending.as_ref().filter(|pending| !pending.sent);
        renewal.into_iter().chain(pending.map(|pending| pending.due)).fold(self.ends, Moment::min)
    }

    /// Until when any attempt without an answer can still be carried out.
    pub(crate) fn in_doubt(&self) -> Option<InDoubt> {
        let upgrade = self.upgrade.as_ref().and_then(|acquiring| acquiring.in_doubt);
        let pending = self.pending.as_ref().and_then(|pending| pending.in_doubt);
        in_doubt::both(in_doubt::both(self.in_doubt, upgrade), pending)
    }

    /// Whether a lease with this token is this one, as the answer says to a call that was sent at
    /// `sent`.
    ///
    /// A newer token is that of an upgrade which was granted and not heard of yet; if none can have
    /// been, it is another lease. An older one is what the server knew before the upgrade; if it is
    /// still all that it knows, the upgrade is gone.
    pub(crate) fn is_named_by(&self, token: u64, sent: Moment) -> bool {
        match token.cmp(&self.token) {
            Ordering::Equal => true,
            Ordering::Greater => self.may_be_upgraded(),
            Ordering::Less => sent <= self.token_since,
        }
    }

    /// An upgrade is under way, or was given up and may be granted all the same.
    fn may_be_upgraded(&self) -> bool {
        let pending = self.pending.as_ref();
        self.upgrade.is_some()
            || pending.is_some_and(|pending| pending.kind == TransitionKind::EndWait)
    }

    /// Takes note of a later end, which no longest hold allows to be later than its own.
    pub(crate) fn prolong(&mut self, ends: Moment) {
        self.ends = self.ends.max(self.renewals.within_hold(ends));
    }
}

impl PendingTransition {
    pub(crate) fn new(kind: TransitionKind, due: Moment, in_doubt: Option<InDoubt>) -> Box<Self> {
        Box::new(PendingTransition {
            kind,
            due,
            sent: false,
            tried: false,
            in_doubt,
            in_doubt_until: None,
            give_up: None,
        })
    }
}
