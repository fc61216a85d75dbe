//! A lease, with a blocking wait for its loss.

use std::ops::Deref;
use std::time::Duration;

use futures::future::{Either, select};

use crate::blocking::background_runtime::{run, spawn};
use crate::error::Result;
use crate::health::catch;
use crate::lock::lease;
use crate::telemetry::callback_panicked;

/// A lease on a lock. It derefs to [`rwlease::Lease`](crate::Lease), for what does not wait.
///
/// A clone can be passed to other threads, and does not keep the lock.
#[derive(Clone, Debug)]
pub struct Lease(pub(super) lease::Lease);

impl Lease {
    /// Waits until the lease is lost or released. See [`Lease::lost`](crate::Lease::lost).
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio runtime.
    pub fn lost(&self) -> Result<()> {
        run(self.0.lost())
    }

    /// Waits until the lease is lost or released, for at most `limit`. Returns whether it was.
    ///
    /// # Errors
    ///
    /// As [`lost`](Self::lost).
    pub fn lost_within(&self, limit: Duration) -> Result<bool> {
        run(async {
            let clock = &self.0.client.clock;
            let limit = clock.sleep_until(clock.now().saturating_add(limit));
            matches!(select(std::pin::pin!(self.0.lost()), limit).await, Either::Left(_))
        })
    }

    /// Calls `callback` when the lease is lost, but not if its release has begun before. The call
    /// runs on the background thread, which keeps the leases of all clients, so it must not block.
    /// It can wake the thread that works under the lock. If it panics, nothing else is affected.
    /// For the losses of all leases of a client, use
    /// [`Builder::on_lost`](crate::Builder::on_lost).
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the system cannot start the background
    /// thread.
    pub fn on_lost(&self, callback: impl FnOnce() + Send + 'static) -> Result<()> {
        let lease = self.0.clone();
        spawn(async move {
            lease.lost().await;
            let now = lease.client.clock.now();
            // The guard may have been dropped between the loss and here, or the worker may not
            // have noticed the loss yet.
            let is_lost = lease.acquisition.was_lost()
                || lease.with(|holding| holding.has_lapsed(now)).unwrap_or(false);
            if is_lost && let Err(panic) = catch(callback) {
                callback_panicked("blocking::Lease::on_lost", &panic.message);
            }
        })
    }

    /// As [`Lease::renew`](crate::Lease::renew).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn renew(&self) -> Result<()> {
        run(self.0.renew())?
    }
}

impl Deref for Lease {
    type Target = lease::Lease;

    fn deref(&self) -> &lease::Lease {
        &self.0
    }
}
