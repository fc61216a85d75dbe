//! A task that is aborted when its owner is dropped.

use tokio::task::{AbortHandle, JoinHandle};

#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
use crate::health::ClientHealth;

/// Aborts the task when it is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    pub(crate) fn new(task: JoinHandle<()>) -> AbortOnDrop {
        AbortOnDrop(task.abort_handle())
    }

    /// Spawns a task of a connection. If it panics, the client has failed.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn spawn(
        health: &ClientHealth,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDrop {
        AbortOnDrop::new(tokio::spawn(health.clone().watch(name, task)))
    }

    /// Aborts it now.
    pub(crate) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort();
    }
}
