//! A closure under a lock.

use futures::future::{Either, select};

use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::{Guard, Released};
use crate::lock::lease::Lease;

/// Runs `work` for as long as the guard holds, then releases.
pub(crate) async fn run<G: Guard, T>(guard: G, work: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
    let lease = guard.as_lease().clone();
    let lost = || {
        let lost = Error::new(ErrorKind::Lost, "the lease was lost before the work was done");
        lease.acquisition.lock.with_lock(lost)
    };
    let output = {
        let losing = std::pin::pin!(lease.lost());
        let working = std::pin::pin!(work(lease.clone()));
        match select(losing, working).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    };
    let held = lease.is_held();
    let released = guard.give_back().await;
    match output {
        Some(output) if held && !matches!(released, Ok(Released::AlreadyLost)) => Ok(output),
        _ => Err(lost()),
    }
}
