//! mike-marcacci/node-redlock#169: the end of a lease counts from when the wait began. After a
//! wait, the lock counts as expired while the server still holds it, and cannot be extended.
//!
//! A lease that was waited for is as long as any other.

use rwlease::{RenewalPolicy, RetryPolicy};
use tokio::time::sleep;

use crate::{LONG, MS, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn lease_counts_from_the_grant_and_not_from_the_wait() {
    const LEASE: std::time::Duration = std::time::Duration::from_secs(4);
    let (_server, locks) = one().await;
    let mutex = locks.set_nx_mutex("job").unwrap();
    let held = mutex.lock().lease(LONG).await.unwrap();
    let waiting = tokio::spawn(async move {
        let request = mutex.lock().lease(LEASE).renewal(RenewalPolicy::Manual);
        let guard = request.retry_policy(RetryPolicy::fixed(50 * MS)).await.unwrap();
        (guard.remaining(), guard.renew().await, guard)
    });
    sleep(LEASE + SECOND).await;
    let _ = held.release().await.unwrap();
    let (remaining, renewed, _guard) = soon(waiting).await.unwrap();
    assert!(remaining > LEASE / 2, "{remaining:?} of {LEASE:?}");
    renewed.unwrap();
}
