//! spring-projects/spring-integration#11044: a cache of lock objects drops one whose lock is held,
//! and the lock can no longer be released.
//!
//! A guard needs neither the lock's handle nor the client's, and there may be any number of locks.

use crate::{SECOND, client, one};
use testkit::wait_renewed;

#[tokio::test(flavor = "multi_thread")]
async fn guard_outlives_its_lock_and_its_client() {
    let (server, locks) = one().await;
    let guard = {
        let lock = locks.rwlock("held").unwrap();
        lock.write().lease(2 * SECOND).await.unwrap()
    };
    for number in 0..5_000 {
        drop(locks.rwlock(format!("many:{number}")).unwrap());
    }
    drop(locks);
    wait_renewed(&guard, 4).await.unwrap();
    let other = client(&server).await.rwlock("held").unwrap();
    assert!(other.try_read().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), rwlease::ReleaseOutcome::Released);
    assert!(other.try_read().await.unwrap().is_some());
}
