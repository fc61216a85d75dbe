use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::fencing_token::FencingToken;
use crate::lock::lease::Lease;

/// A view of the lease of a [`CachedReadGuard`](crate::guard::CachedReadGuard) or
/// [`CachedWriteGuard`](crate::guard::CachedWriteGuard).
///
/// It ends with the guard, and does not keep the lock.
#[derive(Clone, Debug)]
pub struct LeaseWatcher {
    token: FencingToken,
    lease: Option<Lease>,
    over: CancellationToken,
}

impl LeaseWatcher {
    pub(super) fn new(
        token: FencingToken,
        lease: Option<Lease>,
        over: CancellationToken,
    ) -> LeaseWatcher {
        LeaseWatcher { token, lease, over }
    }

    /// Returns the guard's fencing token.
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// Returns whether the guard exists and its lease is valid, computed now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the time left of the lease, less the margin, computed now. Zero if it is lost or the
    /// guard is gone.
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
                () = lease.ended() => {}
            }
        }
    }

    /// Completes when the lease is at risk, or has ended, or the guard is gone. See
    /// [`Lease::at_risk`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn at_risk(&self) {
        if let Some(lease) = &self.lease {
            tokio::select! {
                () = self.over.cancelled() => {}
                () = lease.at_risk() => {}
            }
        }
    }

    /// Returns a token that is cancelled when the lease is lost or the guard is gone.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.over.child_token()
    }
}
