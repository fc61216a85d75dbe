//! The guards of a `ReentrantOwner`, and how they are acquired.

use std::ops::Deref;
use std::sync::Arc;

use futures::future::{Either, select};
use rwlease_core::acquisition::WaitPolicy;
use rwlease_core::protocol::LockMode;

use crate::client::acquire_task;
use crate::client::acquisition::Acquisition;
use crate::error::{AddContext, Error, Result};
use crate::lock::guard::{Guard, ReleaseOutcome, fencing_token, guard_impls, sealed};
use crate::lock::lease::Lease;
use crate::lock::reentrant::owned_lock::{Share, ShareKind};
#[cfg(doc)]
use crate::lock::reentrant::owner::ReentrantOwner;
use crate::lock::request::Acquire;

macro_rules! release {
    () => {
        /// Releases this guard and returns the outcome. One round trip for the last guard of the
        /// [`ReentrantOwner`], and for the last write if reads are left. Otherwise it sends
        /// nothing.
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
    };
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// The guard derefs to the [`Lease`] that all guards of the [`ReentrantOwner`] for this
        /// lock share. Dropping it releases it in the background.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(Share);

        guard_impls!($name, false, |guard| &guard.0.lease, |request, policy| {
            Ok(acquire_share(request, $mode, policy).await?.map($name))
        });
    };
}

guard! {
    /// A lock that a [`ReentrantOwner`] holds for reading, or also for writing.
    ReentrantReadGuard, LockMode::Read
}

guard! {
    /// A lock that a [`ReentrantOwner`] holds for writing.
    ReentrantWriteGuard, LockMode::Write
}

guard! {
    /// A [`SetNxMutex`](crate::SetNxMutex) that a [`ReentrantOwner`] holds.
    ReentrantSetNxMutexGuard, LockMode::Write
}

impl ReentrantReadGuard {
    fencing_token!();
    release!();
}

impl ReentrantWriteGuard {
    fencing_token!();
    release!();
}

impl ReentrantSetNxMutexGuard {
    release!();
}

/// Takes a share of the current lease, or acquires or upgrades one at the server.
async fn acquire_share<G>(
    request: &Acquire<'_, G>,
    mode: LockMode,
    policy: WaitPolicy,
) -> Result<Option<Share>> {
    let Acquire { client, lock, options, reentrant: Some(owner), .. } = request else {
        return Err(request.lock.add_context(Error::internal("a reentrant request has no owner")));
    };
    if !Arc::ptr_eq(client, &owner.client) {
        return Err(lock.add_context(Error::invalid(
            "the lock is of another client than the reentrant owner; make both by one client",
        )));
    }
    let kind = match mode {
        LockMode::Read => ShareKind::Read,
        LockMode::Write => ShareKind::Write,
    };
    let owned = owner.owned_lock(lock);
    if let Some(share) = owned.join(kind) {
        return Ok(Some(share));
    }
    let _turn = match policy {
        WaitPolicy::Try { .. } => match owned.request_turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => return Ok(None), // another request of this `ReentrantOwner` waits for others
        },
        WaitPolicy::Queue { deadline: None } => owned.request_turn.lock().await,
        WaitPolicy::Queue { deadline: Some(deadline) } => {
            let turn = std::pin::pin!(owned.request_turn.lock());
            match select(turn, client.clock.sleep_until(deadline)).await {
                Either::Left((turn, _)) => turn,
                Either::Right(_) => {
                    let is_silent = owned.is_server_silent(client.clock.now());
                    return Err(lock.add_context(client.local_timeout_error(lock, is_silent)));
                }
            }
        }
    };
    if let Some(share) = owned.join(kind) {
        return Ok(Some(share));
    }
    if let Some(upgrade) = owned.join(ShareKind::Upgrade) {
        let granted = upgrade.lease.become_writer(policy).await?;
        return Ok(granted.then(|| upgrade.turn_into(ShareKind::Write)));
    }
    let observe = |acquisition: &Arc<Acquisition>| owned.set_request(acquisition);
    let acquired =
        acquire_task::acquire_observed(client, lock, mode, options, policy, observe).await?;
    Ok(acquired.map(|acquisition| owned.begin(Lease::new(client.0.clone(), acquisition), kind)))
}
