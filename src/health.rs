//! Whether a client can go on: what a panic in one of its tasks means for it, and the end of its
//! runtime.
//!
//! The caller's code runs in the library's tasks: callbacks, which are caught one by one
//! ([`catch`]), and the subscriber of `tracing` and the recorder of metrics, which run within any
//! step. A step that ends in its middle leaves nothing to go on from. So a panic in a task,
//! wherever it comes from, ends the whole client.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;

/// Why a client has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientFailure {
    #[error(
        "the client has failed: its task `{task}` panicked: {message}; find the cause, and make a new client"
    )]
    TaskPanicked { task: &'static str, message: String },
    #[error(
        "the client has failed: the runtime that it was made on has ended; make a new one on a runtime that lives as long as the client"
    )]
    RuntimeEnded,
}

/// The health of one client. All its tasks share it. The first failure stays.
#[derive(Clone, Default)]
pub(crate) struct ClientHealth(Arc<HealthState>);

#[derive(Default)]
struct HealthState {
    failure: OnceLock<ClientFailure>,
    on_failure: OnceLock<Box<dyn Fn() + Send + Sync>>,
    has_ended: AtomicBool,
}

/// The panic of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    pub(crate) message: String,
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
        let mut end = WatchedTask { health: self.clone(), is_reached: false };
        self.watch(name, task).await;
        end.is_reached = true;
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

impl fmt::Debug for ClientHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientHealth").field(&self.failure()).finish()
    }
}

/// Tells the end of a task from the end of its runtime.
struct WatchedTask {
    health: ClientHealth,
    is_reached: bool,
}

impl Drop for WatchedTask {
    fn drop(&mut self) {
        if !self.is_reached {
            self.health.fail(ClientFailure::RuntimeEnded);
        }
    }
}

/// Calls the caller's code.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, Panic> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.map_err(|payload| Panic { message: message_of(payload) })
}

/// Awaits the caller's code.
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) async fn catch_future<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(|payload| Panic { message: message_of(payload) })
}

/// The text of a panic.
fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    match text.or_else(|| payload.downcast_ref::<String>().cloned()) {
        Some(text) => text,
        None => {
            // Its destructor is the caller's code as well, and could panic again.
            std::mem::forget(payload);
            "its value is no text".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Its destructor panics.
    struct Worse;

    impl Drop for Worse {
        fn drop(&mut self) {
            panic!("worse");
        }
    }

    #[test]
    fn catch_of_any_panic_returns_its_text() {
        let message = |call: fn()| catch(call).unwrap_err().message;
        assert_eq!(message(|| panic!("text")), "text");
        assert_eq!(message(|| panic!("{}", 1)), "1");
        assert_eq!(message(|| std::panic::panic_any(Worse)), "its value is no text");
        assert_eq!(catch(|| 1), Ok(1));
    }

    #[tokio::test]
    async fn watch_of_a_task_that_panics_fails_once() {
        let (health, ends) = (ClientHealth::default(), Arc::new(AtomicUsize::new(0)));
        let count = ends.clone();
        health.on_failure(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        health.clone().watch("good", async {}).await;
        assert_eq!(health.failure(), None);
        health.clone().watch("bad", async { panic!("first") }).await;
        health.clone().watch("bad", async { panic!("second") }).await;
        let first = ClientFailure::TaskPanicked { task: "bad", message: "first".into() };
        assert_eq!(health.failure(), Some(&first));
        assert_eq!(ends.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn on_failure_set_after_the_failure_is_called_at_once() {
        let health = ClientHealth::default();
        health.clone().watch("bad", async { panic!("early") }).await;
        let (ends, count) = std::sync::mpsc::channel();
        health.on_failure(move || ends.send(()).unwrap());
        count.try_recv().unwrap();
    }

    #[tokio::test]
    async fn watch_to_end_of_a_task_that_is_dropped_fails() {
        let health = ClientHealth::default();
        health.clone().watch_to_end("whole", async {}).await;
        assert_eq!(health.failure(), None);
        let mut task = Box::pin(health.clone().watch_to_end("cut", std::future::pending()));
        assert!(futures::poll!(&mut task).is_pending());
        drop(task);
        assert_eq!(health.failure(), Some(&ClientFailure::RuntimeEnded));
    }
}
