//! Upgrades from read to write.

use std::error::Error as StdError;
use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::lease_options::WaitPolicy;
use crate::error::{Error, ErrorKind};
use crate::lock::guard::{ReadGuard, WriteGuard};

impl ReadGuard {
    /// Turns the read into a write, with a new token. It waits until the other readers have
    /// released, without a limit unless [`timeout`](Upgrade::timeout) sets one. An upgrade goes
    /// before all waiting writers, and no new reader is admitted meanwhile.
    ///
    /// Only one reader can wait for an upgrade. A second one fails at once with
    /// [`Conflict`](ErrorKind::Conflict), since each would wait for the other's release:
    ///
    /// ```no_run
    /// # async fn example(reading: rwlease::ReadGuard) -> rwlease::Result<()> {
    /// use rwlease::ErrorKind;
    ///
    /// let writing = match reading.upgrade().await {
    ///     Ok(writing) => writing,
    ///     Err(refused) if refused.kind() == ErrorKind::Conflict => {
    ///         let _ = refused.into_guard().release().await?; // the other one goes first
    ///         return Ok(());
    ///     }
    ///     Err(refused) => return Err(refused.into()),
    /// };
    /// # assert!(writing.release().await?.was_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(self) -> Upgrade {
        Upgrade { guard: self, timeout: None }
    }

    /// Turns the read into a write if nobody else reads. Otherwise returns the read guard. One
    /// round trip.
    ///
    /// # Errors
    ///
    /// As [`Upgrade`]. [`TimedOut`](ErrorKind::TimedOut) only if this read has given up an upgrade,
    /// or has a downgrade under way, and the server does not confirm the end of that within the
    /// client's call timeout. Until then no new upgrade can begin.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the read is released.
    pub async fn try_upgrade(self) -> Result<Result<WriteGuard, ReadGuard>, UpgradeError> {
        let settings = &self.0.0.client.settings;
        let until = self.0.0.client.clock.now().saturating_add(settings.call_timeout);
        match self.0.0.become_writer(WaitPolicy::strict_try(until)).await {
            Ok(true) => Ok(Ok(WriteGuard(self.0))),
            Ok(false) => Ok(Err(self)),
            Err(error) => Err(UpgradeError { error, guard: self }),
        }
    }
}

/// A request to turn a read into a write. It is sent when it is awaited, and returns a
/// [`WriteGuard`].
///
/// # Errors
///
/// An [`UpgradeError`], which has the read guard: [`Conflict`](ErrorKind::Conflict) when another
/// reader waits for an upgrade, [`TimedOut`](ErrorKind::TimedOut), [`Lost`](ErrorKind::Lost) when
/// the lease is lost, [`Revoked`](ErrorKind::Revoked) when it was revoked, and those of
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
    /// The longest time to wait for the other readers. Default: no limit.
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
pub struct UpgradeError<G = ReadGuard> {
    pub(crate) error: Error,
    pub(crate) guard: G,
}

impl<G> UpgradeError<G> {
    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The guard, which still reads.
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// The error and the guard.
    pub fn into_parts(self) -> (Error, G) {
        (self.error, self.guard)
    }
}

impl<G> From<UpgradeError<G>> for Error {
    fn from(error: UpgradeError<G>) -> Error {
        error.error
    }
}

impl<G> fmt::Display for UpgradeError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<G> fmt::Debug for UpgradeError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<G> StdError for UpgradeError<G> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}
