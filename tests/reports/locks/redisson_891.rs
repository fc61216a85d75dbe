//! redisson/redisson#891: an owner that writes also takes the read lock, and releases that: the
//! write is gone with it, unnoticed until it is released.
//!
//! To give back a read within a write leaves the write.

use crate::one;

#[tokio::test(flavor = "multi_thread")]
async fn read_released_within_a_write_leaves_the_write() {
    let (server, locks) = one().await;
    let (owner, lock) = (locks.reentrant(), locks.rwlock("doc").unwrap());
    let other = crate::client(&server).await.rwlock("doc").unwrap();
    let write = owner.write(&lock).await.unwrap();
    let read = owner.read(&lock).await.unwrap();
    let _ = read.release().await.unwrap();
    assert!(write.is_held());
    assert!(other.try_read().await.unwrap().is_none(), "others read beside the write");
    assert_eq!(write.release().await.unwrap(), rwlease::Released::Released);
    assert!(other.try_write().await.unwrap().is_some());
}
