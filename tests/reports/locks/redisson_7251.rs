//! redisson/redisson#7251: a read lock that one owner took several times is released as often, and
//! its watchdog goes on forever, with one entry for each time beyond the first.
//!
//! After the last release of a reentrant lock nothing is renewed.

use tokio::time::sleep;

use crate::{SECOND, one, scripts};

#[tokio::test(flavor = "multi_thread")]
async fn reentrant_read_released_as_often_as_taken_is_renewed_no_more() {
    let (server, locks) = one().await;
    let (owner, lock) = (locks.reentrant_owner(), locks.rwlock("doc").unwrap());
    let mut guards = Vec::new();
    for _ in 0..5 {
        guards.push(owner.read(&lock).lease(SECOND).await.unwrap());
    }
    sleep(2 * SECOND).await;
    for guard in guards {
        let _ = guard.release().await.unwrap();
    }
    assert!(!lock.is_locked().await.unwrap());
    let before = scripts(&server).await;
    sleep(3 * SECOND).await;
    assert_eq!(scripts(&server).await, before, "somebody still renews");
}
