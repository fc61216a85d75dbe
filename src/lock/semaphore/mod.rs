pub(crate) mod guard;
pub(crate) mod status;

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::acquisition::InDoubtUntil;
use rwlease_core::protocol::{
    Confirmation, Doubt, LockKey, LockKind, PermitRequest, SetLimitReply, SetLimitRequest,
    parse_reply,
};

use crate::client::ClientHandle;
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::guard::SemaphorePermit;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::semaphore::status::SemaphoreStatusQuery;

/// A semaphore that all clients of the cluster share by its name.
///
/// At most [`limit`](Self::limit)
/// permits are held at a time. A holder has one permit or several, under one lease.
/// [`Client::semaphore`](crate::Client::semaphore) makes it, without a round trip.
///
/// Permits are given first in, first out. Small requests do not starve one for many permits: those
/// behind it wait until it has its permits. Each grant has its own [fencing
/// token](SemaphorePermit::fencing_token), greater than all before it.
///
/// The first acquire creates the semaphore and stores its limit. Every handle must name the same
/// limit; only [`set_limit`](Self::set_limit) changes it. The server forgets an idle semaphore
/// after 10 to 60 s, and its limit with it.
///
/// Semaphores and read/write locks share a namespace: a semaphore's key is
/// [`WrongType`](ErrorKind::WrongType) to a read/write lock, and the reverse.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let uploads = client.semaphore("uploads", 10)?;
/// let mut guard = uploads.acquire(4).await?;
/// guard.release_permits(3).await?; // the first three are done
/// assert_eq!(guard.num_permits(), 1);
/// let others = uploads.try_acquire(9).await?;
/// assert!(others.is_some());
/// assert!(guard.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
#[derive(Clone)]
pub struct Semaphore {
    pub(crate) client: Arc<ClientHandle>,
    pub(crate) lock: LockKey,
    limit: u32,
}

impl Semaphore {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str, limit: u32) -> Result<Self> {
        let lock = client.settings.lock_key(LockKind::Semaphore, name)?;
        check_limit(limit).map_err(|error| lock.add_context(error))?;
        Ok(Semaphore { client, lock, limit })
    }

    /// Acquires `permits` permits, all at once. It waits until they are available and all earlier
    /// requests have their permits, without a limit unless [`timeout`](Acquire::timeout) sets one.
    ///
    /// Acquiring more permits while this task holds some can deadlock: two tasks may each wait for
    /// permits that the other holds. Acquire all permits at once.
    ///
    /// # Errors
    ///
    /// As [`Acquire`], and [`InvalidInput`](ErrorKind::InvalidInput) for zero permits and for more
    /// than the limit; [`LimitMismatch`](ErrorKind::LimitMismatch) if the semaphore has another
    /// limit than this handle names, or its limit was lowered below `permits` during the wait.
    pub fn acquire(&self, permits: u32) -> Acquire<'_, SemaphorePermit> {
        let mut request = Acquire::new(&self.client, &self.lock, None);
        request.options.permits = Some(PermitRequest { count: permits, limit: self.limit });
        request
    }

    /// Acquires `permits` permits if they are available and the queue is empty. It takes one round
    /// trip, and one more for every 16 dead holders whose permits are needed.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self, permits: u32) -> TryAcquire<'_, SemaphorePermit> {
        TryAcquire(self.acquire(permits))
    }

    /// Changes the semaphore's limit to `new` if it is `expected`, and returns a handle that names
    /// the new limit. One round trip. If the server does not know the semaphore, it is created with
    /// the new limit. If the limit is `new` already, nothing changes.
    ///
    /// Holders keep their permits. If they hold more than a lower limit allows, no request is
    /// granted until enough permits are released. A waiter that wants more than the new limit fails
    /// with [`LimitMismatch`](ErrorKind::LimitMismatch) when it polls. Other waiters keep their
    /// positions in the queue, even if their handles name another limit.
    ///
    /// # Errors
    ///
    /// [`LimitMismatch`](ErrorKind::LimitMismatch) if the semaphore has another limit, which
    /// [`Error::semaphore_limit`] returns; [`InvalidInput`](ErrorKind::InvalidInput) for a limit of
    /// zero; [`Unavailable`](ErrorKind::Unavailable), [`Rejected`](ErrorKind::Rejected),
    /// [`WrongType`](ErrorKind::WrongType), [`UnsupportedVersion`](ErrorKind::UnsupportedVersion).
    ///
    /// If a connection broke during the call, an attempt of it may still be on its way. Then this
    /// returns when the server would refuse that attempt, at most one call timeout and a second
    /// after the call. A server whose clock was set back in that time may accept the attempt later.
    /// After an error and after a drop of the future nothing waits: until then the limit may still
    /// change.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the limit may or may not be changed.
    pub async fn set_limit(&self, expected: u32, new: u32) -> Result<Semaphore> {
        let with_lock = |error| self.lock.add_context(error);
        check_limit(expected).and(check_limit(new)).map_err(with_lock)?;
        match self.exchange(SetLimitRequest { expected, limit: new }).await? {
            None => Ok(Semaphore { limit: new, ..self.clone() }),
            Some(limit) => {
                let message = format!("the semaphore has the limit {limit}, not {expected}");
                Err(with_lock(Error::limit_mismatch(message, limit)))
            }
        }
    }

    /// Queries the limit, the holders and the waiters, a page at a time: see
    /// [`SemaphoreStatus`](crate::SemaphoreStatus).
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let uploads = rwlease::Client::embedded().await?.semaphore("uploads", 10)?;
    /// # let permit = uploads.acquire(4).await?;
    /// let status = uploads.status().await?;
    /// assert_eq!(status.in_use, 4);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn status(&self) -> SemaphoreStatusQuery<'_> {
        SemaphoreStatusQuery::new(self)
    }

    /// Returns the limit that this handle names, 1 to 4,294,967,295 permits.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    name_and_slot!("semaphore", lock);

    /// The limit that prevented the exchange, if one did. Returns when the server can carry out no
    /// attempt of it, unless its clock was set back: a late one could undo a later change of the
    /// limit.
    async fn exchange(&self, set: SetLimitRequest) -> Result<Option<u32>> {
        let (client, lock) = (&self.client, &self.lock);
        let until = client.call_deadline(Confirmation::default());
        let mut in_doubt = Doubt::None;
        while client.clock.now() < until {
            let outcome = client.transport.call(&set.call(lock, until), until).await;
            let reply = parse_reply(outcome, SetLimitRequest::read);
            let reply = reply.map_err(|error| lock.add_context(error))?;
            in_doubt = in_doubt.max(reply.in_doubt);
            let server_now = reply.envelope.server_now;
            if reply.envelope.has_more_work {
                client.grant_waiters(lock);
            }
            let mismatch = match reply.body {
                SetLimitReply::Set => None,
                SetLimitReply::Mismatch(limit) => Some(limit),
                SetLimitReply::TooLate => continue, // the call arrived too late by another server's clock
            };
            if let Some(attempts) = InDoubtUntil::of_ended_call(until, in_doubt) {
                let last = attempts.latest_server_time(server_now, reply.sent_at);
                let left = Duration::from_millis(last.saturating_sub(server_now) + 1);
                // The server's clock may be slower.
                let over = client.clock.now().saturating_add(left + left / 1000);
                client.clock.sleep_until(over.min(attempts.settled_at())).await;
            }
            return Ok(mismatch);
        }
        let message = "the server did not change the limit in time";
        Err(lock.add_context(Error::new(ErrorKind::Unavailable, message)))
    }
}

fn check_limit(limit: u32) -> Result<()> {
    Error::ensure(limit > 0, || "the limit of a semaphore must be at least 1, not 0")
}

debug_fields!(|semaphore| Semaphore {
    name: semaphore.name(),
    slot: semaphore.slot(),
    limit: semaphore.limit,
    ..
});
