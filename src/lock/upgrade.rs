use std::error::Error as StdError;
use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::acquisition::{HeldLease, WaitPolicy};

use crate::error::{AddContext, Error, ErrorKind};
use crate::lock::guard::{ReadGuard, WriteGuard};
use crate::lock::wait_options::check_timeout;

/// Turns the read into a write if nobody else reads.
pub(crate) async fn try_upgrade(guard: ReadGuard) -> Result<UpgradeAttempt, UpgradeError> {
    let lease = &guard.0.0;
    let confirmation = lease.with(HeldLease::confirmation).unwrap_or_default();
    let until = lease.client.call_deadline(confirmation);
    match lease.become_writer(WaitPolicy::strict_try(until)).await {
        Ok(true) => Ok(UpgradeAttempt::Upgraded(WriteGuard(guard.0))),
        Ok(false) => Ok(UpgradeAttempt::OtherReaders(guard)),
        Err(error) => Err(UpgradeError { error, guard }),
    }
}

/// The outcome of [`ReadGuard::try_upgrade`].
#[must_use = "it has the guard, whose drop releases the lock"]
#[derive(Debug)]
pub enum UpgradeAttempt {
    /// Nobody else read. The lock is held for writing.
    Upgraded(WriteGuard),
    /// Others read. The lock is still held for reading.
    OtherReaders(ReadGuard),
}

impl UpgradeAttempt {
    /// Returns the guard that writes, if the lock was upgraded. Otherwise this drops the guard that
    /// reads, which releases the lock.
    pub fn upgraded(self) -> Option<WriteGuard> {
        match self {
            UpgradeAttempt::Upgraded(guard) => Some(guard),
            UpgradeAttempt::OtherReaders(_) => None,
        }
    }
}

/// A request to turn a read into a write. It is sent when it is awaited, and returns a
/// [`WriteGuard`].
///
/// # Errors
///
/// An [`UpgradeError`], which has the read guard: [`UpgradeConflict`](ErrorKind::UpgradeConflict)
/// when another reader waits for an upgrade, [`TimedOut`](ErrorKind::TimedOut),
/// [`LeaseLost`](ErrorKind::LeaseLost) when the lease is lost,
/// [`LeaseRevoked`](ErrorKind::LeaseRevoked) when the lease was revoked,
/// [`InvalidInput`](ErrorKind::InvalidInput) for a timeout of zero, and the errors of
/// [`Acquire`](crate::Acquire).
///
/// # Cancel safety
///
/// If the future is dropped, the wait ends and the read is released.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct Upgrade {
    guard: ReadGuard,
    timeout: Option<Duration>,
}

impl Upgrade {
    pub(crate) fn new(guard: ReadGuard) -> Upgrade {
        Upgrade { guard, timeout: None }
    }

    /// Sets the longest time to wait for the other readers. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl IntoFuture for Upgrade {
    type Output = Result<WriteGuard, UpgradeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Upgrade { guard, timeout } = self;
            if let Err(error) = check_timeout(timeout) {
                let error = guard.0.0.acquisition.lock.add_context(error);
                return Err(UpgradeError { error, guard });
            }
            let clock = &guard.0.0.client.clock;
            let until = timeout.map(|timeout| clock.now().saturating_add(timeout));
            match guard.0.0.become_writer(WaitPolicy::Queue { deadline: until }).await {
                Ok(_) => Ok(WriteGuard(guard.0)),
                Err(error) => Err(UpgradeError { error, guard }),
            }
        })
    }
}

/// The error of a failed upgrade, with the guard, which still reads.
///
/// `?` converts it into an [`Error`]; that drops the guard and so releases the lock.
pub struct UpgradeError {
    error: Error,
    guard: ReadGuard,
}

impl UpgradeError {
    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the guard, which still reads.
    pub fn into_guard(self) -> ReadGuard {
        self.guard
    }

    /// Returns the error and the guard.
    pub fn into_parts(self) -> (Error, ReadGuard) {
        (self.error, self.guard)
    }
}

impl From<UpgradeError> for Error {
    fn from(error: UpgradeError) -> Error {
        error.error
    }
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

debug_fields!(|error| UpgradeError { error: error.error, .. });

impl StdError for UpgradeError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
