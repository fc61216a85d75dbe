//! redisson/redisson#6343: some of the permits that are released at once have expired before, and
//! the counter of free permits no longer agrees with the holders.
//!
//! A permit that ended before its release frees nothing a second time.

use rwlease::{Released, RenewalPolicy};

use crate::{LONG, SECOND, one};

#[tokio::test(flavor = "multi_thread")]
async fn permits_that_expired_are_not_freed_twice() {
    let (_server, locks) = one().await;
    let pool = locks.semaphore("pool", 4).unwrap();
    let short = pool.acquire(2).lease(SECOND).renewal(RenewalPolicy::Manual).await.unwrap();
    let long = pool.acquire(2).lease(LONG).await.unwrap();
    short.lost().await;
    tokio::time::sleep(SECOND).await;
    let again = pool.try_acquire(2).await.unwrap().expect("two have expired");
    assert_eq!(short.release().await.unwrap(), Released::AlreadyLost);
    assert!(pool.try_acquire(1).await.unwrap().is_none(), "more permits than there are");
    assert_eq!(long.release().await.unwrap(), Released::Released);
    let two = pool.try_acquire(2).await.unwrap().expect("two were released");
    assert!(pool.try_acquire(1).await.unwrap().is_none(), "more permits than there are");
    drop((again, two));
}
