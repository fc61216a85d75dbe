//! From read to write.

use std::error::Error as StdError;
use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::request::WaitPolicy;
use crate::error::{Error, ErrorKind};
use crate::lock::guard::{ReadGuard, WriteGuard};

impl ReadGuard {
    /// Turns the read into a write, with a new token, and waits until the other readers are gone:
    /// without a limit unless [`timeout`](Upgrade::timeout) gives one. It goes before all waiting
    /// writers, and no new reader is let in meanwhile.
    ///
    /// Only one reader can wait for this. A second one is told so at once, since each would wait
    /// for the other's release:
    ///
    /// ```no_run
    /// # async fn example(reading: rwlease::ReadGuard) -> rwlease::Result<()> {
    /// use rwlease::ErrorKind;
    ///
    /// let writing = match reading.upgrade().await {
    ///     Ok(writing) => writing,
    ///     Err(refused) if refused.kind() == ErrorKind::Conflict => {
    ///         refused.into_guard().release().await?; // let the other one go first, and begin anew
    ///         return Ok(());
    ///     }
    ///     Err(refused) => return Err(refused.into()),
    /// };
    /// # writing.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(self) -> Upgrade {
        Upgrade { guard: self, timeout: None }
    }

    /// Turns the read into a write if nobody else reads; else the read guard comes back. One round
    /// trip.
    ///
    /// # Errors
    ///
    /// As [`Upgrade`]. [`TimedOut`](ErrorKind::TimedOut) only where an upgrade of this read was
    /// given up before, or a downgrade is under way, and the server has not answered to the end of
    /// that for the client's call timeout: until then no new upgrade can begin.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the read is released.
    pub async fn try_upgrade(self) -> Result<Result<WriteGuard, ReadGuard>, UpgradeError> {
        let settings = &self.0.0.client.settings;
        let until = self.0.0.client.clock.now().after(settings.call_timeout);
        match self.0.0.become_writer(WaitPolicy::strict_try(until)).await {
            Ok(true) => Ok(Ok(WriteGuard(self.0))),
            Ok(false) => Ok(Err(self)),
            Err(error) => Err(UpgradeError { error, guard: self }),
        }
    }
}

/// A request to turn a read into a write, sent when it is awaited.
///
/// # Errors
///
/// An [`UpgradeError`], which has the read guard: [`Conflict`](ErrorKind::Conflict) when another
/// reader waits to be upgraded, [`TimedOut`](ErrorKind::TimedOut), [`Lost`](ErrorKind::Lost) when
/// the lease is lost or was revoked, and those of [`Acquire`](crate::Acquire).
///
/// # Cancel safety
///
/// Dropped, the read is released, and with it the wait.
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
            let until = timeout.map(|timeout| clock.now().after(timeout));
            match guard.0.0.become_writer(WaitPolicy::Queue { until }).await {
                Ok(_) => Ok(WriteGuard(guard.0)),
                Err(error) => Err(UpgradeError { error, guard }),
            }
        })
    }
}

/// An upgrade that came to nothing: why, and the guard, which reads as before.
///
/// It turns into an [`Error`] by `?`; then the guard is dropped, and the lock released.
pub struct UpgradeError<G = ReadGuard> {
    pub(crate) error: Error,
    pub(crate) guard: G,
}

impl<G> UpgradeError<G> {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The guard.
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// Both.
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
