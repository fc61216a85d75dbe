//! A view of a guard's lease for other code.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::lock::lease::Lease;

/// A view of the lease of a [`CachedReadGuard`](crate::CachedReadGuard) or
/// [`CachedWriteGuard`](crate::CachedWriteGuard). It ends with the guard, and does not keep the
/// lock.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    token: u64,
    lease: Option<Lease>,
    over: CancellationToken,
}

impl LeaseWatch {
    pub(super) fn new(token: u64, lease: Option<Lease>, over: CancellationToken) -> LeaseWatch {
        LeaseWatch { token, lease, over }
    }

    /// The guard's fencing token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the guard exists and its lease is valid, computed now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// The time left of the lease, less the margin, computed now. Zero if it is lost or the guard
    /// is gone.
    pub fn remaining(&self) -> Duration {
        match &self.lease {
            Some(lease) if !self.over.is_cancelled() => lease.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Completes when the lease is lost or the guard is gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn ended(&self) {
        if let Some(lease) = &self.lease {
            tokio::select! {
                () = self.over.cancelled() => {}
                () = lease.lost() => {}
            }
        }
    }

    /// A token that is cancelled when the lease is lost or the guard is gone.
    pub fn cancellation(&self) -> CancellationToken {
        self.over.child_token()
    }
}
