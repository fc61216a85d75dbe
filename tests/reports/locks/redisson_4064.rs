//! redisson/redisson#4064: each lock that is waited for has a channel, and some of these are never
//! left.
//!
//! When nobody has waited for a minute, no channel is left, however many locks were waited for.

use tokio::task::JoinSet;

use crate::{LONG, MS, one, soon};
use testkit::{PollLimit, wait_for_waiters};

#[tokio::test(flavor = "multi_thread")]
async fn channels_are_left_when_nobody_waits() {
    let (server, locks) = one().await;
    let (mut held, mut waits) = (Vec::new(), JoinSet::new());
    for number in 0..40 {
        let lock = locks.rwlock(format!("lock:{number}")).unwrap();
        held.push(lock.write().lease(LONG).await.unwrap());
        let waiting = lock.clone();
        waits.spawn(async move {
            // Half of them give up.
            match number % 2 {
                0 => waiting.write().await.map(drop).is_ok(),
                _ => waiting.write().timeout(300 * MS).await.is_err(),
            }
        });
        if number % 2 == 0 {
            wait_for_waiters(&lock, 1).await.unwrap();
        }
    }
    held.clear();
    for outcome in soon(waits.join_all()).await {
        assert!(outcome || held.is_empty());
    }
    let wait_limit = PollLimit::limited("no channels", 2 * LONG);
    loop {
        let plain: Vec<String> = server.run_words("PUBSUB CHANNELS").await.unwrap();
        let sharded: Vec<String> =
            server.run_words("PUBSUB SHARDCHANNELS").await.unwrap_or_default();
        if plain.is_empty() && sharded.is_empty() {
            break;
        }
        wait_limit.pause(format!("{plain:?} {sharded:?}")).await.unwrap();
    }
}
