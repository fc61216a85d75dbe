//! A task that is aborted when its owner is dropped.

use tokio::task::AbortHandle;

use crate::health::ClientHealth;

/// Aborts the task when it is dropped.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    /// Spawns a task of a connection. If it panics, the client has failed.
    pub(super) fn spawn(
        health: &ClientHealth,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        Task(tokio::spawn(health.clone().watch(name, task)).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
