//! Reentrant holders.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use futures::future::{Either, select};

use crate::client::ClientHandle;
use crate::client::acquire_task;
use crate::client::acquisition::{self, AcquisitionEvent};
use crate::client::lease_options::WaitPolicy;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::{Guard, Hold, Released, sealed};
use crate::lock::lease::Lease;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;
use crate::lock::set_nx_mutex::Mutex as PlainMutex;
use crate::protocol::{LockKey, LockKind, LockMode};

/// A `Reentrant` with at least this many locks drops the entries of those it no longer holds.
const MANY: usize = 64;

/// An actor that may hold the same lock again: a read or a write within a write, a read within a
/// read, a mutex within itself. A write within a read is an [upgrade](crate::ReadGuard::upgrade),
/// and can fail with [`Conflict`](ErrorKind::Conflict).
///
/// Acquiring a lock that this task already holds deadlocks. Code that holds a lock and calls code
/// that acquires the same lock must pass it a `Reentrant`. A `Reentrant` counts its guards locally,
/// so acquiring the lock again is no round trip. All its guards for one lock share one [`Lease`],
/// with the options of the first request. They can be released in any order. When the last write is
/// released and reads are left, the lease becomes a read. When all are released, the lease ends.
///
/// Clones are the same `Reentrant`. Its requests for one lock run one after the other. Dropping one
/// of them does not affect the others.
///
/// ```no_run
/// # async fn example(locks: rwlease::Locks) -> rwlease::Result<()> {
/// let (reentrant, order) = (locks.reentrant(), locks.rwlock("order:{42}")?);
/// let writing = reentrant.write(&order).await?;
/// let reading = reentrant.read(&order).await?; // at once
/// assert!(writing.release().await?.was_held()); // from here on it reads
/// # assert!(reading.release().await?.was_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Reentrant {
    client: Arc<ClientHandle>,
    entries: Arc<Mutex<Entries>>,
}

/// By kind and key: a mutex and a read/write lock with one key are different locks.
type Entries = HashMap<(LockKind, Bytes), Weak<Entry>>;

impl Reentrant {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        let entries = Arc::default();
        Reentrant { client, entries }
    }

    /// As [`RwLock::read`].
    pub fn read<'a>(&'a self, lock: &'a RwLock) -> Acquire<'a, ReentrantReadGuard> {
        Acquire::new(&lock.client, &lock.lock, Some(self))
    }

    /// As [`RwLock::write`].
    pub fn write<'a>(&'a self, lock: &'a RwLock) -> Acquire<'a, ReentrantWriteGuard> {
        Acquire::new(&lock.client, &lock.lock, Some(self))
    }

    /// As [`RwLock::try_read`].
    pub fn try_read<'a>(&'a self, lock: &'a RwLock) -> TryAcquire<'a, ReentrantReadGuard> {
        TryAcquire(Acquire::new(&lock.client, &lock.lock, Some(self)))
    }

    /// As [`RwLock::try_write`].
    pub fn try_write<'a>(&'a self, lock: &'a RwLock) -> TryAcquire<'a, ReentrantWriteGuard> {
        TryAcquire(Acquire::new(&lock.client, &lock.lock, Some(self)))
    }

    /// As [`Mutex::lock`](PlainMutex::lock).
    pub fn lock<'a>(&'a self, mutex: &'a PlainMutex) -> Acquire<'a, ReentrantMutexGuard> {
        Acquire::new(&mutex.client, &mutex.lock, Some(self))
    }

    /// As [`Mutex::try_lock`](PlainMutex::try_lock).
    pub fn try_lock<'a>(&'a self, mutex: &'a PlainMutex) -> TryAcquire<'a, ReentrantMutexGuard> {
        TryAcquire(Acquire::new(&mutex.client, &mutex.lock, Some(self)))
    }

    fn entry(&self, lock: &LockKey) -> Arc<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (lock.kind, lock.key.clone());
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        if entries.len() >= MANY && entries.len() == entries.capacity() {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        let entry = Arc::new(Entry::default());
        entries.insert(key, Arc::downgrade(&entry));
        entry
    }
}

impl fmt::Debug for Reentrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reentrant").finish_non_exhaustive()
    }
}

/// What a `Reentrant` holds of one lock.
#[derive(Debug, Default)]
struct Entry {
    /// Locked by the request that calls the server.
    turn: tokio::sync::Mutex<()>,
    held: Mutex<Option<SharedLease>>,
}

/// A lease, and the number of guards that share it.
#[derive(Debug)]
struct SharedLease {
    hold: Hold,
    reads: usize,
    writes: usize,
    /// Requests that are upgrading the lease: until they count as a write, or give up.
    upgrades: usize,
}

/// What a share is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Read,
    Write,
    Upgrade,
}

/// What is left after a share is released.
enum RemainingShares {
    /// Nothing.
    Nobody(Hold),
    /// Only reads: the lease becomes a read.
    Readers,
    Others,
    /// The lease was lost and has been replaced.
    Stale,
}

impl SharedLease {
    fn count(&mut self, part: Part) -> &mut usize {
        match part {
            Part::Read => &mut self.reads,
            Part::Write => &mut self.writes,
            Part::Upgrade => &mut self.upgrades,
        }
    }

    fn is(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.hold.0.acquisition, &lease.acquisition)
    }
}

/// One share of a lease.
#[derive(Debug)]
struct Share {
    entry: Arc<Entry>,
    lease: Lease,
    part: Part,
    gone: bool,
}

impl Entry {
    fn held(&self) -> MutexGuard<'_, Option<SharedLease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares the current lease, if it allows this part.
    fn join(self: &Arc<Self>, part: Part) -> Option<Share> {
        let mut held = self.held();
        let held = held.as_mut()?;
        let lease = held.hold.0.clone();
        if !lease.is_held() || (part == Part::Write && !lease.stays_writer()) {
            return None;
        }
        *held.count(part) += 1;
        Some(self.share(lease, part))
    }

    /// Starts with a new lease.
    fn begin(self: &Arc<Self>, lease: Lease, part: Part) -> Share {
        let mut new = SharedLease { hold: Hold(lease.clone()), reads: 0, writes: 0, upgrades: 0 };
        *new.count(part) += 1;
        let lost = self.held().replace(new);
        drop(lost);
        self.share(lease, part)
    }

    fn share(self: &Arc<Self>, lease: Lease, part: Part) -> Share {
        Share { entry: self.clone(), lease, part, gone: false }
    }

    fn leave(&self, lease: &Lease, part: Part) -> RemainingShares {
        let mut current = self.held();
        let Some(held) = current.as_mut().filter(|held| held.is(lease)) else {
            return RemainingShares::Stale;
        };
        *held.count(part) -= 1;
        if held.reads + held.writes + held.upgrades == 0 {
            return current
                .take()
                .map_or(RemainingShares::Stale, |held| RemainingShares::Nobody(held.hold));
        }
        // An upgrade that was just granted does not count as a write yet. Its request is about to
        // turn its share into a write, or to drop it.
        if held.writes + held.upgrades == 0 && lease.mode() == Some(LockMode::Write) {
            lease.client.apply(&lease.acquisition, AcquisitionEvent::Downgrade);
            return RemainingShares::Readers;
        }
        RemainingShares::Others
    }
}

impl Share {
    /// Turns this share into one for another part of the same lease.
    fn turn_into(mut self, part: Part) -> Share {
        if let Some(held) = self.entry.held().as_mut().filter(|held| held.is(&self.lease)) {
            *held.count(self.part) -= 1;
            *held.count(part) += 1;
        }
        self.part = part;
        self
    }

    async fn release(mut self) -> Result<Released> {
        self.gone = true;
        match self.entry.leave(&self.lease, self.part) {
            RemainingShares::Nobody(hold) => hold.release().await,
            RemainingShares::Readers => match self.lease.downgraded().await {
                Ok(()) => Ok(Released::Released),
                Err(error) if error.kind() == ErrorKind::Lost => Ok(Released::AlreadyLost),
                Err(_) => Ok(Released::Unknown),
            },
            RemainingShares::Others if self.lease.is_held() => Ok(Released::Released),
            RemainingShares::Others | RemainingShares::Stale => Ok(Released::AlreadyLost),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.gone {
            drop(self.entry.leave(&self.lease, self.part));
        }
    }
}

/// Takes a share of the current lease, or acquires or upgrades one at the server.
async fn take<G>(
    request: &Acquire<'_, G>,
    mode: LockMode,
    policy: WaitPolicy,
) -> Result<Option<Share>> {
    let Acquire { client, lock, options, reentrant: Some(reentrant), .. } = request else {
        return Err(request.lock.add_context(Error::invalid("a request of nobody")));
    };
    if !Arc::ptr_eq(client, &reentrant.client) {
        return Err(
            lock.add_context(Error::invalid("the reentrant and the lock are of different clients"))
        );
    }
    let part = match mode {
        LockMode::Read => Part::Read,
        LockMode::Write => Part::Write,
    };
    let entry = reentrant.entry(lock);
    if let Some(share) = entry.join(part) {
        return Ok(Some(share));
    }
    let _turn = match policy {
        WaitPolicy::Try { .. } => match entry.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => return Ok(None), // another request of this `Reentrant` waits for others
        },
        WaitPolicy::Queue { deadline: None } => entry.turn.lock().await,
        WaitPolicy::Queue { deadline: Some(until) } => {
            let turn = std::pin::pin!(entry.turn.lock());
            match select(turn, client.clock.sleep_until(until)).await {
                Either::Left((turn, _)) => turn,
                Either::Right(_) => return Err(lock.add_context(acquisition::timed_out_error())),
            }
        }
    };
    if let Some(share) = entry.join(part) {
        return Ok(Some(share));
    }
    if let Some(upgrade) = entry.join(Part::Upgrade) {
        let granted = upgrade.lease.become_writer(policy).await?;
        return Ok(granted.then(|| upgrade.turn_into(Part::Write)));
    }
    let taken = acquire_task::acquire(client, lock, mode, options, policy).await?;
    Ok(taken.map(|acquisition| entry.begin(Lease::new(client.0.clone(), acquisition), part)))
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// The guard derefs to the [`Lease`] that all guards of the [`Reentrant`] for this lock
        /// share. Dropping it releases it in the background.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(Share);

        impl $name {
            /// Releases this guard and returns the outcome. One round trip for the last guard of
            /// the [`Reentrant`], and for the last write if reads are left; none otherwise.
            ///
            /// # Errors
            ///
            /// As [`ReadGuard::release`](crate::ReadGuard::release).
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: if the future is dropped, the release is finished in the background.
            pub async fn release(self) -> Result<Released> {
                self.0.release().await
            }
        }

        impl Deref for $name {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                &self.0.lease
            }
        }

        impl sealed::Guard for $name {
            async fn acquire(
                request: &Acquire<'_, Self>,
                policy: WaitPolicy,
            ) -> Result<Option<Self>> {
                Ok(take(request, $mode, policy).await?.map($name))
            }

            fn as_lease(&self) -> &Lease {
                self
            }

            async fn give_back(self) -> Result<Released> {
                self.release().await
            }
        }

        impl Guard for $name {}
    };
}

guard! {
    /// A lock that a [`Reentrant`] holds for reading, or also for writing.
    ReentrantReadGuard, LockMode::Read
}

guard! {
    /// A lock that a [`Reentrant`] holds for writing.
    ReentrantWriteGuard, LockMode::Write
}

guard! {
    /// A [`Mutex`](crate::Mutex) that a [`Reentrant`] holds.
    ReentrantMutexGuard, LockMode::Write
}
