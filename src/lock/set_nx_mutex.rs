use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{InspectSetNxRequest, LockKey, LockKind};

use crate::client::ClientHandle;
use crate::error::Result;
use crate::lock::guard::SetNxMutexGuard;
use crate::lock::request::{Acquire, TryAcquire};

/// A mutex on one string key, as made by `SET key value NX PX lease` and ended by a
/// compare-and-delete.
///
/// It excludes other libraries' locks of this kind on the same key, and they exclude it: redis-py's
/// `Lock`, the Redlock clients on one server, scripts of your own.
///
/// The name is the key, unless a [prefix](crate::ClientBuilder::set_nx_key_prefix) is set. The
/// value is [`Lease::id`](crate::Lease::id). As for every lock here, the lease is renewed while the
/// guard lives, its loss is reported, and a call whose answer was lost is repeated with the same
/// value.
///
/// It has no queue and no fencing token: [`Lease::fencing_token`](crate::Lease::fencing_token) is
/// `None`, so a store cannot tell a holder that lost the mutex from the next one. Unless other
/// libraries must share the mutex, use a [`Mutex`](crate::Mutex) instead.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # use std::time::Duration;
/// # let client = rwlease::Client::embedded().await?;
/// let report = client.set_nx_mutex("nightly-report")?;
/// let held = report.lock().lease(Duration::from_secs(10)).await?;
/// assert!(report.try_lock().await?.is_none());
/// assert!(held.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Fairness
///
/// There is no fairness: no server reports that such a mutex is free. Requests try again after a
/// [pause](crate::RetryPolicy), and the first try after the release wins.
#[derive(Clone)]
pub struct SetNxMutex {
    pub(crate) client: Arc<ClientHandle>,
    pub(crate) lock: LockKey,
}

/// What a mutex holds, as returned by [`SetNxMutex::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetNxMutexStatus {
    /// The holder's value: its [`Lease::id`](crate::Lease::id) if this library set it, otherwise
    /// anything.
    pub value: Vec<u8>,
    /// The rest of the lease, by the server's clock. `None` if the key was set without a time to
    /// live: then it never ends, and must be deleted by hand if its holder is gone.
    pub remaining: Option<Duration>,
}

impl SetNxMutex {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Result<Self> {
        let lock = client.settings.lock_key(LockKind::SetNxMutex, name)?;
        Ok(SetNxMutex { client, lock })
    }

    /// Acquires the mutex. One round trip a try.
    ///
    /// It tries until it succeeds, by the default [`RetryPolicy`](crate::RetryPolicy) unless
    /// [`retry_policy`](Acquire::retry_policy) sets another. It has no limit unless that or
    /// [`timeout`](Acquire::timeout) sets one. A try without a reply within
    /// [`call_timeout`](crate::ClientBuilder::call_timeout) ends it as
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// Acquiring a mutex that this task already holds deadlocks; use
    /// [`ReentrantOwner`](crate::ReentrantOwner).
    pub fn lock(&self) -> Acquire<'_, SetNxMutexGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Tries once to acquire the mutex.
    pub fn try_lock(&self) -> TryAcquire<'_, SetNxMutexGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }

    /// Returns the value the mutex holds and the rest of its lease, or `None` if it is free. One
    /// round trip.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Rejected`](crate::ErrorKind::Rejected);
    /// [`WrongType`](crate::ErrorKind::WrongType) if the key is not a string.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a query changes nothing.
    pub async fn status(&self) -> Result<Option<SetNxMutexStatus>> {
        let lock = &self.lock;
        let call = InspectSetNxRequest.call(lock);
        let held = self.client.query(lock, &call, InspectSetNxRequest::read).await?;
        Ok(held.map(|held| SetNxMutexStatus {
            value: held.value.to_vec(),
            remaining: held.ttl_ms.map(Duration::from_millis),
        }))
    }

    /// Returns whether the mutex is held. The answer may be outdated when it arrives; only holding
    /// the mutex excludes others. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.status().await?.is_some())
    }

    /// Returns whether the mutex holds this value: a [`Lease::id`](crate::Lease::id), or what
    /// another library has set. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_held_by(&self, value: impl AsRef<[u8]> + Send) -> Result<bool> {
        let held = self.status().await?;
        Ok(held.is_some_and(|held| held.value == value.as_ref()))
    }

    name_and_slot!("mutex", lock);
}

debug_fields!(|mutex| SetNxMutex { name: mutex.name(), slot: mutex.slot(), .. });
