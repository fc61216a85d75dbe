//! Many holders, on embedded servers and in simulated time.

use std::time::Duration;

use rwlease::ReleaseOutcome;
use tokio::time::sleep;

use crate::fixture::{client, engine};

/// The first end that the server knew of them has passed, and all have been renewed since.
#[tokio::test(start_paused = true)]
async fn try_beside_a_thousand_living_holders_takes_one_call() {
    const HOLDERS: u32 = 1_000;
    let engine = engine();
    let locks = client(&engine).await;
    let (lock, semaphore) = (locks.rwlock("x").unwrap(), locks.semaphore("s", HOLDERS).unwrap());
    let (mut readers, mut holders) = (Vec::new(), Vec::new());
    for _ in 0..HOLDERS {
        readers.push(lock.read().await.unwrap());
        holders.push(semaphore.acquire(1).await.unwrap());
    }
    sleep(Duration::from_secs(31)).await;
    for _ in 0..3 {
        engine.reset_script_stats();
        assert!(lock.try_write().await.unwrap().is_none());
        assert!(semaphore.try_acquire(1).await.unwrap().is_none());
        assert_eq!(engine.script_stats().scripts, 2);
    }
    for reader in readers {
        assert_eq!(reader.release().await.unwrap(), ReleaseOutcome::Released);
    }
}
