//! Whether a client can go on: what a panic in one of its tasks means for it, and the end of its
//! runtime.
//!
//! The caller's code runs in the library's tasks: callbacks, which are caught one by one
//! ([`catch`]), and the subscriber of `tracing` and the recorder of metrics, which run within any
//! step. A step that ends in its middle leaves nothing to go on from. So a panic in a task,
//! wherever it comes from, ends the whole client.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
#[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
use tokio_util::task::AbortOnDropHandle;

use crate::on_drop::OnDrop;

/// Why a client has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFailure {
    #[error(
        "the client has failed: its task `{task}` panicked: {message}; fix the cause, and make a new client"
    )]
    TaskPanicked { task: &'static str, message: String },
    #[error(
        "the client has failed: the runtime that it was made on has ended; make a client on a runtime that outlives it"
    )]
    RuntimeEnded,
}

/// The health of one client. All its tasks share it. The first failure stays.
#[derive(Clone, Default)]
pub struct ClientHealth(Arc<HealthState>);

#[derive(Default)]
struct HealthState {
    failure: OnceLock<ClientFailure>,
    on_failure: OnceLock<Box<dyn Fn() + Send + Sync>>,
    has_ended: AtomicBool,
}

impl ClientHealth {
    pub(crate) fn failure(&self) -> Option<&ClientFailure> {
        self.0.failure.get()
    }

    /// Sets the function that ends the client after its failure. It is called once.
    pub(crate) fn on_failure(&self, end: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_failure.set(Box::new(end));
        if self.failure().is_some() {
            self.end();
        }
    }

    /// Runs a task of the client. If it panics, the client has failed.
    pub(crate) async fn watch(self, name: &'static str, task: impl Future<Output = ()>) {
        if let Err(payload) = AssertUnwindSafe(task).catch_unwind().await {
            self.fail(ClientFailure::TaskPanicked { task: name, message: message_of(payload) });
        }
    }

    /// As `watch`, for a task that nothing aborts: if it is dropped before its end, its runtime has
    /// ended.
    pub(crate) async fn watch_to_end(self, name: &'static str, task: impl Future<Output = ()>) {
        let health = self.clone();
        let runtime_end = OnDrop::new(move || health.fail(ClientFailure::RuntimeEnded));
        self.watch(name, task).await;
        runtime_end.disarm();
    }

    /// Spawns a task of a connection, which is aborted when the handle is dropped. If it panics,
    /// the client has failed.
    #[cfg(any(feature = "native", feature = "redis", feature = "fred"))]
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(self.clone().watch(name, task)))
    }

    fn fail(&self, failure: ClientFailure) {
        if self.0.failure.set(failure).is_ok() {
            self.end();
        }
    }

    fn end(&self) {
        if let Some(end) = self.0.on_failure.get()
            && !self.0.has_ended.swap(true, Ordering::AcqRel)
        {
            end();
        }
    }
}

/// Calls the caller's code. The error is the text of its panic.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.map_err(message_of)
}

/// Awaits the caller's code. The error is the text of its panic.
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) async fn catch_future<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(message_of)
}

/// The text of a panic.
fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    match text.or_else(|| payload.downcast_ref::<String>().cloned()) {
        Some(text) => text,
        None => {
            // Its destructor is the caller's code as well, and could panic again.
            std::mem::forget(payload);
            "the panic value is not a text".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
