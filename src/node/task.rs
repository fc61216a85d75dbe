//! A task that is aborted when its owner is dropped.

use tokio::task::{AbortHandle, JoinHandle};

/// Aborts the task when it is dropped.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    pub(super) fn of(handle: JoinHandle<()>) -> Task {
        Task(handle.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
