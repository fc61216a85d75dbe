//! Taking up a lock that another client handed on.

use std::future::IntoFuture;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::ClientHandle;
use crate::client::acquire_task;
use crate::client::lease_options::{LeaseOptions, RenewalPolicy};
use crate::client::transfer::TransferredLease;
use crate::error::Result;
use crate::lock::client::Locks;
use crate::lock::guard::{Hold, ReadGuard, Released, WriteGuard};
use crate::lock::lease::Lease;
use crate::lock::transfer::Ticket;
use crate::protocol::{LockKey, LockKind, LockMode};

impl Locks {
    /// Takes up a lock that another client has [handed on](WriteGuard::into_ticket). The guard is
    /// like any other: it renews the lease and releases it. The fencing token is that of the
    /// ticket.
    ///
    /// A ticket can be taken up once. All later attempts fail with
    /// [`Lost`](crate::ErrorKind::Lost). There is one exception: if the master fails before its
    /// replicas have the take-up, a copy of the ticket may be taken up once more, with the same
    /// token. [`replicas`](TakeUp::replicas) prevents that.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let engine = rwlease::embedded::EmbeddedCluster::new();
    /// # let locks = rwlease::Locks::builder().connect_embedded(&engine).await?;
    /// # let others = rwlease::Locks::builder().connect_embedded(&engine).await?;
    /// let ticket = locks.rwlock("order:{42}")?.write().await?.into_ticket().await?;
    /// let text = ticket.to_string(); // to another process, by a way that nobody else reads
    ///
    /// let guard = others.take_up(&text.parse()?).await?;
    /// assert_eq!(guard.token(), ticket.token());
    /// assert!(guard.release().await?.was_held());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn take_up<'a>(&'a self, ticket: &'a Ticket) -> TakeUp<'a> {
        let options = LeaseOptions::from_config(&self.client.settings);
        TakeUp { client: &self.client, ticket, options, timeout: None }
    }
}

/// A request to take up a lock that was handed on. It is sent when it is awaited, and returns a
/// guard.
///
/// # Cost
///
/// One round trip.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) when the server knows no such lease: it has ended, another
/// client has taken it up, the ticket was forged, or this client has another
/// [prefix](crate::Builder::prefix) or other servers.
///
/// [`Unavailable`](crate::ErrorKind::Unavailable) when the server did not answer, or too few
/// replicas confirmed. Then the ticket may be used up, and the client releases the lock if it was
/// taken up.
///
/// [`Refused`](crate::ErrorKind::Refused), [`Foreign`](crate::ErrorKind::Foreign),
/// [`Incompatible`](crate::ErrorKind::Incompatible), [`Invalid`](crate::ErrorKind::Invalid) for
/// options out of range, [`Cancelled`](crate::ErrorKind::Cancelled) when the client is shut down.
///
/// # Cancel safety
///
/// Cancel safe: if the future is dropped after the lock was taken up, the lock is released; if
/// before, the ticket stays valid.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct TakeUp<'a> {
    client: &'a Arc<ClientHandle>,
    ticket: &'a Ticket,
    options: LeaseOptions,
    timeout: Option<Duration>,
}

impl TakeUp<'_> {
    /// The longest time to wait for the server's answer. Default: the client's call timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// As [`Acquire::lease`](crate::Acquire::lease), counted from the take-up. The lease is never
    /// shorter than the rest of the ticket's.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// As [`Acquire::renewal`](crate::Acquire::renewal).
    pub fn renewal(mut self, renewal: RenewalPolicy) -> Self {
        self.options.renewal = renewal;
        self
    }

    /// As [`Acquire::max_hold`](crate::Acquire::max_hold), counted from the take-up.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.options.max_hold = Some(hold);
        self
    }

    /// As [`Acquire::replicas`](crate::Acquire::replicas).
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.options.min_replicas = replicas;
        self
    }

    async fn take_up(self) -> Result<TakenUp> {
        let TakeUp { client, ticket, options, timeout } = self;
        let lock = LockKey::new(LockKind::ReadWrite, &client.settings.key_prefix, &ticket.name)?;
        options.check().map_err(|error| lock.add_context(error))?;
        let until =
            client.clock.now().saturating_add(timeout.unwrap_or(client.settings.call_timeout));
        let TransferredLease { mode, id, token, .. } = ticket.lease;
        let taken =
            acquire_task::accept_transfer(client, &lock, (mode, id, token), &options, until)
                .await?;
        let hold = Hold(Lease::new(client.0.clone(), taken));
        Ok(match mode {
            LockMode::Read => TakenUp::Read(ReadGuard(hold)),
            LockMode::Write => TakenUp::Write(WriteGuard(hold)),
        })
    }
}

impl<'a> IntoFuture for TakeUp<'a> {
    type Output = Result<TakenUp>;
    type IntoFuture = BoxFuture<'a, Result<TakenUp>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take_up())
    }
}

/// The guard of a lock that was taken up. It derefs to its [`Lease`].
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub enum TakenUp {
    /// Held for reading.
    Read(ReadGuard),
    /// Held for writing.
    Write(WriteGuard),
}

impl TakenUp {
    /// Releases the lock and returns the outcome.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::release`].
    pub async fn release(self) -> Result<Released> {
        match self {
            TakenUp::Read(guard) => guard.release().await,
            TakenUp::Write(guard) => guard.release().await,
        }
    }

    /// Hands the lock on again.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`WriteGuard::into_ticket`].
    pub async fn into_ticket(self) -> Result<Ticket> {
        match self {
            TakenUp::Read(guard) => guard.into_ticket().await,
            TakenUp::Write(guard) => guard.into_ticket().await,
        }
    }
}

impl Deref for TakenUp {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            TakenUp::Read(guard) => guard,
            TakenUp::Write(guard) => guard,
        }
    }
}
