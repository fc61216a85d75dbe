//! A hold: one acquisition from which the lock is granted locally, and its shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::client::acquisition::Acquisition;
use crate::client::cache::Entry;
use crate::client::cache::word::{Look, Word};
use crate::clock::Moment;
use crate::protocol::{BLOCK, Mode};

#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) word: Word,
    tokens: Tokens,
    /// The end of local grants; 0 once the hold is lost.
    grant_until: AtomicU64,
    pub(super) acquisition: Arc<Acquisition>,
    /// The mode in which it was granted.
    pub(super) mode: Mode,
    entry: Arc<Entry>,
    /// When it was granted.
    pub(super) since: Moment,
    /// Notified when the last guard has left a hold that is no longer to be used.
    pub(super) left: Notify,
}

/// The fencing tokens of a hold. A write owns those from its own up to `last`. Each local phase,
/// that is one writer or one run of readers, has one token.
#[derive(Debug)]
struct Tokens {
    phase: AtomicU64,
    /// Whether somebody has read the token of this phase.
    used: AtomicBool,
    last: AtomicU64,
}

impl Hold {
    pub(super) fn new(
        entry: Arc<Entry>,
        acquisition: Arc<Acquisition>,
        mode: Mode,
        token: u64,
        since: Moment,
    ) -> Hold {
        Hold {
            word: Word::new(mode == Mode::Write),
            tokens: Tokens {
                phase: AtomicU64::new(token),
                used: AtomicBool::new(false),
                last: AtomicU64::new(token),
            },
            grant_until: AtomicU64::new(0),
            acquisition,
            mode,
            entry,
            since,
            left: Notify::new(),
        }
    }

    /// A share by the fast path: if the gate is open and nobody waits.
    pub(super) fn enter(self: &Arc<Hold>, mode: Mode, now: Moment) -> Option<Share> {
        if !self.is_fresh(now) {
            return None;
        }
        let entered = match mode {
            Mode::Read => self.word.read(),
            Mode::Write => !self.is_used_up() && self.word.write(),
        };
        if entered { self.begun(mode) } else { None }
    }

    /// The share of a guard that has entered by the fast path. Without a token it leaves again and
    /// notifies: a request that found it inside relies on it to admit the next ones.
    pub(super) fn begun(self: &Arc<Hold>, mode: Mode) -> Option<Share> {
        match self.begin(mode) {
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
        if !self.is_fresh(now) {
            return None;
        }
        let entered = match mode {
            Mode::Read => self.word.read_in_turn(),
            Mode::Write => self.word.write_in_turn(),
        };
        // Whoever admits the queue handles what stays in it.
        (entered && self.begin(mode).is_ok()).then(|| self.share(mode))
    }

    /// Whether the current guards admit a request of this mode when they leave, so that the keeper
    /// has nothing to do for it.
    pub(super) fn goes_on_to_serve(&self, mode: Mode, now: Moment) -> bool {
        let look = self.look();
        let serves = mode == Mode::Read || (look.may_write() && !self.is_used_up());
        serves && look.is_open() && !look.is_unused() && self.is_fresh(now)
    }

    /// The first share, for the request that the hold was acquired for.
    pub(super) fn admit(self: &Arc<Hold>, mode: Mode) -> Share {
        self.word.admit(mode == Mode::Write);
        self.share(mode)
    }

    fn share(self: &Arc<Hold>, mode: Mode) -> Share {
        Share { hold: self.clone(), mode }
    }

    // Tokens.

    /// A guard begins. A token that readers have read is not reused for the next writer. Without a
    /// token the guard leaves again: its request waits in the queue, and the keeper gets more
    /// tokens. The error says whether leaving must be notified.
    fn begin(&self, mode: Mode) -> Result<(), bool> {
        match mode {
            Mode::Read if self.has_token_to_read() => Ok(()),
            // The gate opened just after a writer had used the last token.
            Mode::Read => Err(self.word.leave_read()),
            Mode::Write if self.is_used_up() => Err(self.word.leave_write(false)),
            Mode::Write => {
                self.end_phase();
                Ok(())
            }
        }
    }

    fn end_phase(&self) {
        if self.tokens.used.swap(false, Ordering::AcqRel) {
            self.tokens.phase.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The next token: the greatest that somebody may have, or one more if that was read.
    fn next_token(&self) -> u64 {
        // In this order: while a phase ends, the result is one too low, never one too high.
        let phase = self.tokens.phase.load(Ordering::Acquire);
        phase.saturating_add(self.tokens.used.load(Ordering::Acquire).into())
    }

    /// The greatest token that somebody may have.
    pub(super) fn last_token(&self) -> u64 {
        self.tokens.phase.load(Ordering::Acquire)
    }

    /// The last token that the hold owns.
    pub(super) fn end_of_block(&self) -> u64 {
        self.tokens.last.load(Ordering::Acquire)
    }

    /// Whether no token is left for another phase.
    pub(super) fn is_used_up(&self) -> bool {
        self.next_token() > self.tokens.last.load(Ordering::Acquire)
    }

    /// Whether the hold owns the phase's token. Readers share that token, and take no other. The
    /// last writer of a block leaves none.
    pub(super) fn has_token_to_read(&self) -> bool {
        self.last_token() <= self.end_of_block()
    }

    /// Whether it is time to get more tokens.
    pub(super) fn is_short_of_tokens(&self) -> bool {
        let first = self.tokens.last.load(Ordering::Acquire).saturating_sub(BLOCK / 2);
        self.word.look().may_write() && self.next_token() > first
    }

    /// The server reports the last token of the lock. False if a later one was given out here: then
    /// this history of the lock does not include it.
    pub(super) fn owns_up_to(&self, fence: u64) -> bool {
        self.tokens.last.fetch_max(fence, Ordering::AcqRel);
        fence.saturating_add(1) >= self.next_token()
    }

    /// Makes this phase use the last token.
    #[cfg(all(test, feature = "embedded"))]
    pub(super) fn use_up_tokens(&self) {
        self.tokens.used.store(true, Ordering::Release);
        self.tokens.phase.store(self.end_of_block(), Ordering::Release);
    }

    // Time.

    pub(super) fn grant_until(&self) -> Moment {
        Moment::from_nanos(self.grant_until.load(Ordering::Acquire))
    }

    /// Whether the server has recently confirmed the lease.
    fn is_fresh(&self, now: Moment) -> bool {
        now < self.grant_until()
    }

    pub(super) fn set_grant_until(&self, until: Moment) {
        self.grant_until.store(until.as_nanos(), Ordering::Release);
    }

    /// Loses the hold: no guard holds the lock by it any more.
    pub(super) fn lose(&self) {
        self.grant_until.store(0, Ordering::Release);
        self.word.close();
    }

    pub(super) fn look(&self) -> Look {
        self.word.look()
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
        self.hold.tokens.used.store(true, Ordering::Release);
        self.hold.tokens.phase.load(Ordering::Acquire)
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
            if self.hold.word.downgrade() {
                self.hold.entry.left(&self.hold, Mode::Write);
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let hold = &self.hold;
        let tells = match self.mode {
            Mode::Read => hold.word.leave_read(),
            Mode::Write => {
                hold.end_phase();
                hold.word.leave_write(hold.is_used_up())
            }
        };
        if tells {
            hold.entry.left(hold, self.mode);
        }
    }
}
