//! bsm/redislock#28: a request that retries gives up after the length of the lease that it wants,
//! though it was told to go on for longer.
//!
//! How long one waits has nothing to do with the lease that one wants.

use rwlease::RetryPolicy;
use tokio::time::sleep;

use crate::{LONG, MS, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn wait_is_longer_than_the_lease_that_is_wanted() {
    let (_server, locks) = one().await;
    let (lock, mutex) = (locks.rwlock("doc").unwrap(), locks.set_nx_mutex("job").unwrap());
    let held = (lock.write().lease(LONG).await.unwrap(), mutex.lock().lease(LONG).await.unwrap());
    let queued = tokio::spawn(async move { lock.write().lease(300 * MS).await.map(drop) });
    let tried = tokio::spawn(async move {
        let retry = RetryPolicy::fixed(50 * MS);
        mutex.lock().lease(300 * MS).retry_policy(retry).await.map(drop)
    });
    sleep(2 * SECOND).await;
    assert!(!queued.is_finished() && !tried.is_finished());
    drop(held);
    soon(queued).await.unwrap().unwrap();
    soon(tried).await.unwrap().unwrap();
}
