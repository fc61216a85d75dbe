//! resque/resque-scheduler#298: the server forgets its scripts, and the lock fails with `NOSCRIPT`
//! until the program is restarted.
//!
//! Scripts may be forgotten between any two calls, also while many releases are on their way.

use tokio::task::JoinSet;

use crate::{LONG, one, soon};

#[tokio::test(flavor = "multi_thread")]
async fn releases_in_one_batch_survive_forgotten_scripts() {
    let (server, locks) = one().await;
    for round in 0..5 {
        let mut guards = Vec::new();
        for number in 0..100 {
            let lock = locks.rwlock(format!("batch:{round}:{number}")).unwrap();
            guards.push(lock.write().lease(LONG).await.unwrap());
        }
        server.run_words::<()>("SCRIPT FLUSH").await.unwrap();
        drop(guards);
        let mut next = JoinSet::new();
        for number in 0..100 {
            let lock = locks.rwlock(format!("batch:{round}:{number}")).unwrap();
            next.spawn(async move { lock.write().await.map(drop) });
        }
        for outcome in soon(next.join_all()).await {
            outcome.unwrap();
        }
    }
}
