//! One acquisition: an owner id from the first call made for it until the last thing that could come of it is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Moment;
use crate::core::lease::Renewals;
use crate::node::Address;
use crate::protocol::{Grant, LockKey, Mode, OwnerId};

/// Shared by the one who asked (a request, then a guard), the registry, and the worker.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) owner: OwnerId,
    /// The number in the owner id, its place in the registry.
    pub(crate) count: u64,
    pub(crate) lock: LockKey,
    state: Mutex<State>,
    /// Told of a push, of a look that is due, and of a loss.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
pub(crate) enum State {
    Asking(Asking),
    Held(Holding),
    /// Given up here, and not yet known to be gone from the server.
    Leaving(Leaving),
    /// Over.
    Ended,
}

/// Calls are being made, or a place in the queue is held.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// A grant that was pushed.
    pub(crate) pushed: Option<Pushed>,
    /// Something happened that a push could have been lost in: look now.
    pub(crate) look: bool,
    /// The latest moment until which an attempt without an answer can still be carried out.
    pub(crate) loose: Option<Moment>,
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
    /// When it ends here: the margin is off already.
    pub(crate) ends: Moment,
    /// What a renewal asks for.
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
    /// As in [`Asking::loose`].
    pub(crate) loose: Option<Moment>,
    /// When it was taken.
    pub(crate) since: Moment,
}

/// The release that the worker owes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    pub(crate) loose: Option<Moment>,
    /// Server ms past which an attempt without an answer cannot be carried out any more; a release answered later is the last.
    pub(crate) ghost_until: Option<u64>,
    /// When whatever is left there has ended by itself.
    pub(crate) give_up: Moment,
    /// When to send it, again.
    pub(crate) due: Moment,
}

impl Acquisition {
    pub(crate) fn new(owner: OwnerId, count: u64, lock: LockKey) -> Self {
        let state = Mutex::new(State::Asking(Asking::default()));
        Acquisition {
            owner,
            count,
            lock,
            state,
            changed: Notify::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding {
    pub(crate) fn is_held(&self, now: Moment) -> bool {
        !self.lost && now < self.ends
    }
}
