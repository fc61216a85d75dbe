//! The gate of a cached lease: which guards it admits, their tokens, and until when. All threads
//! that use a cached lock share it without a mutex; `cache::interleavings` searches their
//! interleavings.

use rwlease_core::protocol::{LockMode, TOKEN_BLOCK};
use rwlease_core::time::LocalInstant;

use crate::client::cache::atomic_gate::{
    AtomicBool, AtomicGate, AtomicU64, GateSnapshot, Ordering,
};

#[derive(Debug)]
pub(super) struct Gate {
    pub(super) state: AtomicGate,
    tokens: TokenBlock,
    /// The end of local grants, or 0 once the lease is lost.
    local_grant_deadline: AtomicU64,
}

/// The fencing tokens of a lease. A write owns those from its own up to `last`. Each local phase,
/// that is one writer or one run of readers, has one token.
#[derive(Debug)]
struct TokenBlock {
    phase_token: AtomicU64,
    /// Whether a reader has read the token of this phase.
    was_read: AtomicBool,
    last_owned: AtomicU64,
}

impl Gate {
    /// The gate of a lease that was granted in this mode with this token. It is closed at first.
    pub(super) fn new(mode: LockMode, token: u64) -> Gate {
        Gate {
            state: AtomicGate::new(mode == LockMode::Write),
            tokens: TokenBlock {
                phase_token: AtomicU64::new(token),
                was_read: AtomicBool::new(false),
                last_owned: AtomicU64::new(token),
            },
            local_grant_deadline: AtomicU64::new(0),
        }
    }

    /// Enters by the fast path, if the gate is open and no local request waits.
    pub(super) fn enter(&self, mode: LockMode, now: LocalInstant) -> bool {
        self.can_grant_at(now)
            && match mode {
                LockMode::Read => self.state.try_enter_reader(),
                LockMode::Write => !self.is_exhausted() && self.state.try_enter_writer(),
            }
    }

    pub(super) fn enter_queued(&self, mode: LockMode, now: LocalInstant) -> bool {
        self.can_grant_at(now)
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
                self.state.leave_write(self.is_exhausted())
            }
        }
    }

    // Tokens.

    /// The token of this phase. A later phase does not get the token.
    pub(super) fn token(&self) -> u64 {
        self.tokens.was_read.store(true, Ordering::Release);
        self.tokens.phase_token.load(Ordering::Acquire)
    }

    /// Starts a guard's phase. A token that readers have read is not reused for the next writer.
    /// Without a token the guard leaves again: its request waits in the queue, and the task gets
    /// more tokens. The error says whether leaving must be notified.
    pub(super) fn start_phase(&self, mode: LockMode) -> Result<(), bool> {
        match mode {
            LockMode::Read if self.has_reader_token() => Ok(()),
            // The gate opened just after a writer had used the last token.
            LockMode::Read => Err(self.state.leave_read()),
            LockMode::Write if self.is_exhausted() => Err(self.state.leave_write(false)),
            LockMode::Write => {
                self.end_phase();
                Ok(())
            }
        }
    }

    fn end_phase(&self) {
        if self.tokens.was_read.swap(false, Ordering::AcqRel) {
            self.tokens.phase_token.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The next token: the greatest that a guard may have, or one more if a guard has read that
    /// one.
    fn next_token(&self) -> u64 {
        // In this order: while a phase ends, the result is one too low, never one too high.
        let phase = self.tokens.phase_token.load(Ordering::Acquire);
        phase.saturating_add(self.tokens.was_read.load(Ordering::Acquire).into())
    }

    /// Returns the greatest token that a guard may have.
    pub(super) fn last_token(&self) -> u64 {
        self.tokens.phase_token.load(Ordering::Acquire)
    }

    pub(super) fn last_owned_token(&self) -> u64 {
        self.tokens.last_owned.load(Ordering::Acquire)
    }

    /// Whether no token is left for the next phase.
    pub(super) fn is_exhausted(&self) -> bool {
        self.next_token() > self.tokens.last_owned.load(Ordering::Acquire)
    }

    /// Whether the lease owns the phase's token. Readers share that token, and take no other. The
    /// last writer of a block leaves none.
    pub(super) fn has_reader_token(&self) -> bool {
        self.last_token() <= self.last_owned_token()
    }

    /// Whether it is time to get more tokens.
    pub(super) fn needs_tokens(&self) -> bool {
        let first = self.tokens.last_owned.load(Ordering::Acquire).saturating_sub(TOKEN_BLOCK / 2);
        self.state.load().allows_writers() && self.next_token() > first
    }

    /// Records the last token of the lock that the server reports. Returns false if this client has
    /// granted a later token: the server has lost that part of the lock's history.
    pub(super) fn is_consistent_with(&self, last_token: u64) -> bool {
        self.tokens.last_owned.fetch_max(last_token, Ordering::AcqRel);
        last_token.saturating_add(1) >= self.next_token()
    }

    /// Makes this phase use the last token.
    #[cfg(all(test, feature = "embedded"))]
    pub(super) fn exhaust_tokens(&self) {
        self.tokens.was_read.store(true, Ordering::Release);
        self.tokens.phase_token.store(self.last_owned_token(), Ordering::Release);
    }

    // Time.

    pub(super) fn local_grant_deadline(&self) -> LocalInstant {
        LocalInstant::from_nanos(self.local_grant_deadline.load(Ordering::Acquire))
    }

    /// Whether the server has recently confirmed the lease.
    pub(super) fn can_grant_at(&self, now: LocalInstant) -> bool {
        now < self.local_grant_deadline()
    }

    pub(super) fn set_local_grant_deadline(&self, until: LocalInstant) {
        self.local_grant_deadline.store(until.as_nanos(), Ordering::Release);
    }

    /// Marks the lease as lost. No guard holds the lock after that.
    pub(super) fn mark_lost(&self) {
        self.local_grant_deadline.store(0, Ordering::Release);
        self.state.close();
    }

    pub(super) fn snapshot(&self) -> GateSnapshot {
        self.state.load()
    }
}
