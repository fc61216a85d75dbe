//! The runtime of the client. What one call begins for others as well runs there: the runtime that
//! the call is polled on may end, or stand still, while the others wait.

use std::future::Future;

use rwlease_core::protocol::CallErrorKind;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::health::ClientHealth;

/// The runtime of the client, and the health of the client. All tasks report failures to it.
#[derive(Clone)]
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

    /// The reason of calls to a client that was shut down, or has failed.
    pub(crate) fn closed(&self) -> CallErrorKind {
        self.health.failure().map_or(CallErrorKind::Closed, |failure| {
            CallErrorKind::ClientFailed(failure.to_string())
        })
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

    /// As `spawn`, for the task that the client cannot work without. If the task is dropped before
    /// its end, the client fails.
    pub(crate) fn spawn_vital(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.handle.spawn(self.health.clone().watch_to_end(name, task));
    }
}
