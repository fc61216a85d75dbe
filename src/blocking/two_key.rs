//! The two-key lock of older fleets, for programs without a runtime.

use std::ops::Deref;
use std::time::Duration;

use crate::blocking::background_runtime::run;
use crate::blocking::client::Locks;
use crate::error::Result;
use crate::lock::guard::Released;
use crate::lock::two_key;
use crate::slot::Slot;

/// [`TwoKeyRwLock`](crate::TwoKeyRwLock), with its hazards.
#[derive(Clone, Debug)]
pub struct TwoKeyRwLock(two_key::TwoKeyRwLock);

impl TwoKeyRwLock {
    /// As [`TwoKeyRwLock::new`](crate::TwoKeyRwLock::new).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn new(
        locks: &Locks,
        read_key: impl AsRef<[u8]>,
        write_key: impl AsRef<[u8]>,
    ) -> Result<Self> {
        two_key::TwoKeyRwLock::new(&locks.0, read_key, write_key).map(TwoKeyRwLock)
    }

    /// As [`TwoKeyRwLock::tagged`](crate::TwoKeyRwLock::tagged).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn tagged(locks: &Locks, name: &str) -> Result<Self> {
        two_key::TwoKeyRwLock::tagged(&locks.0, name).map(TwoKeyRwLock)
    }

    /// As [`TwoKeyRwLock::keys`](crate::TwoKeyRwLock::keys).
    pub fn keys(&self) -> [&[u8]; 2] {
        self.0.keys()
    }

    /// As [`TwoKeyRwLock::slot`](crate::TwoKeyRwLock::slot).
    pub fn slot(&self) -> Slot {
        self.0.slot()
    }

    /// As [`TwoKeyRwLock::try_read`](crate::TwoKeyRwLock::try_read).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn try_read(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        Ok(run(self.0.try_read(lease))??.map(TwoKeyGuard))
    }

    /// As [`TwoKeyRwLock::try_write`](crate::TwoKeyRwLock::try_write).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn try_write(&self, lease: Duration) -> Result<Option<TwoKeyGuard>> {
        Ok(run(self.0.try_write(lease))??.map(TwoKeyGuard))
    }

    /// As [`TwoKeyRwLock::read`](crate::TwoKeyRwLock::read).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn read(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        run(self.0.read(lease, timeout))?.map(TwoKeyGuard)
    }

    /// As [`TwoKeyRwLock::write`](crate::TwoKeyRwLock::write).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn write(&self, lease: Duration, timeout: Duration) -> Result<TwoKeyGuard> {
        run(self.0.write(lease, timeout))?.map(TwoKeyGuard)
    }
}

/// [`TwoKeyGuard`](crate::TwoKeyGuard).
///
/// It derefs to that type, for what does not wait. Dropping it releases the lock in the background
/// and never blocks.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct TwoKeyGuard(two_key::TwoKeyGuard);

impl TwoKeyGuard {
    /// As [`TwoKeyGuard::release`](crate::TwoKeyGuard::release).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime; the lock is then released in the background.
    pub fn release(self) -> Result<Released> {
        run(self.0.release())?
    }
}

impl Deref for TwoKeyGuard {
    type Target = two_key::TwoKeyGuard;

    fn deref(&self) -> &two_key::TwoKeyGuard {
        &self.0
    }
}
