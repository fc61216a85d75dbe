//! The blocking `Reentrant` and `Quorum`.

use crate::blocking::client::Locks;
use crate::blocking::request::Request;
use crate::blocking::rwlock::RwLock;
use crate::blocking::set_nx_mutex::Mutex;
use crate::error::Result;
use crate::lock::quorum::request::QuorumAcquire;
use crate::lock::reentrant::{ReentrantMutexGuard, ReentrantReadGuard, ReentrantWriteGuard};
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::{quorum, reentrant};

/// [`Reentrant`](crate::Reentrant).
#[derive(Clone, Debug)]
pub struct Reentrant(pub(super) reentrant::Reentrant);

impl Reentrant {
    /// As [`Reentrant::read`](crate::Reentrant::read).
    pub fn read<'a>(&'a self, lock: &'a RwLock) -> Request<Acquire<'a, ReentrantReadGuard>> {
        Request(self.0.read(&lock.0))
    }

    /// As [`Reentrant::write`](crate::Reentrant::write).
    pub fn write<'a>(&'a self, lock: &'a RwLock) -> Request<Acquire<'a, ReentrantWriteGuard>> {
        Request(self.0.write(&lock.0))
    }

    /// As [`Reentrant::try_read`](crate::Reentrant::try_read).
    pub fn try_read<'a>(&'a self, lock: &'a RwLock) -> Request<TryAcquire<'a, ReentrantReadGuard>> {
        Request(self.0.try_read(&lock.0))
    }

    /// As [`Reentrant::try_write`](crate::Reentrant::try_write).
    pub fn try_write<'a>(
        &'a self,
        lock: &'a RwLock,
    ) -> Request<TryAcquire<'a, ReentrantWriteGuard>> {
        Request(self.0.try_write(&lock.0))
    }

    /// As [`Reentrant::lock`](crate::Reentrant::lock).
    pub fn lock<'a>(&'a self, mutex: &'a Mutex) -> Request<Acquire<'a, ReentrantMutexGuard>> {
        Request(self.0.lock(&mutex.0))
    }

    /// As [`Reentrant::try_lock`](crate::Reentrant::try_lock).
    pub fn try_lock<'a>(
        &'a self,
        mutex: &'a Mutex,
    ) -> Request<TryAcquire<'a, ReentrantMutexGuard>> {
        Request(self.0.try_lock(&mutex.0))
    }
}

/// [`Quorum`](crate::Quorum).
#[derive(Clone, Debug)]
pub struct Quorum(quorum::Quorum);

impl Quorum {
    /// As [`Quorum::new`](crate::Quorum::new).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn new(members: impl IntoIterator<Item = Locks>) -> Result<Quorum> {
        quorum::Quorum::new(members.into_iter().map(|member| member.0)).map(Quorum)
    }

    /// As [`Quorum::majority`](crate::Quorum::majority).
    pub fn majority(&self) -> usize {
        self.0.majority()
    }

    /// As [`Quorum::mutex`](crate::Quorum::mutex).
    pub fn mutex(&self, name: impl AsRef<str>) -> Request<QuorumAcquire> {
        Request(self.0.mutex(name))
    }

    /// As [`Quorum::read`](crate::Quorum::read).
    pub fn read(&self, name: impl AsRef<str>) -> Request<QuorumAcquire> {
        Request(self.0.read(name))
    }

    /// As [`Quorum::write`](crate::Quorum::write).
    pub fn write(&self, name: impl AsRef<str>) -> Request<QuorumAcquire> {
        Request(self.0.write(name))
    }
}
