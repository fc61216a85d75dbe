//! The runtime of the client. What one call begins for others as well runs there: the runtime that
//! the call is polled on may end, or stand still, while the others wait.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::health::ClientHealth;

/// The runtime on which the client was made, and the health of the client, to which all its tasks
/// report.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeHandle {
    handle: Handle,
    health: ClientHealth,
}

impl RuntimeHandle {
    /// The runtime of the caller. Clients are made on one.
    pub(crate) fn current(health: ClientHealth) -> RuntimeHandle {
        RuntimeHandle { handle: Handle::current(), health }
    }

    pub(crate) fn health(&self) -> &ClientHealth {
        &self.health
    }

    /// Spawns a task there, from any thread. If that runtime has ended, the task is dropped at
    /// once. If the task panics, the client has failed.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.handle.spawn(self.health.clone().watch(name, task))
    }

    /// As `spawn`, for the task without which the client cannot work: if it is dropped before its
    /// end, the client has failed.
    pub(crate) fn spawn_vital(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.handle.spawn(self.health.clone().watch_to_end(name, task));
    }
}
