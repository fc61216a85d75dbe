//! lyokato/redlock#39: an extension by less than what is left makes the lease shorter.
//!
//! Nothing that a holder does to keep a lock moves its end to an earlier time.

use rwlease::RenewalPolicy;

use crate::{LONG, SECOND, one};

#[tokio::test(flavor = "multi_thread")]
async fn shorter_lease_of_the_same_owner_shortens_nothing() {
    let (_server, locks) = one().await;
    let (owner, lock) = (locks.reentrant_owner(), locks.rwlock("job").unwrap());
    let long = owner.write(&lock).lease(LONG).renewal(RenewalPolicy::Manual).await.unwrap();
    let short = owner.write(&lock).lease(2 * SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    short.renew().await.unwrap();
    let _ = short.release().await.unwrap();
    let holder = lock.status().await.unwrap().writer.unwrap();
    assert!(holder.lease_remaining > LONG / 2 && long.remaining() > LONG / 2, "{holder:?}");
}
