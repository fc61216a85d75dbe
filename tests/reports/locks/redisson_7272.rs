//! redisson/redisson#7272: a wait that is interrupted just as the lock is granted leaves a
//! watchdog that renews the lock forever, though nobody holds it.
//!
//! A request that is dropped at any moment leaves no lock, and nothing that renews one.

use tokio::time::{sleep, timeout};

use crate::{SECOND, one, scripts, soon, until_free};
use testkit::PollLimit;

#[tokio::test(flavor = "multi_thread")]
async fn write_dropped_at_any_moment_is_renewed_no_more() {
    let (server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    for step in 0..60 {
        let request = lock.write().lease(SECOND);
        let _ = timeout(std::time::Duration::from_micros(30 * step), request).await;
    }
    until_free(&lock).await;
    let _ = soon(lock.write()).await.unwrap().release().await.unwrap();
    // What is in doubt is released once more some seconds later, and then nobody calls.
    let wait_limit = PollLimit::new("nobody to call");
    let mut before = 0;
    while scripts(&server).await != before {
        wait_limit.pause(format!("{before} scripts")).await.unwrap();
        before = scripts(&server).await;
        sleep(3 * SECOND).await;
        assert!(!lock.is_locked().await.unwrap(), "somebody still renews");
        before += 1;
    }
}
