//! The semaphore for programs without a runtime.

use crate::blocking::background_runtime::run;
use crate::blocking::request::Request;
use crate::error::Result;
use crate::lock::guard::SemaphoreGuard;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::semaphore;
use crate::lock::semaphore::status::SemaphoreStatusQuery;
use crate::slot::Slot;

/// [`Semaphore`](crate::Semaphore).
#[derive(Clone, Debug)]
pub struct Semaphore(pub(super) semaphore::Semaphore);

impl Semaphore {
    /// As [`Semaphore::name`](crate::Semaphore::name).
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`Semaphore::slot`](crate::Semaphore::slot).
    pub fn slot(&self) -> Slot {
        self.0.slot()
    }

    /// As [`Semaphore::limit`](crate::Semaphore::limit).
    pub fn limit(&self) -> u32 {
        self.0.limit()
    }

    /// As [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self, permits: u32) -> Request<Acquire<'_, SemaphoreGuard>> {
        Request(self.0.acquire(permits))
    }

    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    pub fn try_acquire(&self, permits: u32) -> Request<TryAcquire<'_, SemaphoreGuard>> {
        Request(self.0.try_acquire(permits))
    }

    /// As [`Semaphore::set_limit`](crate::Semaphore::set_limit).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn set_limit(&self, expected: u32, new: u32) -> Result<Semaphore> {
        run(self.0.set_limit(expected, new))?.map(Semaphore)
    }

    /// As [`Semaphore::status`](crate::Semaphore::status).
    pub fn status(&self) -> Request<SemaphoreStatusQuery<'_>> {
        Request(self.0.status())
    }
}
