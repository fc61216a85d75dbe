//! Read/write locks for programs without a runtime.

use crate::blocking::background_runtime::run;
use crate::blocking::request::Request;
use crate::error::Result;
use crate::lock::cached::guard::{CachedReadGuard, CachedWriteGuard};
use crate::lock::cached::request::{CachedAcquire, TryCached};
use crate::lock::cached::{self, LocalStatus};
use crate::lock::guard::{ReadGuard, WriteGuard};
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::revoke::{ForcedRelease, Revocation};
use crate::lock::rwlock;
use crate::lock::status::StatusQuery;
use crate::slot::Slot;

/// [`RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
pub struct RwLock(pub(super) rwlock::RwLock);

impl RwLock {
    /// As [`RwLock::name`](crate::RwLock::name).
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`RwLock::slot`](crate::RwLock::slot).
    pub fn slot(&self) -> Slot {
        self.0.slot()
    }

    /// As [`RwLock::read`](crate::RwLock::read). Acquiring it while this thread holds it for
    /// writing deadlocks; use [`Reentrant`](super::Reentrant).
    pub fn read(&self) -> Request<Acquire<'_, ReadGuard>> {
        Request(self.0.read())
    }

    /// As [`RwLock::write`](crate::RwLock::write). Acquiring it while this thread holds it
    /// deadlocks; use [`Reentrant`](super::Reentrant).
    pub fn write(&self) -> Request<Acquire<'_, WriteGuard>> {
        Request(self.0.write())
    }

    /// As [`RwLock::try_read`](crate::RwLock::try_read).
    pub fn try_read(&self) -> Request<TryAcquire<'_, ReadGuard>> {
        Request(self.0.try_read())
    }

    /// As [`RwLock::try_write`](crate::RwLock::try_write).
    pub fn try_write(&self) -> Request<TryAcquire<'_, WriteGuard>> {
        Request(self.0.try_write())
    }

    /// As [`RwLock::cached`](crate::RwLock::cached).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn cached(&self) -> Result<CachedRwLock> {
        self.0.cached().map(CachedRwLock)
    }

    /// As [`RwLock::status`](crate::RwLock::status).
    pub fn status(&self) -> Request<StatusQuery<'_>> {
        Request(self.0.status())
    }

    /// As [`RwLock::is_locked`](crate::RwLock::is_locked).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn is_locked(&self) -> Result<bool> {
        run(self.0.is_locked())?
    }

    /// As [`RwLock::is_held_by`](crate::RwLock::is_held_by).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn is_held_by(&self, id: impl AsRef<str> + Send) -> Result<bool> {
        run(self.0.is_held_by(id))?
    }

    /// As [`RwLock::revoke`](crate::RwLock::revoke).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn revoke(&self) -> Result<Option<Revocation>> {
        run(self.0.revoke())?
    }

    /// As [`RwLock::force_release`](crate::RwLock::force_release).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn force_release(&self) -> Result<Option<ForcedRelease>> {
        run(self.0.force_release())?
    }
}

/// [`CachedRwLock`](crate::CachedRwLock).
#[derive(Clone, Debug)]
pub struct CachedRwLock(cached::CachedRwLock);

impl CachedRwLock {
    /// As [`CachedRwLock::name`](crate::CachedRwLock::name).
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`CachedRwLock::slot`](crate::CachedRwLock::slot).
    pub fn slot(&self) -> Slot {
        self.0.slot()
    }

    /// As [`CachedRwLock::read`](crate::CachedRwLock::read). Acquiring it while this thread holds
    /// it for writing deadlocks.
    pub fn read(&self) -> Request<CachedAcquire<'_, CachedReadGuard>> {
        Request(self.0.read())
    }

    /// As [`CachedRwLock::write`](crate::CachedRwLock::write). Acquiring it while this thread holds
    /// it deadlocks.
    pub fn write(&self) -> Request<CachedAcquire<'_, CachedWriteGuard>> {
        Request(self.0.write())
    }

    /// As [`CachedRwLock::try_read`](crate::CachedRwLock::try_read).
    pub fn try_read(&self) -> Request<TryCached<'_, CachedReadGuard>> {
        Request(self.0.try_read())
    }

    /// As [`CachedRwLock::try_write`](crate::CachedRwLock::try_write).
    pub fn try_write(&self) -> Request<TryCached<'_, CachedWriteGuard>> {
        Request(self.0.try_write())
    }

    /// As [`CachedRwLock::local`](crate::CachedRwLock::local).
    pub fn local(&self) -> LocalStatus {
        self.0.local()
    }
}
