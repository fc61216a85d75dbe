//! samcook/RedLock.net#68: a task that hangs keeps its lock forever, because the lock is extended
//! without a limit.
//!
//! A hold can have a limit, after which others get the lock, however healthy the holder's client.

use crate::{SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn task_that_hangs_loses_the_lock_at_its_limit() {
    let (_server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    let hung = tokio::spawn({
        let lock = lock.clone();
        async move {
            let request = lock.write().lease(SECOND).max_hold(3 * SECOND);
            request.run(async |_| std::future::pending::<()>().await).await
        }
    });
    crate::support::PollLimit::new("the task").pause("").await.unwrap();
    let next = soon(lock.write()).await.unwrap();
    assert!(soon(hung).await.unwrap().is_err(), "it goes on without the lock");
    let _ = next.release().await.unwrap();
}
