//! leandromoreira/redlock-rb#36: an extension takes a lock that has expired anew, so its holder
//! never learns that others may have held it meanwhile.
//!
//! A renewal after the end of the lease fails, even if nobody else has come.

use rwlease::{ErrorKind, RenewalPolicy};

use crate::{MS, one, until_free};

#[tokio::test(flavor = "multi_thread")]
async fn renew_after_the_end_fails_though_the_lock_is_free() {
    let (server, locks) = one().await;
    let (lock, mutex) = (locks.rwlock("key").unwrap(), locks.mutex("key").unwrap());
    let write = lock.write().lease(300 * MS).renewal(RenewalPolicy::Manual).await.unwrap();
    let other = mutex.lock().renewal(RenewalPolicy::Manual).await.unwrap();
    // The second is gone at the server before its time, and the holder does not know.
    server.run_words::<()>("DEL key").await.unwrap();
    write.lost().await;
    assert_eq!(write.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(other.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!other.is_held());
    // The lease ends here a little earlier than at the server.
    until_free(&lock).await;
    assert!(!mutex.is_locked().await.unwrap());
}
