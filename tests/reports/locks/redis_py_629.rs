//! redis/redis-py#629: an extension adds its time to what is left. Whoever extends in a loop sets
//! the end further and further into the future, and a crash then keeps the lock for that long.
//!
//! However often a lease is renewed, it ends one lease after the last time.

use rwlease::RenewalPolicy;

use crate::{SECOND, one};

#[tokio::test(flavor = "multi_thread")]
async fn renewals_do_not_add_up() {
    const LEASE: std::time::Duration = std::time::Duration::from_secs(5);
    let (_server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    let guard = lock.write().lease(LEASE).renewal(RenewalPolicy::Manual).await.unwrap();
    for _ in 0..100 {
        guard.renew().await.unwrap();
    }
    let holder = lock.status().await.unwrap().writer.unwrap();
    assert!(guard.remaining() <= LEASE && holder.lease_remaining <= LEASE, "{holder:?}");
    assert!(holder.lease_remaining > LEASE - 2 * SECOND, "{holder:?}");
}
