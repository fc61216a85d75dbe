//! A task that is aborted when its owner is dropped.

use tokio::task::AbortHandle;

use crate::health::ClientHealth;

/// Aborts the task when it is dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    /// Spawns a task of a connection. If it panics, the client has failed.
    pub(super) fn spawn(
        health: &ClientHealth,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDrop {
        AbortOnDrop(tokio::spawn(health.clone().watch(name, task)).abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
