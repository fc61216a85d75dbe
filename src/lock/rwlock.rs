//! The read/write lock.

use std::fmt;
use std::sync::Arc;

use crate::client::ClientHandle;
use crate::error::Result;
use crate::lock::guard::{ReadGuard, WriteGuard};
use crate::lock::request::{Acquire, TryAcquire};
use crate::protocol::{LockKey, LockKind};
use crate::slot::Slot;

/// A read/write lock that all clients of the cluster share by its name.
///
/// The handle is local: making or cloning it is no round trip and leaves nothing on the server.
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
        let lock = LockKey::new(LockKind::ReadWrite, &client.settings.key_prefix, name)?;
        Ok(RwLock { client, lock })
    }

    /// The lock's name, as given.
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// The slot of the lock's key.
    pub fn slot(&self) -> Slot {
        self.lock.slot
    }

    /// Acquires the lock for reading. It waits without a limit unless [`timeout`](Acquire::timeout)
    /// sets one.
    ///
    /// Acquiring it while this task holds the lock for writing deadlocks; use
    /// [`Reentrant`](crate::Reentrant).
    pub fn read(&self) -> Acquire<'_, ReadGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Acquires the lock for writing. It waits without a limit unless [`timeout`](Acquire::timeout)
    /// sets one.
    ///
    /// Acquiring it while this task holds the lock, for reading or writing, deadlocks; use
    /// [`Reentrant`](crate::Reentrant).
    pub fn write(&self) -> Acquire<'_, WriteGuard> {
        Acquire::new(&self.client, &self.lock, None)
    }

    /// Acquires the lock for reading if that needs no wait for others.
    pub fn try_read(&self) -> TryAcquire<'_, ReadGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }

    /// Acquires the lock for writing if that needs no wait for others.
    pub fn try_write(&self) -> TryAcquire<'_, WriteGuard> {
        TryAcquire(Acquire::new(&self.client, &self.lock, None))
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name())
            .field("slot", &self.slot())
            .finish_non_exhaustive()
    }
}
