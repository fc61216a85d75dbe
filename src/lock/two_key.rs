use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rwlease_core::acquisition::{LeaseOptions, RenewalPolicy, WaitPolicy};
use rwlease_core::protocol::{LockKey, LockKind, LockMode};
use rwlease_core::slot::Slot;

use crate::client::config::check_lease;
use crate::client::{ClientHandle, acquire_task};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{AddContext, Error, Result};
use crate::lock::client::Client;
use crate::lock::guard::{Hold, ReleaseOutcome};
use crate::lock::lease::Lease;
use crate::lock::retry::RetryPolicy;
use crate::lock::wait_options::WaitOptions;

/// The longest pause between two tries of a waiting request. Half of it is random.
const INTERVAL: Duration = Duration::from_millis(75);

/// A read/write lock in two keys, one for all readers and one for the writer.
///
/// It is compatible on the server with the published lock that older fleets run: a reader sets the
/// readers' key unless the writer's exists, and a writer sets its own unless either exists, both
/// with a time to live in seconds. Use it only to migrate from such a fleet: see
/// `docs/migrating.md`.
///
/// # Hazards
///
/// They follow from the protocol, and a client alone cannot remove them:
///
/// - All readers share one key. The release of a later reader admits a writer while an earlier
///   reader still reads. Among clients of this type the release of an earlier reader does not,
///   because the key names the last reader. In the old fleet any reader's release deletes the key
///   of all. A reader whose call was repeated after a lost answer counts as later than the readers
///   that came between.
/// - A release of the old fleet deletes any key, also a key of this type.
/// - A new reader of the old fleet sets the readers' key to its own time to live, even if that is
///   shorter. The earlier readers are then cut short without notice, and [`TwoKeyGuard::remaining`]
///   does not show it. So beside an old fleet a reader's lease must not be longer than the fleet's
///   shortest.
/// - It has no fencing token and no queue. A stream of readers can starve a writer, and waiters
///   poll.
/// - It has no renewal: the lock is lost when its lease ends.
/// - While the slot of the keys migrates and one key has moved, servers reply `TRYAGAIN`, and no
///   client can acquire the lock.
///
/// # What is added
///
/// Each acquisition has its own id, which is the key's value, and only its own release deletes the
/// key. A repeated call changes nothing more, unless it is a reader's and another reader has come
/// between: then it replaces that one. A call that arrives too late changes nothing. A reader of
/// this type with a short lease does not shorten a longer one.
#[derive(Clone)]
pub struct TwoKeyRwLock {
    client: Arc<ClientHandle>,
    /// The readers' key and the writer's, each as a lock whose `other_key` is the other one.
    keys: [LockKey; 2],
}

impl TwoKeyRwLock {
    /// Returns the lock in these two keys. They are used as given, without the client's prefix.
    ///
    /// # Errors
    ///
    /// [`CrossSlot`](ErrorKind::CrossSlot), with both keys and their slots, if the keys are in
    /// different slots: on a cluster, no script can use such keys together.
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the keys are equal, or if the client has
    /// [`min_replicas`](crate::ClientBuilder::min_replicas) or
    /// [`fsync`](crate::ClientBuilder::fsync): a repeated call of this protocol writes nothing, so
    /// nothing can confirm it.
    pub fn new(
        locks: &Client,
        read_key: impl AsRef<[u8]>,
        write_key: impl AsRef<[u8]>,
    ) -> Result<Self> {
        let (read, write) = (read_key.as_ref(), write_key.as_ref());
        let slot = Slot::of_all([read, write])?;
        Error::ensure(
            read != write,
            || "the keys of the readers and of the writer are equal; use two keys",
        )?;
        Error::ensure(
            locks.client.settings.confirmation.is_empty(),
            || "a two-key lock cannot be confirmed; use a client without `min_replicas` and `fsync`",
        )?;
        let name: Arc<str> = format!("{}, {}", read.escape_ascii(), write.escape_ascii()).into();
        let [read, write] = [read, write].map(Bytes::copy_from_slice);
        let lock = |key: &Bytes, other_key: &Bytes| LockKey {
            kind: LockKind::SetNxMutex,
            name: name.clone(),
            key: key.clone(),
            second_key: Some(other_key.clone()),
            slot,
        };
        let keys = [lock(&read, &write), lock(&write, &read)];
        Ok(TwoKeyRwLock { client: locks.client.clone(), keys })
    }

    /// Returns the lock in the keys `{name}:read` and `{name}:write`, which share a slot. If the
    /// name has a hash tag, that is used instead: `order:{42}` gives `order:{42}:read` and
    /// `order:{42}:write`.
    ///
    /// # Errors
    ///
    /// [`CrossSlot`](ErrorKind::CrossSlot) for a name with braces that form no hash tag.
    pub fn tagged(locks: &Client, name: &str) -> Result<Self> {
        let base = if name.contains(['{', '}']) { name.to_owned() } else { format!("{{{name}}}") };
        Self::new(locks, format!("{base}:read"), format!("{base}:write"))
    }

    /// Returns the readers' key and the writer's.
    pub fn keys(&self) -> [&[u8]; 2] {
        self.keys.each_ref().map(|lock| &*lock.key)
    }

    /// Returns the slot of both keys.
    pub fn slot(&self) -> Slot {
        self.keys[0].slot
    }

    /// Acquires the lock for reading, for `lease` (rounded up to whole seconds), if no writer has
    /// it.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](ErrorKind::Unavailable), [`Rejected`](ErrorKind::Rejected),
    /// [`Cancelled`](ErrorKind::Cancelled) when the client is shut down,
    /// [`WrongType`](ErrorKind::WrongType) for a key of another type,
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a lease of more than 30 days.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, a granted lock is released in the background.
    pub async fn try_read(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        self.attempt(LockMode::Read, lease).await
    }

    /// Acquires the lock for writing, for `lease` (rounded up to whole seconds), if it is not
    /// locked.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`try_read`](Self::try_read).
    pub async fn try_write(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        self.attempt(LockMode::Write, lease).await
    }

    /// Acquires the lock for reading. It tries for up to `timeout`, every 38 to 75 ms, since the
    /// server does not report when the lock is free.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`try_read`](Self::try_read), and [`TimedOut`](ErrorKind::TimedOut);
    /// [`InvalidInput`](ErrorKind::InvalidInput) also for a timeout of zero. A try without an
    /// answer within the client's call timeout ends the wait with
    /// [`Unavailable`](ErrorKind::Unavailable).
    pub async fn read(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        self.wait(LockMode::Read, lease, timeout).await
    }

    /// Acquires the lock for writing, as [`read`](Self::read) does for reading.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        self.wait(LockMode::Write, lease, timeout).await
    }

    fn lock(&self, mode: LockMode) -> &LockKey {
        match mode {
            LockMode::Read => &self.keys[0],
            LockMode::Write => &self.keys[1],
        }
    }

    async fn attempt(&self, mode: LockMode, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        let options = self.options(mode, lease)?;
        let until = self.client.call_deadline(options.confirmation);
        self.take(mode, &options, WaitPolicy::strict_try(until)).await
    }

    async fn wait(
        &self,
        mode: LockMode,
        lease: Duration,
        timeout: Duration,
    ) -> Result<TwoKeyGuard> {
        let (lock, options) = (self.lock(mode), self.options(mode, lease)?);
        let wait =
            WaitOptions { timeout: Some(timeout), retry: Some(RetryPolicy::fixed(INTERVAL)) };
        wait.check().map_err(|error| lock.add_context(error))?;
        wait.for_lock(&self.client, lock, options.confirmation, |policy| {
            self.take(mode, &options, policy)
        })
        .await
    }

    async fn take(
        &self,
        mode: LockMode,
        options: &LeaseOptions,
        policy: WaitPolicy,
    ) -> Result<Option<TwoKeyGuard>> {
        let taken =
            acquire_task::acquire(&self.client, self.lock(mode), mode, options, policy).await?;
        let guard = |acquisition| TwoKeyGuard {
            hold: Hold(Lease::new(self.client.0.clone(), acquisition)),
            mode,
        };
        Ok(taken.map(guard))
    }

    /// The server counts whole seconds.
    fn options(&self, mode: LockMode, lease: Duration) -> Result<LeaseOptions> {
        check_lease(lease).map_err(|error| self.lock(mode).add_context(error))?;
        let seconds = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
        Ok(LeaseOptions {
            lease: Duration::from_secs(seconds),
            renewal: RenewalPolicy::Manual,
            ..self.client.settings.lease_options()
        })
    }
}

debug_fields!(|lock| TwoKeyRwLock { keys: lock.keys[0].name, slot: lock.slot(), .. });

/// The guard of a [`TwoKeyRwLock`].
///
/// It is not renewed. If its lease ends before it is released, the lock is lost, and
/// [`on_lease_lost`](crate::ClientBuilder::on_lease_lost) is called. Dropping it releases the lock
/// in the background.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct TwoKeyGuard {
    hold: Hold,
    mode: LockMode,
}

impl TwoKeyGuard {
    /// Returns whether it is held for reading or for writing.
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// Returns the time left of the lease, less the margin. Other clients may have ended it before
    /// (see [the hazards](TwoKeyRwLock#hazards)).
    pub fn remaining(&self) -> Duration {
        self.hold.0.remaining()
    }

    /// Releases the lock and returns the outcome. One round trip. For a reader,
    /// [`ReleaseOutcome::AlreadyLost`] also means that a later reader owns the key now.
    ///
    /// # Errors
    ///
    /// [`Rejected`](ErrorKind::Rejected), [`WrongType`](ErrorKind::WrongType). An unreachable
    /// server is not an error but [`ReleaseOutcome::Unknown`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the release is finished in the background.
    pub async fn release(self) -> Result<ReleaseOutcome> {
        self.hold.release().await
    }
}

debug_fields!(|guard| TwoKeyGuard {
    lock: guard.hold.0.name(),
    mode: guard.mode,
    remaining: guard.remaining()
});
