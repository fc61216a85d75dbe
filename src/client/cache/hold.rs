//! A hold: one acquisition from which the lock is granted locally, and its shares.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::client::acquisition::Acquisition;
use crate::client::cache::Entry;
use crate::client::cache::gate::Gate;
use crate::clock::Moment;
use crate::protocol::Mode;

#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) gate: Gate,
    pub(super) acquisition: Arc<Acquisition>,
    /// The mode in which it was granted.
    pub(super) mode: Mode,
    entry: Arc<Entry>,
    /// When it was granted.
    pub(super) since: Moment,
    /// Notified when the last guard has left a hold that is no longer to be used.
    pub(super) left: Notify,
}

impl Hold {
    pub(super) fn new(
        entry: Arc<Entry>,
        acquisition: Arc<Acquisition>,
        mode: Mode,
        token: u64,
        since: Moment,
    ) -> Hold {
        Hold { gate: Gate::new(mode, token), acquisition, mode, entry, since, left: Notify::new() }
    }

    /// A share by the fast path: if the gate is open and nobody waits.
    pub(super) fn enter(self: &Arc<Hold>, mode: Mode, now: Moment) -> Option<Share> {
        if self.gate.enter(mode, now) { self.begun(mode) } else { None }
    }

    /// The share of a guard that has entered by the fast path. Without a token it leaves again and
    /// notifies: a request that found it inside relies on it to admit the next ones.
    pub(super) fn begun(self: &Arc<Hold>, mode: Mode) -> Option<Share> {
        match self.gate.begin(mode) {
            Ok(()) => Some(self.share(mode)),
            Err(tells) => {
                if tells {
                    self.left.notify_one();
                    self.entry.wake();
                }
                None
            }
        }
    }

    /// A share for the head of the local queue.
    pub(super) fn enter_in_turn(self: &Arc<Hold>, mode: Mode, now: Moment) -> Option<Share> {
        // Whoever admits the queue handles what stays in it.
        (self.gate.enter_in_turn(mode, now) && self.gate.begin(mode).is_ok())
            .then(|| self.share(mode))
    }

    /// Whether the current guards admit a request of this mode when they leave, so that the keeper
    /// has nothing to do for it.
    pub(super) fn goes_on_to_serve(&self, mode: Mode, now: Moment) -> bool {
        let look = self.gate.look();
        let serves = mode == Mode::Read || (look.may_write() && !self.gate.is_used_up());
        serves && look.is_open() && !look.is_unused() && self.gate.is_fresh(now)
    }

    /// The first share, for the request that the hold was acquired for.
    pub(super) fn admit(self: &Arc<Hold>, mode: Mode) -> Share {
        self.gate.word.admit(mode == Mode::Write);
        self.share(mode)
    }

    fn share(self: &Arc<Hold>, mode: Mode) -> Share {
        Share { hold: self.clone(), mode }
    }
}

/// A local guard's share of a hold. Dropping it leaves the hold.
#[derive(Debug)]
pub(crate) struct Share {
    hold: Arc<Hold>,
    mode: Mode,
}

impl Share {
    pub(crate) fn token(&self) -> u64 {
        self.hold.gate.token()
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.hold.entry
    }

    pub(crate) fn acquisition(&self) -> &Arc<Acquisition> {
        &self.hold.acquisition
    }

    /// Turns the write into a read with the same token, in one step.
    pub(crate) fn downgrade(&mut self) {
        if self.mode == Mode::Write {
            self.mode = Mode::Read;
            if self.hold.gate.word.downgrade() {
                self.hold.entry.left(&self.hold, Mode::Write);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let hold = &self.hold;
        if hold.gate.leave(self.mode) {
            hold.entry.left(hold, self.mode);
        }
    }
}
