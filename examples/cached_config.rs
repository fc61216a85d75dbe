//! A configuration that every request reads and that seldom changes. The process keeps its read
//! lock between requests, so that most of them are granted in memory. A process that changes the
//! configuration takes a plain write lock, which recalls the cached ones.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease::Result;

#[tokio::main]
async fn main() -> Result<()> {
    let config = Arc::new(AtomicU64::new(1)); // in life: a file, a row, an object elsewhere
    let client = common::connect().await?;
    let lock = client.rwlock("config:{web}")?;
    let changes = lock.clone();
    let shared = config.clone();
    let operator = tokio::spawn(async move {
        for version in 2..=4 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            let writing = changes.write().await?;
            shared.store(version, Ordering::Relaxed);
            println!("changed to version {version}, token {}", writing.fencing_token());
            assert!(writing.release().await?.was_held());
        }
        rwlease::Result::<()>::Ok(())
    });
    let cached = lock.cached()?;
    let (mut in_memory, mut by_server) = (0, 0);
    while !operator.is_finished() {
        let was_cached = cached.cache_status().hold.is_some();
        let reading = cached.read().await?;
        std::hint::black_box(config.load(Ordering::Relaxed)); // a request is served
        drop(reading);
        match was_cached {
            true => in_memory += 1,
            false => by_server += 1,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    operator.await.expect("no task panics")?;
    println!("{in_memory} reads were granted in memory, {by_server} by the server");
    Ok(())
}
