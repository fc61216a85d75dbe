//! A runtime that ends before its clients do.

use std::future::IntoFuture;
use std::time::Duration;

use rwlease::{Client, ReadGuard, WriteGuard};
use tokio::runtime::Runtime;

use super::child_process::{self, Child};
use super::shared;
use testkit::{ConnectBuilder, Result, connect, wait_for_waiters};

/// How long waiters block the next one after their runtime has ended.
const TTL: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(2);

fn name(which: &str, background: bool) -> String {
    format!("ending {which} {background}")
}

/// Guards of both kinds, requests that wait, and clients, all of which outlive their runtime.
fn outlive_a_runtime() -> Result {
    let urls = child_process::urls()?;
    for background in [true, false] {
        let runtime = Runtime::new()?;
        let (locks, reading, writing): (Client, ReadGuard, WriteGuard) =
            runtime.block_on(async {
                let settings = Client::builder().waiter_ttl(TTL);
                let locks = settings.connect_to(&urls).await?;
                let reading = locks.rwlock(name("a", background))?.read().await?;
                let writing = locks.rwlock(name("b", background))?.write().lease(LEASE).await?;
                Result::Ok((locks, reading, writing))
            })?;
        for which in ["a", "b"] {
            let lock = locks.rwlock(name(which, background))?;
            for _ in 0..10 {
                let lock = lock.clone();
                runtime.spawn(async move { lock.write().await.map(drop) });
            }
            runtime.block_on(wait_for_waiters(&lock, 10))?;
        }
        if background {
            runtime.shutdown_background();
        } else {
            drop(runtime);
        }
        assert!(writing.fencing_token().get() > 0 && writing.remaining() <= LEASE);
        drop((reading, writing));
        let lock = locks.rwlock("ending c")?;
        drop(locks);
        // These are made outside of a runtime and never polled.
        drop(lock.read());
        drop(lock.write().into_future());
    }
    child_process::tell("well");
    Ok(())
}

#[test]
fn runtime_that_ends_with_waiters_and_guards_neither_panics_nor_hangs() -> Result {
    const TEST: &str = "waiting::runtime_shutdown::runtime_that_ends_with_waiters_and_guards_neither_panics_nor_hangs";
    if child_process::is(TEST) {
        return outlive_a_runtime();
    }
    let runtime = Runtime::new()?;
    runtime.block_on(async {
        let cluster = shared().await?;
        let mut child = Child::start(TEST, cluster)?;
        assert_eq!(child.told().await?, "well");
        let (well, said) = child.end().await?;
        assert!(well && !said.contains("panicked"), "{said}");
        // Its leases and its places in queues expire.
        let locks = connect(&cluster.urls()).await?;
        for background in [true, false] {
            let lock = locks.rwlock(name("b", background))?;
            let _ = lock.write().timeout(Duration::from_secs(45)).await?.release().await?;
        }
        Ok(())
    })
}
