//! redis/rueidis#604: waiters lose the watch by which they would hear of a release, and try again
//! without a pause.
//!
//! Waiters of a held lock cost the server a few calls a second, however many times it is released.

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{LONG, SECOND, one, scripts};
use testkit::wait_for_waiters;

#[tokio::test(flavor = "multi_thread")]
async fn waiters_do_not_hammer_the_server() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    let mut held = lock.write().lease(LONG).await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let lock = lock.clone();
        waiting.spawn(async move { lock.read().await.map(drop) });
    }
    wait_for_waiters(&lock, 20).await.unwrap();
    let before = scripts(&server).await;
    sleep(3 * SECOND).await;
    let calls = scripts(&server).await - before;
    assert!(calls < 200, "{calls} calls in three seconds");
    let _ = held.release().await.unwrap();
    waiting.join_all().await;
    held = lock.write().lease(LONG).await.unwrap();
    let before = scripts(&server).await;
    sleep(SECOND).await;
    assert!(scripts(&server).await - before < 5, "nobody waits");
    drop(held);
}
