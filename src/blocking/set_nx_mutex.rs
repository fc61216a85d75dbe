//! The plain mutex for programs without a runtime.

use crate::blocking::background_runtime::run;
use crate::blocking::request::Request;
use crate::error::Result;
use crate::lock::guard::MutexGuard;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::set_nx_mutex::{self, MutexStatus};
use crate::slot::Slot;

/// [`Mutex`](crate::Mutex).
#[derive(Clone, Debug)]
pub struct Mutex(pub(super) set_nx_mutex::Mutex);

impl Mutex {
    /// As [`Mutex::name`](crate::Mutex::name).
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`Mutex::slot`](crate::Mutex::slot).
    pub fn slot(&self) -> Slot {
        self.0.slot()
    }

    /// As [`Mutex::lock`](crate::Mutex::lock). Acquiring it while this thread holds it deadlocks;
    /// use [`Reentrant`](super::Reentrant).
    pub fn lock(&self) -> Request<Acquire<'_, MutexGuard>> {
        Request(self.0.lock())
    }

    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub fn try_lock(&self) -> Request<TryAcquire<'_, MutexGuard>> {
        Request(self.0.try_lock())
    }

    /// As [`Mutex::status`](crate::Mutex::status).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn status(&self) -> Result<Option<MutexStatus>> {
        run(self.0.status())?
    }

    /// As [`Mutex::is_locked`](crate::Mutex::is_locked).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn is_locked(&self) -> Result<bool> {
        run(self.0.is_locked())?
    }

    /// As [`Mutex::is_held_by`](crate::Mutex::is_held_by).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn is_held_by(&self, value: impl AsRef<[u8]> + Send) -> Result<bool> {
        run(self.0.is_held_by(value))?
    }
}
