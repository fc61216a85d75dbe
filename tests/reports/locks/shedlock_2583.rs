//! lukas-krecan/ShedLock#2583: a task outlives its lock, another node takes that, and the end of
//! the first task deletes it.
//!
//! Whoever has lost a lock takes nothing from its next holder, by no way to end it.

use rwlease::{Released, RenewalPolicy};

use crate::{LONG, MS, client, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn late_release_leaves_the_lock_of_the_next_holder() {
    let (server, locks) = one().await;
    let other = client(&server).await;
    let (rwlock, mutex) = (locks.rwlock("task").unwrap(), locks.mutex("task").unwrap());
    let late = rwlock.write().lease(300 * MS).renewal(RenewalPolicy::Manual).await.unwrap();
    let also = rwlock_again(&rwlock, &other, late).await;
    let late = mutex.lock().lease(300 * MS).renewal(RenewalPolicy::Manual).await.unwrap();
    let next = soon(other.mutex("task").unwrap().lock().lease(LONG)).await.unwrap();
    assert_eq!(late.release().await.unwrap(), Released::AlreadyLost);
    assert!(mutex.try_lock().await.unwrap().is_none() && next.is_held() && also.is_held());
}

async fn rwlock_again(
    lock: &rwlease::RwLock,
    other: &rwlease::Locks,
    late: rwlease::WriteGuard,
) -> rwlease::WriteGuard {
    let next = soon(other.rwlock("task").unwrap().write().lease(LONG)).await.unwrap();
    assert!(late.renew().await.is_err());
    assert_eq!(late.release().await.unwrap(), Released::AlreadyLost);
    assert!(lock.try_read().await.unwrap().is_none());
    next
}
