//! Leases that the library renews by itself.

use rwlease::Lease;

use super::{Error, Result, WaitLimit};

/// Waits until the lease was renewed so many times. (After three renewals it is older than when it
/// was granted for.)
pub async fn renewed(lease: &Lease, times: usize) -> Result {
    let wait_limit = WaitLimit::new(format!("{times} renewals of `{}`", lease.name()));
    let (mut left, mut last) = (times, lease.remaining());
    while left > 0 {
        wait_limit.pause(format!("{left} to go, {lease:?}")).await?;
        let now = lease.remaining();
        if now.is_zero() {
            return Err(Error::new(format!("`{}` was lost", lease.name())));
        }
        left -= usize::from(now > last);
        last = now;
    }
    Ok(())
}
