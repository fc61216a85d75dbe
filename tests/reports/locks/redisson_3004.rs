//! redisson/redisson#3004: waiters that wait for longer than the time that a place is kept are
//! removed by later ones, though they live. The release then wakes nobody.
//!
//! A waiter that lives keeps its place for as long as it waits.

use rwlease::Locks;
use tokio::time::sleep;

use crate::support::{ConnectBuilder, wait_for_waiters};
use crate::{LONG, SECOND, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn waiters_outlast_the_time_that_their_places_are_kept() {
    let (server, locks) = one().await;
    let settings = || Locks::builder().waiter_ttl(SECOND);
    let lock = locks.rwlock("doc").unwrap();
    let held = lock.write().lease(LONG).await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let locks = settings().connect_to(&[server.url()]).await.unwrap();
        let lock = locks.rwlock("doc").unwrap();
        waiting.push(tokio::spawn(async move { lock.write().await.unwrap().token() }));
        wait_for_waiters(&locks_of(&locks), number + 1).await.unwrap();
        sleep(2 * SECOND).await;
    }
    let _ = held.release().await.unwrap();
    let mut last = 0;
    for waiter in waiting {
        let token = soon(waiter).await.unwrap();
        assert!(token > last, "they have lost their order");
        last = token;
    }
}

fn locks_of(locks: &Locks) -> rwlease::RwLock {
    locks.rwlock("doc").unwrap()
}
