//! One acquisition, as callers and the worker share it and wait on it: the shell around an
//! [`AcquisitionState`], which is a pure function of events.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use rwlease_core::acquisition::{AcquisitionState, HeldLease};
use rwlease_core::protocol::{AcquisitionId, LockKey, LockMode};
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::locks::lock;
use crate::router::SendGate;

/// Shared by the caller (a request, then a guard), the registry and the worker.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) id: AcquisitionId,
    /// The number in the id, which is the key in the registry.
    pub(crate) number: u64,
    pub(crate) lock: LockKey,
    state: Mutex<AcquisitionState>,
    /// Notified of a push, of a poll that is due, of a change of the lease, and of its end. There
    /// can be several listeners; all are notified.
    pub(crate) changed: Notify,
    /// Cancelled when the lease ends. Created for the first caller that needs it.
    cancellation: OnceLock<CancellationToken>,
    /// Whether it was recalled, and by which modes; whether a message may have been lost; and
    /// whether the lease was lost. These are kept in every state.
    flags: AtomicU8,
    /// The fencing token of the last grant, which a guard has also after the lease. Zero before the
    /// first grant, and for a lock without tokens.
    fencing_token: AtomicU64,
    /// Whether any call of it was sent.
    pub(crate) send_gate: SendGate,
}

/// Bits of `marks`.
const RECALLED_BY_READER: u8 = 1;
const RECALLED_BY_WRITER: u8 = 2;
const RECALL_RESYNC: u8 = 4;
const LOST: u8 = 8;

impl Acquisition {
    pub(crate) fn new(
        id: AcquisitionId,
        count: u64,
        lock: LockKey,
        state: AcquisitionState,
    ) -> Self {
        Acquisition {
            id,
            number: count,
            lock,
            state: Mutex::new(state),
            changed: Notify::new(),
            cancellation: OnceLock::new(),
            flags: AtomicU8::new(0),
            fencing_token: AtomicU64::new(0),
            send_gate: SendGate::default(),
        }
    }

    /// Another client wants the lock that it has cached, to read or to write.
    pub(crate) fn recall(&self, mode: LockMode) {
        let mark = if mode == LockMode::Read { RECALLED_BY_READER } else { RECALLED_BY_WRITER };
        self.flags.fetch_or(mark, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// A recall may have been lost, so the cache must ask the server.
    pub(crate) fn request_resync(&self) {
        self.flags.fetch_or(RECALL_RESYNC, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// The strongest recall that arrived.
    pub(crate) fn recall_mode(&self) -> Option<LockMode> {
        match self.flags.load(Ordering::Acquire) {
            marks if marks & RECALLED_BY_WRITER != 0 => Some(LockMode::Write),
            marks if marks & RECALLED_BY_READER != 0 => Some(LockMode::Read),
            _ => None,
        }
    }

    /// The lease is in use and is not recalled.
    pub(crate) fn uncache(&self) {
        if let AcquisitionState::Held(held_lease) = &mut *self.state() {
            held_lease.stop_caching();
        }
    }

    /// Whether a recall may have been lost since the last call.
    pub(crate) fn take_resync(&self) -> bool {
        self.flags.fetch_and(!RECALL_RESYNC, Ordering::AcqRel) & RECALL_RESYNC != 0
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, AcquisitionState> {
        lock(&self.state)
    }

    /// Whether it is a request that the server does not answer.
    pub(crate) fn is_server_silent(&self, now: LocalInstant) -> bool {
        self.state().is_server_silent(now)
    }

    /// Whether it has ended for good.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(&*self.state(), AcquisitionState::Ended)
    }

    /// The lease, if there is one, valid or lost.
    pub(crate) fn with_lease<T>(&self, read: impl FnOnce(&HeldLease) -> T) -> Option<T> {
        match &*self.state() {
            AcquisitionState::Held(held_lease) => Some(read(held_lease)),
            _ => None,
        }
    }

    /// Remembers the token of a grant. Call it while the state is locked.
    pub(crate) fn set_fencing_token(&self, token: u64) {
        self.fencing_token.store(token, Ordering::Relaxed);
    }

    /// The fencing token of the last grant.
    pub(crate) fn fencing_token(&self) -> u64 {
        self.fencing_token.load(Ordering::Relaxed)
    }

    /// A token that is cancelled when the lease ends.
    pub(crate) fn cancellation_token(&self) -> &CancellationToken {
        self.cancellation.get_or_init(CancellationToken::new)
    }

    /// Remembers the loss. Call it while the state is locked.
    pub(crate) fn mark_lost(&self) {
        self.flags.fetch_or(LOST, Ordering::AcqRel);
    }

    /// Whether the lease was lost, even if the guard is gone since.
    pub(crate) fn was_lost(&self) -> bool {
        self.flags.load(Ordering::Acquire) & LOST != 0
    }

    /// Notifies all listeners that the lease, or the request, has ended.
    pub(crate) fn notify_end(&self) {
        self.changed.notify_waiters();
        if let Some(token) = self.cancellation.get() {
            token.cancel();
        }
    }
}
