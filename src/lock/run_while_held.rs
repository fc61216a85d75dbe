use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use rwlease_core::protocol::LockKey;

use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::guard::{Guard, ReleaseOutcome};
use crate::lock::lease::Lease;

/// Runs `work` while the guard holds the lock, then releases it.
pub(crate) async fn run<G: Guard, T>(guard: G, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
    let lease = guard.as_lease().clone();
    let output = until_lost(lease.ended(), || lease.is_held(), work(lease.clone())).await;
    finish(guard, output).await
}

/// Returns the output of `work`, or `None` if the lock was lost before its end. Drops `work` when
/// the lock is lost.
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
        work.as_mut().poll(context).map(|output| is_held().then_some(output))
    })
    .await
}

/// Releases the lock after the work. The output counts only if the lock was held until now.
pub(crate) async fn finish<G: Guard, T>(guard: G, output: Option<T>) -> Result<T> {
    let lease = guard.as_lease().clone();
    let held = lease.is_held();
    let released = guard.give_back().await;
    output_of(output.filter(|_| held), &released, &lease.acquisition.lock)
}

/// Returns the output of work under a lock, after the release. A release may find a loss that the
/// client did not know.
pub(crate) fn output_of<T>(
    output: Option<T>,
    released: &Result<ReleaseOutcome>,
    lock: &LockKey,
) -> Result<T> {
    match output {
        Some(output) if !matches!(released, Ok(ReleaseOutcome::AlreadyLost)) => Ok(output),
        _ => {
            let message = "the lease was lost before the work completed";
            Err(lock.add_context(Error::new(ErrorKind::LeaseLost, message)))
        }
    }
}
