use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use rwlease_core::protocol::{LockKey, LockKind};

use crate::client::ClientHandle;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::lock::mutex;
use crate::lock::reentrant::guards::{
    ReentrantReadGuard, ReentrantSetNxMutexGuard, ReentrantWriteGuard,
};
use crate::lock::reentrant::owned_lock::OwnedLock;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;
use crate::lock::set_nx_mutex::SetNxMutex;
use crate::locks;

/// From this many locks on, a `ReentrantOwner` forgets the locks that it does not hold.
const MIN_CLEANUP_LEN: usize = 64;

/// An actor that may hold the same lock again.
///
/// Within a write it may read or write, within a read it may read, and within a mutex it may lock
/// that mutex. A write within a read is an [upgrade](crate::ReadGuard::upgrade), and can fail with
/// [`UpgradeConflict`](ErrorKind::UpgradeConflict).
///
/// Acquiring a lock that this task already holds deadlocks. Code that holds a lock and calls code
/// that acquires the same lock must pass it a `ReentrantOwner`. A `ReentrantOwner` counts its
/// guards locally, so acquiring the lock again is no round trip. All its guards for one lock share
/// one [`Lease`](crate::Lease), with the options of the first request. They can be released in any
/// order. When the last write is released and reads are left, the lease becomes a read. When all
/// are released, the lease ends.
///
/// Clones are the same `ReentrantOwner`. Tasks that share one do not exclude each other: make one
/// for each task or request. Its requests for one lock run one after the other.
/// Dropping a clone does not affect other clones.
///
/// ```no_run
/// # async fn example(client: rwlease::Client) -> rwlease::Result<()> {
/// let (reentrant, order) = (client.reentrant_owner(), client.rwlock("order:{42}")?);
/// let writing = reentrant.write(&order).await?;
/// let reading = reentrant.read(&order).await?; // at once
/// assert!(writing.release().await?.was_held()); // from here on it reads
/// # assert!(reading.release().await?.was_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReentrantOwner {
    pub(super) client: Arc<ClientHandle>,
    locks: Arc<Mutex<OwnedLocks>>,
}

/// By kind and key: a mutex and a read/write lock with one key are different locks.
type OwnedLocks = HashMap<(LockKind, Bytes), Weak<OwnedLock>>;

impl ReentrantOwner {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        ReentrantOwner { client, locks: Arc::default() }
    }

    /// Acquires the lock for reading, as [`RwLock::read`] does, or shares the lease if this owner
    /// holds the lock already.
    pub fn read<'a>(&'a self, lock: &'a RwLock) -> Acquire<'a, ReentrantReadGuard> {
        Acquire::new(&lock.client, &lock.lock, Some(self))
    }

    /// Acquires the lock for writing, as [`RwLock::write`] does, or shares the lease if this owner
    /// writes already. If it reads, this is an upgrade.
    pub fn write<'a>(&'a self, lock: &'a RwLock) -> Acquire<'a, ReentrantWriteGuard> {
        Acquire::new(&lock.client, &lock.lock, Some(self))
    }

    /// Tries to acquire the lock for reading, as [`RwLock::try_read`] does, or shares the lease if
    /// this owner holds the lock already.
    pub fn try_read<'a>(&'a self, lock: &'a RwLock) -> TryAcquire<'a, ReentrantReadGuard> {
        TryAcquire(Acquire::new(&lock.client, &lock.lock, Some(self)))
    }

    /// Tries to acquire the lock for writing, as [`RwLock::try_write`] does, or shares the lease if
    /// this owner writes already. If it reads, this is an upgrade.
    pub fn try_write<'a>(&'a self, lock: &'a RwLock) -> TryAcquire<'a, ReentrantWriteGuard> {
        TryAcquire(Acquire::new(&lock.client, &lock.lock, Some(self)))
    }

    /// Acquires the mutex, as [`Mutex::lock`](crate::Mutex::lock) does, or shares the lease if this
    /// owner holds the mutex already.
    pub fn lock<'a>(&'a self, mutex: &'a mutex::Mutex) -> Acquire<'a, ReentrantWriteGuard> {
        self.write(mutex.rwlock())
    }

    /// Tries to acquire the mutex, as [`Mutex::try_lock`](crate::Mutex::try_lock) does, or shares
    /// the lease if this owner holds the mutex already.
    pub fn try_lock<'a>(&'a self, mutex: &'a mutex::Mutex) -> TryAcquire<'a, ReentrantWriteGuard> {
        self.try_write(mutex.rwlock())
    }

    /// Acquires the mutex of `SET NX PX`, as [`SetNxMutex::lock`] does, or shares the lease if this
    /// owner holds the mutex already.
    pub fn lock_set_nx<'a>(
        &'a self,
        mutex: &'a SetNxMutex,
    ) -> Acquire<'a, ReentrantSetNxMutexGuard> {
        Acquire::new(&mutex.client, &mutex.lock, Some(self))
    }

    /// Tries to acquire the mutex of `SET NX PX`, as [`SetNxMutex::try_lock`] does, or shares the
    /// lease if this owner holds the mutex already.
    pub fn try_lock_set_nx<'a>(
        &'a self,
        mutex: &'a SetNxMutex,
    ) -> TryAcquire<'a, ReentrantSetNxMutexGuard> {
        TryAcquire(Acquire::new(&mutex.client, &mutex.lock, Some(self)))
    }

    pub(super) fn owned_lock(&self, lock: &LockKey) -> Arc<OwnedLock> {
        let mut locks = locks::lock(&self.locks);
        let key = (lock.kind, lock.key.clone());
        if let Some(owned) = locks.get(&key).and_then(Weak::upgrade) {
            return owned;
        }
        if locks.len() >= MIN_CLEANUP_LEN && locks.len() == locks.capacity() {
            locks.retain(|_, owned| owned.strong_count() > 0);
        }
        let owned = Arc::new(OwnedLock::default());
        locks.insert(key, Arc::downgrade(&owned));
        owned
    }
}

debug_fields!(|_| ReentrantOwner { .. });
