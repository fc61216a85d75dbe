use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::acquisition::{LeaseOptions, RenewalPolicy};
use rwlease_core::protocol::{Fsync, LockKind, LockMode};

use crate::client::config::check_options;
use crate::client::transfer::TransferredLease;
use crate::client::{ClientHandle, acquire_task};
use crate::error::{AddContext, Result};
use crate::lock::guard::{Hold, ReadGuard, ReleaseOutcome, WriteGuard, fencing_token};
use crate::lock::lease::Lease;
use crate::lock::request::setters_of_acquire;
use crate::lock::transfer::LeaseTransfer;
use crate::lock::wait_options::check_timeout;

/// A request to accept a transferred lock. It is sent when awaited, and returns a guard.
///
/// # Cost
///
/// One round trip.
///
/// # Errors
///
/// [`LeaseLost`](crate::ErrorKind::LeaseLost) when the server knows no such lease: it has ended,
/// another client has accepted it, the text was forged, or this client has another
/// [prefix](crate::ClientBuilder::key_prefix) or other servers.
///
/// [`Unavailable`](crate::ErrorKind::Unavailable) when the server did not answer, or too few
/// replicas confirmed. Then the transfer may be used up, and the client releases the lock if it was
/// accepted.
///
/// [`Rejected`](crate::ErrorKind::Rejected), [`WrongType`](crate::ErrorKind::WrongType),
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion),
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options out of range,
/// [`Cancelled`](crate::ErrorKind::Cancelled) when the client is shut down.
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped after the lock was accepted, the lock is released; if
/// before, the transfer stays valid.
#[must_use = "a request does nothing until it is awaited"]
pub struct AcceptTransfer<'a> {
    client: &'a Arc<ClientHandle>,
    transfer: &'a LeaseTransfer,
    options: LeaseOptions,
    timeout: Option<Duration>,
}

impl<'a> AcceptTransfer<'a> {
    pub(crate) fn new(client: &'a Arc<ClientHandle>, transfer: &'a LeaseTransfer) -> Self {
        let options = client.settings.lease_options();
        AcceptTransfer { client, transfer, options, timeout: None }
    }

    /// Sets the longest time to wait for the server's answer. Default: the client's [call
    /// timeout](crate::ClientBuilder::call_timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// As [`Acquire::lease`](crate::Acquire::lease), counted from the acceptance. The lease is
    /// never shorter than the rest of the transferred lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    setters_of_acquire! { |request|
        renewal(renewal: RenewalPolicy) => request.options.renewal = renewal;
        max_hold(hold: Duration, ", counted from the acceptance") =>
            request.options.max_hold = Some(hold);
        min_replicas(replicas: u32) => request.options.confirmation.replicas = replicas;
        fsync(fsync: Fsync) => request.options.confirmation.fsync = fsync;
    }

    async fn accept_transfer(self) -> Result<TransferredGuard> {
        let AcceptTransfer { client, transfer, options, timeout } = self;
        let lock = client.settings.lock_key(LockKind::ReadWrite, &transfer.name)?;
        check_options(&options)
            .and_then(|()| check_timeout(timeout))
            .map_err(|error| lock.add_context(error))?;
        let deadline = client.deadline(timeout, options.confirmation);
        let TransferredLease { mode, id, token, .. } = transfer.lease;
        let acquisition =
            acquire_task::accept_transfer(client, &lock, (mode, id, token), &options, deadline)
                .await?;
        let hold = Hold(Lease::new(client.0.clone(), acquisition));
        Ok(match mode {
            LockMode::Read => TransferredGuard::Read(ReadGuard(hold)),
            LockMode::Write => TransferredGuard::Write(WriteGuard(hold)),
        })
    }
}

debug_fields!(|request| AcceptTransfer::<'_> {
    transfer: request.transfer,
    options: request.options,
    timeout: request.timeout,
    ..
});

impl<'a> IntoFuture for AcceptTransfer<'a> {
    type Output = Result<TransferredGuard>;
    type IntoFuture = BoxFuture<'a, Result<TransferredGuard>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.accept_transfer())
    }
}

/// The guard of an accepted lock, as it was held: for reading or for writing.
///
/// It derefs to its [`Lease`].
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub enum TransferredGuard {
    /// Held for reading.
    Read(ReadGuard),
    /// Held for writing.
    Write(WriteGuard),
}

impl TransferredGuard {
    fencing_token!();

    /// Releases the lock and returns the outcome.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::release`].
    pub async fn release(self) -> Result<ReleaseOutcome> {
        match self {
            TransferredGuard::Read(guard) => guard.release().await,
            TransferredGuard::Write(guard) => guard.release().await,
        }
    }

    /// Transfers the lock again.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::into_transfer`].
    pub async fn into_transfer(self) -> Result<LeaseTransfer> {
        match self {
            TransferredGuard::Read(guard) => guard.into_transfer().await,
            TransferredGuard::Write(guard) => guard.into_transfer().await,
        }
    }
}

impl Deref for TransferredGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            TransferredGuard::Read(guard) => guard,
            TransferredGuard::Write(guard) => guard,
        }
    }
}
