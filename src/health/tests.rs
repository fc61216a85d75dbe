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
fn client_catch_of_any_panic_returns_its_message() {
    let message = |call: fn()| catch(call).unwrap_err();
    assert_eq!(message(|| panic!("text")), "text");
    assert_eq!(message(|| panic!("{}", 1)), "1");
    assert_eq!(message(|| std::panic::panic_any(Worse)), "the panic value is not a text");
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
