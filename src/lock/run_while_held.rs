//! Runs a closure while a lock is held.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::{Guard, Released};
use crate::lock::lease::Lease;

/// Runs `work` while the guard holds the lock, then releases it.
pub(crate) async fn run<G: Guard, T>(guard: G, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
    let lease = guard.as_lease().clone();
    let lost = || {
        let lost = Error::new(ErrorKind::Lost, "the lease was lost before the work was done");
        lease.acquisition.lock.add_context(lost)
    };
    let output = {
        let mut losing = pin!(lease.lost());
        let mut working = pin!(work(lease.clone()));
        poll_fn(|context| {
            // In a process that was stopped, the work can be woken before the timer of the loss. So
            // each poll reads the clock.
            if losing.as_mut().poll(context).is_ready() || !lease.is_held() {
                return Poll::Ready(None);
            }
            working.as_mut().poll(context).map(Some)
        })
        .await
    };
    let held = lease.is_held();
    let released = guard.give_back().await;
    match output {
        Some(output) if held && !matches!(released, Ok(Released::AlreadyLost)) => Ok(output),
        _ => Err(lost()),
    }
}
