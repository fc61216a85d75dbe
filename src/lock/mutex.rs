use std::sync::Arc;

use crate::client::ClientHandle;
use crate::error::Result;
use crate::lock::guard::MutexGuard;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::rwlock::RwLock;

/// A mutex that all clients of the cluster share by its name: fair, with fencing tokens.
///
/// It is the write side of the [`RwLock`] with the same name, on the same key. So a mutex and a
/// read/write lock of one name exclude each other. [`rwlock`](Self::rwlock) returns that lock, for
/// its status and to remove a holder.
///
/// The handle is local: making or cloning it is no round trip and leaves nothing on the server. For
/// a mutex that other libraries can share, see [`SetNxMutex`](crate::SetNxMutex), which has neither
/// a queue nor tokens.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let ledger = client.mutex("ledger")?;
/// let guard = ledger.lock().await?;
/// println!("token {}", guard.fencing_token());
/// assert!(ledger.try_lock().await?.is_none());
/// assert!(guard.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Fairness
///
/// First in, first out.
#[derive(Clone)]
pub struct Mutex {
    lock: RwLock,
}

impl Mutex {
    pub(crate) fn new(client: Arc<ClientHandle>, name: &str) -> Result<Self> {
        Ok(Mutex { lock: RwLock::new(client, name)? })
    }

    /// Acquires the mutex. It waits without a limit unless [`timeout`](Acquire::timeout) sets one.
    ///
    /// Acquiring a mutex that this task already holds deadlocks; use
    /// [`ReentrantOwner`](crate::ReentrantOwner).
    pub fn lock(&self) -> Acquire<'_, MutexGuard> {
        Acquire::new(&self.lock.client, &self.lock.lock, None)
    }

    /// Acquires the mutex if that needs no wait for others.
    pub fn try_lock(&self) -> TryAcquire<'_, MutexGuard> {
        TryAcquire(self.lock())
    }

    /// Returns the read/write lock with the same name, whose write side this is. Use it for the
    /// [`status`](RwLock::status), and to [`revoke`](RwLock::revoke) a lease or release the lock by
    /// force.
    pub fn rwlock(&self) -> &RwLock {
        &self.lock
    }

    name_and_slot!("mutex", lock.lock);
}

debug_fields!(|mutex| Mutex { name: mutex.name(), slot: mutex.slot(), .. });
