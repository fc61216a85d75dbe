//! A hold: one acquisition from which the lock is granted locally, and its shares.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::client::acquisition::Acquisition;
use crate::client::cache::CachedLock;
use crate::client::cache::gate::Gate;
use crate::clock::LocalInstant;
use crate::protocol::LockMode;

#[derive(Debug)]
pub(crate) struct CachedLease {
    pub(super) gate: Gate,
    pub(super) acquisition: Arc<Acquisition>,
    /// The mode in which it was granted.
    pub(super) mode: LockMode,
    lock: Arc<CachedLock>,
    /// When it was granted.
    pub(super) granted_at: LocalInstant,
    /// Notified when the last guard has left a hold that is no longer to be used.
    pub(super) last_guard_dropped: Notify,
}

impl CachedLease {
    pub(super) fn new(
        entry: Arc<CachedLock>,
        acquisition: Arc<Acquisition>,
        mode: LockMode,
        token: u64,
        since: LocalInstant,
    ) -> CachedLease {
        CachedLease {
            gate: Gate::new(mode, token),
            acquisition,
            mode,
            lock: entry,
            granted_at: since,
            last_guard_dropped: Notify::new(),
        }
    }

    /// A share by the fast path: if the gate is open and nobody waits.
    pub(super) fn enter(
        self: &Arc<CachedLease>,
        mode: LockMode,
        now: LocalInstant,
    ) -> Option<LeaseShare> {
        if self.gate.enter(mode, now) { self.start_share(mode) } else { None }
    }

    /// The share of a guard that has entered by the fast path. Without a token it leaves again and
    /// notifies: a request that found it inside relies on it to admit the next ones.
    pub(super) fn start_share(self: &Arc<CachedLease>, mode: LockMode) -> Option<LeaseShare> {
        match self.gate.begin(mode) {
            Ok(()) => Some(self.share(mode)),
            Err(tells) => {
                if tells {
                    self.last_guard_dropped.notify_one();
                    self.lock.wake();
                }
                None
            }
        }
    }

    /// A share for the head of the local queue.
    pub(super) fn enter_queued(
        self: &Arc<CachedLease>,
        mode: LockMode,
        now: LocalInstant,
    ) -> Option<LeaseShare> {
        // Whoever admits the queue handles what stays in it.
        (self.gate.enter_in_turn(mode, now) && self.gate.begin(mode).is_ok())
            .then(|| self.share(mode))
    }

    /// Whether the current guards admit a request of this mode when they leave, so that the keeper
    /// has nothing to do for it.
    pub(super) fn will_admit(&self, mode: LockMode, now: LocalInstant) -> bool {
        let look = self.gate.look();
        let serves = mode == LockMode::Read || (look.allows_writers() && !self.gate.is_used_up());
        serves && look.is_open() && !look.is_unused() && self.gate.is_fresh(now)
    }

    /// The first share, for the request that the hold was acquired for.
    pub(super) fn admit_first(self: &Arc<CachedLease>, mode: LockMode) -> LeaseShare {
        self.gate.state.admit(mode == LockMode::Write);
        self.share(mode)
    }

    fn share(self: &Arc<CachedLease>, mode: LockMode) -> LeaseShare {
        LeaseShare { hold: self.clone(), mode }
    }
}

/// A local guard's share of a hold. Dropping it leaves the hold.
#[derive(Debug)]
pub(crate) struct LeaseShare {
    hold: Arc<CachedLease>,
    mode: LockMode,
}

impl LeaseShare {
    pub(crate) fn token(&self) -> u64 {
        self.hold.gate.token()
    }

    pub(crate) fn entry(&self) -> &CachedLock {
        &self.hold.lock
    }

    pub(crate) fn acquisition(&self) -> &Arc<Acquisition> {
        &self.hold.acquisition
    }

    /// Turns the write into a read with the same token, in one step.
    pub(crate) fn downgrade(&mut self) {
        if self.mode == LockMode::Write {
            self.mode = LockMode::Read;
            if self.hold.gate.state.downgrade() {
                self.hold.lock.on_last_guard_dropped(&self.hold, LockMode::Write);
            }
        }
    }
}

impl Drop for LeaseShare {
    fn drop(&mut self) {
        let hold = &self.hold;
        if hold.gate.leave(self.mode) {
            hold.lock.on_last_guard_dropped(hold, self.mode);
        }
    }
}
