//! redisson/redisson#1604: of many readers of one lock, the watchdog renews the key but not the
//! record of each reader, and they find their locks gone when they release them.
//!
//! Each of many readers is renewed.

use rwlease::Released;
use tokio::time::sleep;

use crate::{SECOND, client, one};

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_hold_for_longer_than_a_lease() {
    let (server, locks) = one().await;
    let other = client(&server).await;
    let mut readers = Vec::new();
    for number in 0..100 {
        let of = if number % 2 == 0 { &locks } else { &other };
        let lock = of.rwlock("doc").unwrap();
        readers.push(lock.read().lease(3 * SECOND).await.unwrap());
    }
    sleep(7 * SECOND).await;
    assert!(locks.rwlock("doc").unwrap().try_write().await.unwrap().is_none());
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), Released::Released);
    }
}
