//! One acquisition: an id from the first call made for it until the last thing that could come of
//! it is over.
//!
//! Its [`State`] is a pure function of events ([`State::on`]). Here is the shell around it: callers
//! and the worker share it, and listen to it.

mod acquiring;
mod event;
mod holding;
mod pending;
mod releasing;
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
pub(crate) use releasing::HORIZON;
pub(crate) use state::{State, lost};

use crate::protocol::{AcquisitionId, LockKey, Mode};

/// Shared by its caller (a request, then a guard), the registry, and the worker.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) id: AcquisitionId,
    /// The number in the acquisition id, its place in the registry.
    pub(crate) count: u64,
    pub(crate) lock: LockKey,
    state: Mutex<State>,
    /// Told of a push, of a poll that is due, of a change of the lease, and of its end. Many may
    /// listen, so all are told.
    pub(crate) changed: Notify,
    /// Cancelled when the lease ends; made for the first caller that wants it.
    cancellation: OnceLock<CancellationToken>,
    /// Whether it was called back, by the mode of who wants it, whether a message may have been
    /// lost, and whether the lease was. It is remembered in every state.
    marks: AtomicU8,
}

/// In `marks`.
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

    /// Somebody else wants what it holds cached, to read or to write.
    pub(crate) fn recall(&self, mode: Mode) {
        let mark = if mode == Mode::Read { BY_READER } else { BY_WRITER };
        self.marks.fetch_or(mark, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// A recall may have been lost: its cache is to ask the server.
    pub(crate) fn look_for_recalls(&self) {
        self.marks.fetch_or(LOOK, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// The strongest recall that came.
    pub(crate) fn recalled(&self) -> Option<Mode> {
        match self.marks.load(Ordering::Acquire) {
            marks if marks & BY_WRITER != 0 => Some(Mode::Write),
            marks if marks & BY_READER != 0 => Some(Mode::Read),
            _ => None,
        }
    }

    /// What it holds is in use, and not to be called back any more.
    pub(crate) fn uncache(&self) {
        if let State::Held(holding) = &mut *self.state() {
            holding.uncache();
        }
    }

    /// Whether one may have been lost since this was called last.
    pub(crate) fn take_look(&self) -> bool {
        self.marks.fetch_and(!LOOK, Ordering::AcqRel) & LOOK != 0
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing can happen to it any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&*self.state(), State::Ended)
    }

    /// The lease, if there is one, whether it is lost or not.
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

    /// Whether the lease was lost, also if the guard is gone since.
    #[cfg(feature = "blocking")]
    pub(crate) fn was_lost(&self) -> bool {
        self.marks.load(Ordering::Acquire) & LOST != 0
    }

    /// Tells all callers that listen that the lease, or the request, has ended.
    pub(crate) fn tell_end(&self) {
        self.changed.notify_waiters();
        if let Some(token) = self.cancellation.get() {
            token.cancel();
        }
    }
}
