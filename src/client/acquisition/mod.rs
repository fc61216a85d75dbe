//! One acquisition: an id, from its first call until nothing can come of it any more.
//!
//! Its [`State`] is a pure function of events ([`State::on`]). This module is the shell around it,
//! which callers and the worker share and wait on.

mod acquiring;
mod changing;
mod event;
mod holding;
mod pending;
mod releasing;
mod renewing;
#[cfg(all(test, feature = "embedded"))]
pub(crate) mod shift;
mod state;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use acquiring::out_of_time;
pub(crate) use event::{By, Context, Effects, Event, Next, Note, Pushed, Sending};
pub(crate) use holding::{Contact, Holding};
pub(crate) use pending::Transition;
pub(crate) use state::{State, lost};

use crate::protocol::{AcquisitionId, LockKey, Mode};

/// Shared by the caller (a request, then a guard), the registry and the worker.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) id: AcquisitionId,
    /// The number in the id, which is the key in the registry.
    pub(crate) count: u64,
    pub(crate) lock: LockKey,
    state: Mutex<State>,
    /// Notified of a push, of a poll that is due, of a change of the lease, and of its end. There
    /// can be several listeners; all are notified.
    pub(crate) changed: Notify,
    /// Cancelled when the lease ends. Made for the first caller that asks for it.
    cancellation: OnceLock<CancellationToken>,
    /// Whether it was recalled, and by which modes; whether a message may have been lost; and
    /// whether the lease was lost. These are kept in every state.
    marks: AtomicU8,
}

/// Bits of `marks`.
const BY_READER: u8 = 1;
const BY_WRITER: u8 = 2;
const LOOK: u8 = 4;
const LOST: u8 = 8;

impl Acquisition {
    pub(crate) fn new(id: AcquisitionId, count: u64, lock: LockKey, state: State) -> Self {
        Acquisition {
            id,
            count,
            lock,
            state: Mutex::new(state),
            changed: Notify::new(),
            cancellation: OnceLock::new(),
            marks: AtomicU8::new(0),
        }
    }

    /// Another client wants the lock that it has cached, to read or to write.
    pub(crate) fn recall(&self, mode: Mode) {
        let mark = if mode == Mode::Read { BY_READER } else { BY_WRITER };
        self.marks.fetch_or(mark, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// A recall may have been lost, so the cache must ask the server.
    pub(crate) fn look_for_recalls(&self) {
        self.marks.fetch_or(LOOK, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// The strongest recall that arrived.
    pub(crate) fn recalled(&self) -> Option<Mode> {
        match self.marks.load(Ordering::Acquire) {
            marks if marks & BY_WRITER != 0 => Some(Mode::Write),
            marks if marks & BY_READER != 0 => Some(Mode::Read),
            _ => None,
        }
    }

    /// Its lease is in use, and is not recalled any more.
    pub(crate) fn uncache(&self) {
        if let State::Held(holding) = &mut *self.state() {
            holding.uncache();
        }
    }

    /// Whether a recall may have been lost since the last call.
    pub(crate) fn take_look(&self) -> bool {
        self.marks.fetch_and(!LOOK, Ordering::AcqRel) & LOOK != 0
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&*self.state(), State::Ended)
    }

    /// The lease, if there is one, valid or lost.
    pub(crate) fn holding<T>(&self, look: impl FnOnce(&Holding) -> T) -> Option<T> {
        match &*self.state() {
            State::Held(holding) => Some(look(holding)),
            _ => None,
        }
    }

    /// A token that is cancelled when the lease ends.
    pub(crate) fn cancellation(&self) -> &CancellationToken {
        self.cancellation.get_or_init(CancellationToken::new)
    }

    pub(crate) fn note_loss(&self) {
        self.marks.fetch_or(LOST, Ordering::AcqRel);
    }

    /// Whether the lease was lost, even if the guard is gone since.
    #[cfg(feature = "blocking")]
    pub(crate) fn was_lost(&self) -> bool {
        self.marks.load(Ordering::Acquire) & LOST != 0
    }

    /// Notifies all listeners that the lease, or the request, has ended.
    pub(crate) fn tell_end(&self) {
        self.changed.notify_waiters();
        if let Some(token) = self.cancellation.get() {
            token.cancel();
        }
    }
}
