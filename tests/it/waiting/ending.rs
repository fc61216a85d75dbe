//! A runtime that ends before its clients do.

use std::future::IntoFuture;
use std::time::Duration;

use rwlease::{Locks, ReadGuard, WriteGuard};
use tokio::runtime::Runtime;

use super::child::{self, Child};
use super::shared;
use crate::support::{Result, connect};

/// Guards of both kinds, requests that wait, and clients, all of which outlive their runtime.
fn outlive_a_runtime() -> Result {
    let urls = child::urls()?;
    for background in [true, false] {
        let runtime = Runtime::new()?;
        let (locks, reading, writing): (Locks, ReadGuard, WriteGuard) =
            runtime.block_on(async {
                let locks = connect(&urls).await?;
                let reading = locks.rwlock("ending a")?.read().await?;
                let writing =
                    locks.rwlock("ending b")?.write().lease(Duration::from_secs(2)).await?;
                Result::Ok((locks, reading, writing))
            })?;
        for name in ["ending a", "ending b"] {
            for _ in 0..10 {
                let lock = locks.rwlock(name)?;
                runtime.spawn(async move { lock.write().await.map(drop) });
            }
        }
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
        if background {
            runtime.shutdown_background();
        } else {
            drop(runtime);
        }
        assert!(writing.token() > 0 && writing.remaining() <= Duration::from_secs(2));
        drop((reading, writing));
        let lock = locks.rwlock("ending c")?;
        drop(locks);
        // Made outside of a runtime and never polled.
        drop(lock.read());
        drop(lock.write().into_future());
    }
    child::tell("well");
    Ok(())
}

#[test]
fn a_runtime_that_ends_with_waiters_and_guards_alive_neither_panics_nor_hangs() -> Result {
    const TEST: &str = "waiting::ending::a_runtime_that_ends_with_waiters_and_guards_alive_neither_panics_nor_hangs";
    if child::is(TEST) {
        return outlive_a_runtime();
    }
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let cluster = shared().await?;
        let mut child = Child::start(TEST, cluster)?;
        assert_eq!(child.told().await?, "well");
        let (well, said) = child.end().await?;
        assert!(well && !said.contains("panicked"), "{said}");
        // What it held and where it waited ends by itself: ttl, and the leases.
        let lock = connect(&cluster.urls()).await?.rwlock("ending b")?;
        lock.write().timeout(Duration::from_secs(45)).await?.release().await?;
        Ok(())
    })
}
