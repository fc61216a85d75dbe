use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rwlease_core::acquisition::{AcquisitionEvent, HeldLease};
use rwlease_core::protocol::LockMode;
use tokio_util::sync::CancellationToken;

use crate::client::cache::{CachedGrant, CachedLock, LeaseShare};
use crate::error::Result;
use crate::fencing_token::FencingToken;
use crate::lock::cached::lease_watcher::LeaseWatcher;
use crate::lock::guard::{Hold, ReleaseOutcome};
use crate::lock::lease::{Lease, LeaseState};

/// The contents of a guard: a share of the cached lease, or a lease of its own.
pub struct CachedGuardInner {
    /// Cancelled when the guard ends. Made for the first watch.
    over: OnceLock<CancellationToken>,
    by: CachedGuardGrant,
}

enum CachedGuardGrant {
    Share(LeaseShare),
    Lease(Hold, Arc<CachedLock>),
    /// It was released.
    Nothing,
}

// Without the token: reading it would consume it.
debug_fields!(|guard| CachedGuardInner { name: guard.name(), state: guard.state(), .. });

impl CachedGuardInner {
    pub(super) fn new(entry: &Arc<CachedLock>, granted: CachedGrant) -> CachedGuardInner {
        let by = match granted {
            CachedGrant::Shared(share) => CachedGuardGrant::Share(share),
            CachedGrant::Uncached(acquisition) => {
                let lease = Lease::new(entry.client().clone(), acquisition);
                CachedGuardGrant::Lease(Hold(lease), entry.clone())
            }
        };
        CachedGuardInner { over: OnceLock::new(), by }
    }

    fn name(&self) -> &str {
        match &self.by {
            CachedGuardGrant::Share(share) => &share.cached_lock().lock.name,
            CachedGuardGrant::Lease(_, entry) => &entry.lock.name,
            CachedGuardGrant::Nothing => "",
        }
    }

    fn fencing_token(&self) -> FencingToken {
        FencingToken::of_grant(match &self.by {
            CachedGuardGrant::Share(share) => share.fencing_token(),
            CachedGuardGrant::Lease(hold, _) => hold.0.acquisition.fencing_token(),
            CachedGuardGrant::Nothing => 0, // the release has consumed the guard
        })
    }

    fn remaining(&self) -> Duration {
        match &self.by {
            CachedGuardGrant::Share(share) => {
                let clock = &share.cached_lock().client().clock;
                let left = |held: &HeldLease| match held.is_lost() || held.is_releasing() {
                    true => Duration::ZERO,
                    false => held.deadline.saturating_duration_since(clock.now()),
                };
                share.acquisition().with_lease(left).unwrap_or_default()
            }
            CachedGuardGrant::Lease(hold, _) => hold.0.remaining(),
            CachedGuardGrant::Nothing => Duration::ZERO,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    fn state(&self) -> LeaseState {
        match self.lease() {
            Some(lease) if self.is_held() => lease.state(),
            _ => LeaseState::Lost,
        }
    }

    /// The lease behind the guard. Do not return it to users: it outlives the guard.
    fn lease(&self) -> Option<Lease> {
        match &self.by {
            CachedGuardGrant::Share(share) => {
                let client = share.cached_lock().client().clone();
                Some(Lease::new(client, share.acquisition().clone()))
            }
            CachedGuardGrant::Lease(hold, _) => Some(hold.0.clone()),
            CachedGuardGrant::Nothing => None,
        }
    }

    /// Cancelled when the lease is lost or the guard ends.
    fn cancellation_token(&self) -> CancellationToken {
        let token = self.over.get_or_init(|| match self.lease() {
            Some(lease) => lease.cancellation_token(),
            None => CancellationToken::new(),
        });
        if !self.is_held() {
            token.cancel();
        }
        token.child_token()
    }

    /// Completes when the lease is lost.
    pub(super) async fn ended(&self) {
        if let Some(lease) = self.lease() {
            lease.ended().await;
        }
    }

    pub(super) async fn release(mut self) -> Result<ReleaseOutcome> {
        let was_held = self.is_held();
        self.end_watches();
        match std::mem::replace(&mut self.by, CachedGuardGrant::Nothing) {
            CachedGuardGrant::Lease(hold, entry) => {
                entry.record_uncached_release();
                hold.release().await
            }
            _ if was_held => Ok(ReleaseOutcome::Released),
            _ => Ok(ReleaseOutcome::AlreadyLost),
        }
    }

    /// Runs before another client can hold the lock.
    fn end_watches(&self) {
        if let Some(over) = self.over.get() {
            over.cancel();
        }
    }

    async fn downgrade(&mut self) -> Result<()> {
        match &mut self.by {
            CachedGuardGrant::Share(share) => share.downgrade(),
            CachedGuardGrant::Lease(hold, _) => {
                hold.0.client.apply(&hold.0.acquisition, AcquisitionEvent::Downgrade);
                hold.0.downgraded().await?;
            }
            CachedGuardGrant::Nothing => {}
        }
        Ok(())
    }
}

impl Drop for CachedGuardInner {
    fn drop(&mut self) {
        self.end_watches();
        if let CachedGuardGrant::Lease(_, entry) = &self.by {
            entry.record_uncached_release();
        }
    }
}

/// What a request for a cached lock returns: [`CachedReadGuard`] or [`CachedWriteGuard`].
pub trait CachedGuard: sealed::CachedGuard {}

pub(crate) mod sealed {
    use super::{CachedGuardInner, LockMode};

    pub trait CachedGuard: Sized + Send + Unpin {
        const MODE: LockMode;

        fn of(held: CachedGuardInner) -> Self;

        fn inner(&self) -> &CachedGuardInner;

        fn into_inner(self) -> CachedGuardInner;
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// It is not a [`Lease`](crate::Lease), which can be cloned and outlives its guard: the
        /// next local holder has the same lease.
        #[must_use = "the lock is given back as soon as the guard is dropped"]
        pub struct $name(CachedGuardInner);

        debug_fields!(|guard| $name { name: guard.0.name(), state: guard.state(), .. });

        impl $name {
            /// Returns the fencing token: greater than the tokens of all earlier writers, local and
            /// remote. Local readers that hold together share one.
            pub fn fencing_token(&self) -> FencingToken {
                self.0.fencing_token()
            }

            /// Releases the lock and returns the outcome. If the lease is cached, this is local and
            /// sends nothing. Otherwise it costs what the release of a
            /// [`ReadGuard`](crate::ReadGuard) does.
            ///
            /// # Errors
            ///
            /// As [`ReadGuard::release`](crate::ReadGuard::release).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: if the future is dropped, the release is finished in the background.
            pub async fn release(self) -> Result<ReleaseOutcome> {
                self.0.release().await
            }

            /// Returns whether the lease is valid, computed now.
            pub fn is_held(&self) -> bool {
                self.0.is_held()
            }

            /// Returns the state of the lease, computed now.
            pub fn state(&self) -> LeaseState {
                self.0.state()
            }

            /// Returns the time left of the lease, less the margin, computed now. Zero if it is
            /// lost.
            pub fn remaining(&self) -> Duration {
                self.0.remaining()
            }

            /// Completes when the lease is lost. See [`Lease::ended`](crate::Lease::ended).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it can be dropped and called again.
            pub async fn ended(&self) {
                self.0.ended().await;
            }

            /// Completes when the lease is at risk, or has ended. See
            /// [`Lease::at_risk`](crate::Lease::at_risk).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: it can be dropped and called again.
            pub async fn at_risk(&self) {
                if let Some(lease) = self.0.lease() {
                    lease.at_risk().await;
                }
            }

            /// Returns a token that is cancelled when the lease is lost or the guard ends, for
            /// tasks that must not outlive it. Cancelling the token yourself affects no other
            /// guard.
            pub fn cancellation_token(&self) -> CancellationToken {
                self.0.cancellation_token()
            }

            /// Returns a view of the lease for other code. It ends with the guard.
            pub fn watch(&self) -> LeaseWatcher {
                let cancellation = self.cancellation_token();
                LeaseWatcher::new(self.fencing_token(), self.0.lease(), cancellation)
            }
        }

        impl sealed::CachedGuard for $name {
            const MODE: LockMode = $mode;

            fn of(held: CachedGuardInner) -> Self {
                $name(held)
            }

            fn inner(&self) -> &CachedGuardInner {
                &self.0
            }

            fn into_inner(self) -> CachedGuardInner {
                self.0
            }
        }

        impl CachedGuard for $name {}
    };
}

guard! {
    /// A cached lock held for reading, shared with other readers.
    CachedReadGuard, LockMode::Read
}

guard! {
    /// A cached lock held for writing, exclusively.
    CachedWriteGuard, LockMode::Write
}

impl CachedWriteGuard {
    /// Turns the write into a read without releasing the lock in between. The token stays the same,
    /// and waiting local readers are granted the lock. Sends nothing if the lease is cached.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::downgrade`](crate::WriteGuard::downgrade). Where nothing is sent there is
    /// no error: [`state`](crate::Lease::state) tells whether the lease is lost.
    pub async fn downgrade(mut self) -> Result<CachedReadGuard> {
        self.0.downgrade().await?;
        Ok(CachedReadGuard(self.0))
    }
}
