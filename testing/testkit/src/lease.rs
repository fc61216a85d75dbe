//! Leases that the library renews automatically.

use rwlease::Lease;

use super::{Error, PollLimit, Result};

/// Waits until the lease was renewed `times` times. A renewal is due after a third of the lease, or
/// a little earlier. So after four the lease has been held for longer than its length.
pub async fn wait_renewed(lease: &Lease, times: usize) -> Result {
    let wait_limit = PollLimit::new(format!("{times} renewals of `{}`", lease.name()));
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
