//! The background runtime of all threads that wait.

use std::future::pending;
use std::io;
use std::sync::OnceLock;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::Mutex;

/// Started by the first call. It runs until the process ends, so the last guards dropped can still
/// be released.
static BACKGROUND: OnceLock<Handle> = OnceLock::new();

/// Blocks this thread until the future completes. Panics on a thread that runs async tasks.
#[track_caller]
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    // `Handle::block_on` panics there, too, but its text is about starting a runtime. tokio has no
    // other public check: `Handle::try_current` also finds the runtime of `spawn_blocking`, where a
    // thread may wait.
    drop(Mutex::new(()).blocking_lock());
    background().block_on(future)
}

#[expect(clippy::expect_used, reason = "as in `std::thread::spawn`, no output can have the error")]
fn background() -> &'static Handle {
    BACKGROUND.get_or_init(|| start().expect("cannot start the background thread of rwlease"))
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("rwlease".to_owned()).spawn(drive)?;
    Ok(handle)
}

#[cfg(test)]
mod tests;
