//! The background runtime of all blocking clients.

use std::future::pending;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::error::{Error, ErrorKind, Result};

/// Started by the first call. It runs until the process ends, so the last guards dropped can still
/// be released.
static BACKGROUND: Mutex<Option<Handle>> = Mutex::new(None);

/// Blocks this thread until the future completes.
pub(super) fn run<F: Future>(work: F) -> Result<F::Output> {
    Ok(background()?.block_on(work))
}

/// The runtime, for a thread that may block.
pub(super) fn background() -> Result<Handle> {
    match Handle::try_current() {
        Err(_) => started(),
        Ok(_) => Err(Error::invalid(
            "a blocking call on a thread of a tokio runtime: await the async locks there",
        )),
    }
}

/// Runs a task in the background.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    started()?.spawn(task);
    Ok(())
}

fn started() -> Result<Handle> {
    let mut background = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = &*background {
        return Ok(handle.clone());
    }
    let handle = start().map_err(|error| {
        let message = "the runtime in the background could not be started";
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    })?;
    *background = Some(handle.clone());
    Ok(handle)
}

fn start() -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let drive = move || runtime.block_on(pending::<()>());
    thread::Builder::new().name("rwlease".to_owned()).spawn(drive)?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_share_one_thread_in_the_background() {
        let background = || {
            let ask = || run(async { tokio::spawn(async { thread::current().id() }).await });
            thread::spawn(move || ask().unwrap().unwrap())
        };
        let asked: Vec<_> = std::iter::repeat_with(background).take(4).collect();
        let ids: Vec<_> = asked.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[tokio::test]
    async fn inside_of_a_runtime_it_is_refused() {
        assert_eq!(run(async {}).unwrap_err().kind(), ErrorKind::Invalid);
        let blocking = tokio::task::spawn_blocking(|| run(async {}));
        assert_eq!(blocking.await.unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
