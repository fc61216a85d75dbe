//! linagora/cozy-stack#4911: a lease that has ended is renewed further at each tick, though the
//! server refuses it each time.
//!
//! What is lost is not renewed any more.

use tokio::time::sleep;

use crate::{SECOND, client, one, scripts, soon};

#[tokio::test(flavor = "multi_thread")]
async fn lost_lease_is_renewed_no_more() {
    let (server, locks) = one().await;
    let other = client(&server).await;
    let lock = locks.rwlock("job").unwrap();
    let lost = lock.write().lease(SECOND).await.unwrap();
    other.rwlock("job").unwrap().force_release().await.unwrap();
    soon(lost.ended()).await;
    sleep(SECOND).await;
    let before = scripts(&server).await;
    sleep(3 * SECOND).await;
    assert_eq!(scripts(&server).await, before, "somebody still renews");
    assert!(!lost.is_held());
}
