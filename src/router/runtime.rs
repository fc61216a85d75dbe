//! The runtime of the client. What one call begins for others as well runs there: the runtime that
//! the call is polled on may end, or stand still, while the others wait.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// The runtime on which the client was made.
#[derive(Clone, Debug)]
pub(crate) struct Runtime(Handle);

impl Runtime {
    /// The runtime of the caller. Clients are made on one.
    pub(crate) fn current() -> Runtime {
        Runtime(Handle::current())
    }

    /// Spawns a task there, from any thread. If that runtime has ended, the task is dropped at
    /// once.
    pub(crate) fn spawn<T>(&self, task: T) -> JoinHandle<T::Output>
    where
        T: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(task)
    }
}
