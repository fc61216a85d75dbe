//! The plain mutex that every language has: one string key, `SET key value NX PX`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Handle;
use crate::error::Result;
use crate::lock::guard::MutexGuard;
use crate::lock::request::{Acquire, TryAcquire};
use crate::protocol::{InspectMutex, Kind, LockKey};
use crate::slot::Slot;

/// A mutex on one string key, which holds its holder's value and ends with the lease: what
/// `SET key value NX PX lease` makes and a compare-and-delete ends. Other libraries' locks of this
/// kind on the same key exclude this one, and this one them: redis-py's `Lock`, the Redlock clients
/// on one server, the scripts that people write.
///
/// The name is the key as it stands (unless a [prefix](crate::Builder::mutex_prefix) is set), and
/// the value is [`Lease::id`](crate::Lease::id). The lease is renewed while the guard lives, its
/// loss is told, and a call whose answer was lost is repeated with the same value.
///
/// It knows no readers, no queue and no fencing token: [`Lease::token`](crate::Lease::token) is
/// zero, and a store cannot tell a holder that lost it from the next one. Where nobody else must
/// share it, an [`RwLock`](crate::RwLock) held for writing is the better mutex.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # use std::time::Duration;
/// # let locks = rwlease::Locks::embedded().await?;
/// let report = locks.mutex("nightly-report")?;
/// let held = report.lock().lease(Duration::from_secs(10)).await?;
/// assert!(report.try_lock().await?.is_none());
/// held.release().await?;
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Fairness
///
/// None: no server tells that a plain mutex is free. Waiting requests try again after a
/// [pause](crate::Retry), and the first try after the release has it.
#[derive(Clone)]
pub struct Mutex {
    pub(crate) client: Arc<Handle>,
    pub(crate) lock: LockKey,
}

/// What a mutex holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MutexStatus {
    /// The holder's value: [`Lease::id`](crate::Lease::id) if it is one of these locks, and
    /// anything if it is another's.
    pub value: Vec<u8>,
    /// What is left of its lease by the server's clock. `None` if it never ends: whoever set it
    /// gave it no time, and it must be deleted by hand if its holder is gone.
    pub remaining: Option<Duration>,
}

impl Mutex {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Result<Self> {
        let lock = LockKey::new(Kind::Mutex, &client.settings.mutex_prefix, name)?;
        Ok(Mutex { client, lock })
    }

    /// The mutex's name, as it was given.
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// The slot of the mutex's key.
    pub fn slot(&self) -> Slot {
        self.lock.slot
    }

    /// Acquires the mutex, trying until it is held: by the default [`Retry`](crate::Retry) unless
    /// [`retry`](Acquire::retry) gives another, and without a limit unless that or
    /// [`timeout`](Acquire::timeout) gives one. One round trip for each try.
    ///
    /// Acquiring a mutex that this task already holds deadlocks: see
    /// [`Reentrant`](crate::Reentrant).
    pub fn lock(&self) -> Acquire<'_, MutexGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Tries once to acquire the mutex.
    pub fn try_lock(&self) -> TryAcquire<'_, MutexGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }

    /// Queries whose value it holds, and until when; nothing if it is free. One round trip.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused);
    /// [`Foreign`](crate::ErrorKind::Foreign) if the key is no string.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped at any time.
    pub async fn status(&self) -> Result<Option<MutexStatus>> {
        let lock = &self.lock;
        let call = InspectMutex.call(self.client.scripts, lock);
        let reply = self.client.query(lock, &call).await?;
        let held = InspectMutex::read(reply).map_err(|bad| lock.with_lock(bad))?;
        Ok(held.map(|held| MutexStatus {
            value: held.value.to_vec(),
            remaining: held.left.map(Duration::from_millis),
        }))
    }

    /// Whether anybody holds it now. By the time the answer is here it may be wrong: to know that
    /// nobody holds it, hold it. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self.status().await?.is_some())
    }

    /// Whether it holds this value now: that of a [`Lease::id`](crate::Lease::id), or of whoever
    /// else has set it. One round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_held_by(&self, value: impl AsRef<[u8]> + Send) -> Result<bool> {
        let held = self.status().await?;
        Ok(held.is_some_and(|held| held.value == value.as_ref()))
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name())
            .field("slot", &self.slot())
            .finish_non_exhaustive()
    }
}
