//! The gate of a hold: who may enter, which token they get, and until when. All threads that use a
//! cached lock share it without a mutex; `cache::interleavings` searches their interleavings.

use crate::client::cache::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::client::cache::atomic_gate::{AtomicGate, GateSnapshot};
use crate::clock::LocalInstant;
use crate::protocol::{LockMode, TOKEN_BLOCK};

#[derive(Debug)]
pub(super) struct Gate {
    pub(super) state: AtomicGate,
    tokens: Tokens,
    /// The end of local grants; 0 once the hold is lost.
    grant_until: AtomicU64,
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

impl Gate {
    /// The gate of a hold that was granted in this mode with this token. It is closed at first.
    pub(super) fn new(mode: LockMode, token: u64) -> Gate {
        Gate {
            state: AtomicGate::new(mode == LockMode::Write),
            tokens: Tokens {
                phase: AtomicU64::new(token),
                used: AtomicBool::new(false),
                last: AtomicU64::new(token),
            },
            grant_until: AtomicU64::new(0),
        }
    }

    /// Enters by the fast path: if the gate is open and nobody waits.
    pub(super) fn enter(&self, mode: LockMode, now: LocalInstant) -> bool {
        self.is_fresh(now)
            && match mode {
                LockMode::Read => self.state.try_enter_reader(),
                LockMode::Write => !self.is_used_up() && self.state.try_enter_writer(),
            }
    }

    /// Enters for the head of the local queue.
    pub(super) fn enter_in_turn(&self, mode: LockMode, now: LocalInstant) -> bool {
        self.is_fresh(now)
            && match mode {
                LockMode::Read => self.state.enter_queued_reader(),
                LockMode::Write => self.state.enter_queued_writer(),
            }
    }

    /// A guard leaves. True if it must notify.
    pub(super) fn leave(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Read => self.state.leave_read(),
            LockMode::Write => {
                self.end_phase();
                self.state.leave_write(self.is_used_up())
            }
        }
    }

    // Tokens.

    /// The token of this phase. It is not given to a later phase any more.
    pub(super) fn token(&self) -> u64 {
        self.tokens.used.store(true, Ordering::Release);
        self.tokens.phase.load(Ordering::Acquire)
    }

    /// A guard begins. A token that readers have read is not reused for the next writer. Without a
    /// token the guard leaves again: its request waits in the queue, and the keeper gets more
    /// tokens. The error says whether leaving must be notified.
    pub(super) fn begin(&self, mode: LockMode) -> Result<(), bool> {
        match mode {
            LockMode::Read if self.has_token_to_read() => Ok(()),
            // The gate opened just after a writer had used the last token.
            LockMode::Read => Err(self.state.leave_read()),
            LockMode::Write if self.is_used_up() => Err(self.state.leave_write(false)),
            LockMode::Write => {
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
        let first = self.tokens.last.load(Ordering::Acquire).saturating_sub(TOKEN_BLOCK / 2);
        self.state.load().allows_writers() && self.next_token() > first
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

    pub(super) fn grant_until(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.grant_until.load(Ordering::Acquire))
    }

    /// Whether the server has recently confirmed the lease.
    pub(super) fn is_fresh(&self, now: LocalInstant) -> bool {
        now < self.grant_until()
    }

    pub(super) fn set_grant_until(&self, until: LocalInstant) {
        self.grant_until.store(until.as_nanos(), Ordering::Release);
    }

    /// Loses the hold: no guard holds the lock by it any more.
    pub(super) fn lose(&self) {
        self.grant_until.store(0, Ordering::Release);
        self.state.close();
    }

    pub(super) fn look(&self) -> GateSnapshot {
        self.state.load()
    }
}
