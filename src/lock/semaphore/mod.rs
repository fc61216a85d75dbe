//! The semaphore: a limited number of permits, which holders share.

pub(crate) mod guard;
pub(crate) mod status;

use std::fmt;
use std::sync::Arc;

use crate::client::ClientHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::SemaphoreGuard;
use crate::lock::request::{Acquire, TryAcquire};
use crate::protocol::{LockKey, LockKind, PermitRequest, SetLimitReply, SetLimitRequest};
use crate::slot::Slot;

/// A semaphore that all clients of the cluster share by its name. At most [`limit`](Self::limit)
/// permits are held at a time. A holder has one permit or several, under one lease.
///
/// Permits are given first in, first out. Small requests do not starve one for many permits: those
/// behind it wait until it has its permits. Each grant has its own [fencing
/// token](crate::Lease::token), greater than all before it.
///
/// The first acquire creates the semaphore and stores its limit. Every handle must name the same
/// limit; only [`set_limit`](Self::set_limit) changes it. The server forgets an idle semaphore
/// after 10 to 60 s, and its limit with it.
///
/// Semaphores and read/write locks share a namespace: a semaphore's key is
/// [`Foreign`](ErrorKind::Foreign) to a read/write lock, and the reverse.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let locks = rwlease::Locks::embedded().await?;
/// let uploads = locks.semaphore("uploads", 10)?;
/// let mut guard = uploads.acquire(4).await?;
/// guard.release_some(3).await?; // the first three are done
/// assert_eq!(guard.permits(), 1);
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
        let lock = LockKey::new(LockKind::Semaphore, &client.settings.key_prefix, name)?;
        check_limit(limit).map_err(|error| lock.add_context(error))?;
        Ok(Semaphore { client, lock, limit })
    }

    /// The semaphore's name, as given.
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// The slot of the semaphore's key.
    pub fn slot(&self) -> Slot {
        self.lock.slot
    }

    /// The limit that this handle names, 1 to 4,294,967,295 permits.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Acquires `permits` permits, all at once. It waits until they are available and everybody who
    /// came before has theirs, without a limit unless [`timeout`](Acquire::timeout) sets one.
    ///
    /// Acquiring more permits while this task holds some can deadlock: two tasks may each wait for
    /// permits that the other holds. Acquire all of them at once.
    ///
    /// # Errors
    ///
    /// As [`Acquire`], and [`Invalid`](ErrorKind::Invalid) for zero permits and for more than the
    /// limit; [`LimitMismatch`](ErrorKind::LimitMismatch) if the semaphore has another limit than
    /// this handle names, or its limit was lowered below `permits` during the wait.
    pub fn acquire(&self, permits: u32) -> Acquire<'_, SemaphoreGuard> {
        let mut request = Acquire::new(&self.client, &self.lock, None);
        request.options.permits = Some(PermitRequest { count: permits, limit: self.limit });
        request
    }

    /// Acquires `permits` permits if they are available and nobody waits. One round trip. If many
    /// dead holders are in the way, one more for every 16 of them.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self, permits: u32) -> TryAcquire<'_, SemaphoreGuard> {
        TryAcquire(self.acquire(permits))
    }

    /// Changes the semaphore's limit to `new` if it is `expected`, and returns a handle that names
    /// the new limit. One round trip. If the server does not know the semaphore, it is created with
    /// the new limit. If the limit is `new` already, nothing changes.
    ///
    /// Holders keep their permits. If they hold more than a lower limit allows, nothing is granted
    /// until enough permits are given back. A waiter that wants more than the new limit fails with
    /// [`LimitMismatch`](ErrorKind::LimitMismatch) when it polls. Other waiters keep their places,
    /// whatever limit their handles name.
    ///
    /// # Errors
    ///
    /// [`LimitMismatch`](ErrorKind::LimitMismatch) if the semaphore has another limit, which
    /// [`Error::semaphore_limit`] returns; [`Invalid`](ErrorKind::Invalid) for a limit of zero;
    /// [`Unavailable`](ErrorKind::Unavailable), [`Refused`](ErrorKind::Refused),
    /// [`Foreign`](ErrorKind::Foreign), [`Incompatible`](ErrorKind::Incompatible).
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
                let message = format!("the semaphore's limit is {limit}, and not {expected}");
                Err(with_lock(Error::limit_mismatch(message, limit)))
            }
        }
    }

    /// The limit that prevented the exchange, if one did.
    async fn exchange(&self, set: SetLimitRequest) -> Result<Option<u32>> {
        let (client, lock) = (&self.client, &self.lock);
        let until = client.clock.now().saturating_add(client.settings.call_timeout);
        while client.clock.now() < until {
            let reply = client.query(lock, &set.call(client.scripts, lock, until)).await?;
            let (envelope, set) =
                SetLimitRequest::read(reply).map_err(|bad| lock.add_context(bad))?;
            if envelope.has_pump_work {
                client.pump(lock);
            }
            match set {
                SetLimitReply::Set => return Ok(None),
                SetLimitReply::Mismatch(limit) => return Ok(Some(limit)),
                SetLimitReply::TooLate => {} // the call arrived too late by another server's clock
            }
        }
        let message = "the slot could not be served in time";
        Err(lock.add_context(Error::new(ErrorKind::Unavailable, message)))
    }
}

fn check_limit(limit: u32) -> Result<()> {
    match limit {
        0 => Err(Error::invalid("the limit of a semaphore must not be zero")),
        _ => Ok(()),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name())
            .field("slot", &self.slot())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
