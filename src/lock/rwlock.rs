use std::sync::Arc;

use rwlease_core::protocol::{LockKey, LockKind};

use crate::client::ClientHandle;
use crate::error::Result;
use crate::lock::cached::CachedRwLock;
use crate::lock::fenced::FencedValue;
use crate::lock::guard::{ReadGuard, WriteGuard};
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::revoke::{self, ForcedRelease, Revocation};
use crate::lock::status::{self, LockStatusQuery};

/// A read/write lock that all clients of the cluster share by its name.
///
/// [`Client::rwlock`](crate::Client::rwlock) makes it. The handle is local: making or cloning it is
/// no round trip and leaves nothing on the server.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let order = client.rwlock("order:{42}")?;
/// let one = order.read().await?;
/// let other = order.read().await?; // readers share the lock
/// assert!(order.try_write().await?.is_none()); // a writer excludes all others
/// # assert!(one.release().await?.was_held() && other.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Fairness
///
/// The lock is phase-fair unless [`Acquire::fairness`] or the client sets another policy:
///
/// - Writers are first in, first out, and so are readers.
/// - When a write ends, the readers that wait go before the next writer.
/// - A reader that arrives while a writer waits, waits too.
///
/// So a reader waits for at most one write phase. A writer waits for the writers before it and one
/// read phase each.
#[derive(Clone)]
pub struct RwLock {
    pub(crate) client: Arc<ClientHandle>,
    pub(crate) lock: LockKey,
}

impl RwLock {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Result<Self> {
        let lock = client.settings.lock_key(LockKind::ReadWrite, name)?;
        Ok(RwLock { client, lock })
    }

    /// Acquires the lock for reading. It waits without a limit unless [`timeout`](Acquire::timeout)
    /// sets one.
    ///
    /// Acquiring it while this task holds the lock deadlocks: if it writes, always; if it reads, as
    /// soon as a writer waits. Use [`ReentrantOwner`](crate::ReentrantOwner). [`Acquire`] documents
    /// the cost, the errors and the cancel safety.
    pub fn read(&self) -> Acquire<'_, ReadGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Acquires the lock for writing. It waits without a limit unless [`timeout`](Acquire::timeout)
    /// sets one.
    ///
    /// Acquiring it while this task holds the lock, for reading or writing, deadlocks; use
    /// [`ReentrantOwner`](crate::ReentrantOwner). [`Acquire`] documents the cost, the errors and
    /// the cancel safety.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # async fn save(_: &str, _: rwlease::FencingToken) {}
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// use std::time::Duration;
    ///
    /// let guard = order.write().timeout(Duration::from_secs(5)).await?;
    /// save("paid", guard.fencing_token()).await; // the store refuses older tokens
    /// assert!(guard.release().await?.was_held());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn write(&self) -> Acquire<'_, WriteGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Acquires the lock for reading if it is available now, and otherwise returns `None`.
    ///
    /// A lock that another client only has [cached](Self::cached) counts as available: the request
    /// waits for its recall for up to [`CacheConfig::try_wait`](crate::CacheConfig::try_wait).
    /// [`TryAcquire`] documents the cost and the errors.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// match order.try_read().await? {
    ///     Some(guard) => println!("reading until {:?} from now", guard.remaining()),
    ///     None => println!("busy: try later"),
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn try_read(&self) -> TryAcquire<'_, ReadGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }

    /// Acquires the lock for writing if it is available now, and otherwise returns `None`.
    ///
    /// It waits for locks that are only cached as [`try_read`](Self::try_read) does. [`TryAcquire`]
    /// documents the cost and the errors.
    pub fn try_write(&self) -> TryAcquire<'_, WriteGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }

    /// Returns the same lock, cached by this client: see [`CachedRwLock`]. No round trip.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// let config = client.rwlock("config")?.cached()?;
    /// for _ in 0..3 {
    ///     let guard = config.read().await?; // the third one sends nothing
    ///     assert!(guard.is_held());
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the client's
    /// [lease](crate::ClientBuilder::lease) is shorter than a second.
    pub fn cached(&self) -> Result<CachedRwLock> {
        CachedRwLock::new(self)
    }

    /// Queries the holders and waiters, a page at a time.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// let mut status = order.status().await?;
    /// loop {
    ///     for waiter in &status.waiters {
    ///         println!("{} has waited for {:?}", waiter.id, waiter.waiting_for);
    ///     }
    ///     if status.is_last() {
    ///         break;
    ///     }
    ///     status = order.status().after(&status).await?;
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn status(&self) -> LockStatusQuery<'_> {
        LockStatusQuery::new(self)
    }

    /// Returns whether the lock is held, or [cached](crate::status::Holder::cached) by a client.
    /// The answer may be outdated when it arrives; only holding the lock excludes others.
    ///
    /// One round trip. If a hundred dead readers come before the first live one, one more for each
    /// hundred.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_locked(&self) -> Result<bool> {
        status::is_locked(self).await
    }

    /// Returns whether the acquisition with this id holds the lock at the server. The id is a
    /// [`Lease::id`](crate::Lease::id), or one from a [`LockStatus`](crate::LockStatus). One round
    /// trip.
    ///
    /// Use it for leases of other processes. A holder checks its own lease by
    /// [`is_held`](crate::Lease::is_held), without a round trip.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`status`](Self::status).
    pub async fn is_held_by(&self, id: impl AsRef<str> + Send) -> Result<bool> {
        status::is_held_by(self, id.as_ref()).await
    }

    /// Prevents the current holders from renewing. The lock is free when their leases expire.
    /// Returns `None` if nobody holds the lock.
    ///
    /// This is the safe way to remove a holder: exclusion is kept. Holders notice at their next
    /// renewal, if they renew, that their lease is [`Uncertain`](crate::LeaseState::Uncertain).
    /// What they do to extend or upgrade it fails with
    /// [`LeaseRevoked`](crate::ErrorKind::LeaseRevoked).
    ///
    /// Two round trips. The first reads the last token, so that holders with a newer token are not
    /// revoked, also when the call is repeated after a lost answer.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// # let stuck = order.write().await?;
    /// if let Some(revoked) = order.revoke().await? {
    ///     println!("the writer's lease ends in {:?}", revoked.writer);
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Rejected`](crate::ErrorKind::Rejected),
    /// [`WrongType`](crate::ErrorKind::WrongType).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the leases may or may not be revoked.
    pub async fn revoke(&self) -> Result<Option<Revocation>> {
        revoke::revoke(self).await
    }

    /// Takes the lock from all its holders at once and grants it to waiters. Returns `None` if
    /// nobody holds the lock.
    ///
    /// **This does not stop the old holders.** Until an old holder learns of the loss, it continues
    /// to work while other clients already hold the lock. Only a store that checks tokens is
    /// protected: the call makes a new token first, so all later tokens are greater than the tokens
    /// of the old holders. If you can wait, use [`revoke`](Self::revoke).
    ///
    /// The server notifies a client that waits for a lock in this slot, has waited there in the
    /// last minute, or [caches](Self::cached) a lock there. Such a client loses the lease one round
    /// trip later. All other clients, and every client on Redis 6.2 or without the right to
    /// `SPUBLISH`, learn of the loss by the reply to their next renewal, which is sent every third
    /// of the lease. Without renewals, they do not learn of it before the lease ends.
    ///
    /// As with [`revoke`](Self::revoke), holders that arrive during the call are not affected.
    /// `None` after a lost reply means that the old holders are gone. Do not call it again: that
    /// evicts the new holders.
    ///
    /// Two round trips, and one more for every 16 readers.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`revoke`](Self::revoke).
    pub async fn force_release(&self) -> Result<Option<ForcedRelease>> {
        revoke::force_release(self).await
    }

    /// Returns the value with this name, which only the newest writer of this lock can write: see
    /// [`FencedValue`]. No round trip.
    ///
    /// The name must be in the slot of the lock: give both one hash tag. If the lock's name has no
    /// tag, use the tag of its [`slot`](Self::slot), as in the second name here:
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// client.rwlock("account:{42}")?.fenced_value("balance:{42}")?;
    /// let orders = client.rwlock("orders")?;
    /// orders.fenced_value(format!("orders:{{{}}}", orders.slot().hash_tag()))?;
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// For the value of a [`Mutex`](crate::Mutex), use [`Mutex::rwlock`](crate::Mutex::rwlock); for
    /// one of an [`Election`](crate::Election), the lock with its name.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is empty or longer than 512
    /// bytes; [`CrossSlot`](crate::ErrorKind::CrossSlot) if it is in another slot than the lock.
    pub fn fenced_value(&self, name: impl AsRef<str>) -> Result<FencedValue> {
        FencedValue::new(self, name.as_ref())
    }

    name_and_slot!("lock", lock);
}

debug_fields!(|lock| RwLock { name: lock.name(), slot: lock.slot(), .. });
