//! redis/redis-py#656: a lock that one thread took cannot be released by another one, because its
//! token is kept with the thread.
//!
//! A guard can be used and released on any thread and in any runtime.

use rwlease::Released;

use crate::one;

#[tokio::test(flavor = "multi_thread")]
async fn guard_is_renewed_and_released_by_another_thread_and_runtime() {
    let (_server, locks) = one().await;
    let lock = locks.rwlock("job").unwrap();
    let guard = lock.write().await.unwrap();
    let elsewhere = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            guard.renew().await.unwrap();
            guard.release().await.unwrap()
        })
    });
    let outcome = tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    assert_eq!(outcome, Released::Released);
    // A thread without a runtime.
    let guard = lock.write().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    crate::until_free(&lock).await;
}
