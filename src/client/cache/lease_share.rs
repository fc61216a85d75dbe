//! The share of a cached lease that one local guard has.

use std::sync::Arc;

use rwlease_core::protocol::LockMode;

use crate::client::acquisition::Acquisition;
use crate::client::cache::cached_lease::CachedLease;
use crate::client::cache::cached_lock::CachedLock;

/// A local guard's share of a lease. Dropping it leaves the lease.
pub(crate) struct LeaseShare {
    lease: Arc<CachedLease>,
    mode: LockMode,
}

impl LeaseShare {
    pub(super) fn new(lease: Arc<CachedLease>, mode: LockMode) -> LeaseShare {
        LeaseShare { lease, mode }
    }

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
