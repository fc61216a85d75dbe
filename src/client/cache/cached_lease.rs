//! One lease from which the lock is granted locally, and the shares of it that guards have.

use std::sync::Arc;

use rwlease_core::protocol::LockMode;
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;

use crate::client::acquisition::Acquisition;
use crate::client::cache::cached_lock::CachedLock;
use crate::client::cache::gate::Gate;

pub(crate) struct CachedLease {
    pub(super) gate: Gate,
    pub(super) acquisition: Arc<Acquisition>,
    /// The mode in which it was granted.
    pub(super) mode: LockMode,
    pub(super) lock: Arc<CachedLock>,
    /// When it was granted.
    pub(super) granted_at: LocalInstant,
    /// Notified when the last guard has left a lease that is no longer to be used.
    pub(super) last_guard_dropped: Notify,
}

impl CachedLease {
    pub(super) fn new(
        cached_lock: Arc<CachedLock>,
        acquisition: Arc<Acquisition>,
        mode: LockMode,
        token: u64,
        since: LocalInstant,
    ) -> CachedLease {
        CachedLease {
            gate: Gate::new(mode, token),
            acquisition,
            mode,
            lock: cached_lock,
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
        match self.gate.start_phase(mode) {
            Ok(()) => Some(self.share(mode)),
            Err(must_notify) => {
                if must_notify {
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
        (self.gate.enter_queued(mode, now) && self.gate.start_phase(mode).is_ok())
            .then(|| self.share(mode))
    }

    /// Whether the current guards admit a request of this mode when they leave, so that the task
    /// has nothing to do for it.
    pub(super) fn will_admit(&self, mode: LockMode, now: LocalInstant) -> bool {
        let snapshot = self.gate.snapshot();
        let serves =
            mode == LockMode::Read || (snapshot.allows_writers() && !self.gate.is_exhausted());
        serves && snapshot.is_open() && !snapshot.is_unused() && self.gate.can_grant_at(now)
    }

    /// The first share, for the request that the lease was acquired for.
    pub(super) fn admit_first(self: &Arc<CachedLease>, mode: LockMode) -> LeaseShare {
        self.gate.state.admit(mode == LockMode::Write);
        self.share(mode)
    }

    fn share(self: &Arc<CachedLease>, mode: LockMode) -> LeaseShare {
        LeaseShare { lease: self.clone(), mode }
    }
}

/// A local guard's share of a lease. Dropping it leaves the lease.
pub(crate) struct LeaseShare {
    lease: Arc<CachedLease>,
    mode: LockMode,
}

impl LeaseShare {
    pub(crate) fn fencing_token(&self) -> u64 {
        self.lease.gate.token()
    }

    pub(crate) fn cached_lock(&self) -> &CachedLock {
        &self.lease.lock
    }

    pub(crate) fn acquisition(&self) -> &Arc<Acquisition> {
        &self.lease.acquisition
    }

    /// Turns the write into a read with the same token, in one step.
    pub(crate) fn downgrade(&mut self) {
        if self.mode == LockMode::Write {
            self.mode = LockMode::Read;
            if self.lease.gate.state.downgrade() {
                self.lease.lock.on_last_guard_dropped(&self.lease, LockMode::Write);
            }
        }
    }
}

impl Drop for LeaseShare {
    fn drop(&mut self) {
        let lease = &self.lease;
        if lease.gate.leave(self.mode) {
            lease.lock.on_last_guard_dropped(lease, self.mode);
        }
    }
}
