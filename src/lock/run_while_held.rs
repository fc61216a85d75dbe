//! Runs a closure while a lock is held.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::guard::{Guard, ReleaseOutcome};
use crate::lock::lease::Lease;

/// Runs `work` while the guard holds the lock, then releases it.
pub(crate) async fn run<G: Guard, T>(guard: G, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
    let lease = guard.as_lease().clone();
    let output = until_lost(lease.ended(), || lease.is_held(), work(lease.clone())).await;
    finish(guard, output).await
}

/// Returns the output of `work`. Drops `work` and returns `None` when the lock is lost.
pub(crate) async fn until_lost<T>(
    ended: impl Future<Output = ()>,
    is_held: impl Fn() -> bool,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut ended, mut work) = (pin!(ended), pin!(work));
    poll_fn(|context| {
        // In a process that was stopped, the work can be woken before the timer of the loss. So
        // each poll reads the clock.
        if ended.as_mut().poll(context).is_ready() || !is_held() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Releases the lock after the work. The output counts only if the lock was held until now.
pub(crate) async fn finish<G: Guard, T>(guard: G, output: Option<T>) -> Result<T> {
    let lease = guard.as_lease().clone();
    let held = lease.is_held();
    let released = guard.give_back().await;
    match output {
        Some(output) if held && !matches!(released, Ok(ReleaseOutcome::AlreadyLost)) => Ok(output),
        _ => Err(lost(&lease)),
    }
}

pub(crate) fn lost(lease: &Lease) -> Error {
    let message = "the lease was lost before the work completed";
    lease.acquisition.lock.add_context(Error::new(ErrorKind::LeaseLost, message))
}
