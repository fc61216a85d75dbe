//! redisson/redisson#656: of several locks that are taken together, one is held by another thread,
//! and the whole still counts as taken.
//!
//! Several locks are taken all or none, also when the time is up between two of them.

use tokio::time::timeout;

use crate::{LONG, SECOND, client, one};

#[tokio::test(flavor = "multi_thread")]
async fn multi_with_one_lock_held_takes_none() {
    let (server, locks) = one().await;
    let other = client(&server).await;
    for held in ["lock1", "lock2", "lock3"] {
        let single = other.rwlock(held).unwrap().write().lease(LONG).await.unwrap();
        let all =
            || ["lock1", "lock2", "lock3"].iter().fold(locks.multi(), |all, name| all.write(name));
        assert!(all().try_all().await.unwrap().is_none(), "{held}");
        assert!(timeout(SECOND, all()).await.is_err(), "{held}");
        let _ = single.release().await.unwrap();
        for name in ["lock1", "lock2", "lock3"] {
            crate::until_free(&locks.rwlock(name).unwrap()).await;
        }
    }
}
