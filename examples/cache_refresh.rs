//! A value that many read and one refreshes: readers share the lock, a refresh waits for them and
//! keeps new ones out for as long as it takes.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rwlease::{Client, Result};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let client = common::connect().await?;
    let cache = Arc::new(AtomicU64::new(1)); // in life: a file, a table, an object elsewhere
    let mut tasks = JoinSet::new();
    for reader in 1..=4 {
        tasks.spawn(read(client.clone(), cache.clone(), reader));
    }
    tasks.spawn(refresh(client.clone(), cache.clone()));
    while let Some(done) = tasks.join_next().await {
        done.expect("no task panics")?;
    }
    println!("in the end the cache holds {}", cache.load(Ordering::Relaxed));
    Ok(())
}

async fn read(client: Client, cache: Arc<AtomicU64>, reader: u32) -> Result<()> {
    let lock = client.rwlock("cache:{prices}")?;
    for _ in 0..3 {
        let reading = lock.read().await?;
        let before = cache.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(before, cache.load(Ordering::Relaxed), "it does not change under a reader");
        println!("reader {reader} sees {before}");
        assert!(reading.release().await?.was_held());
    }
    Ok(())
}

async fn refresh(client: Client, cache: Arc<AtomicU64>) -> Result<()> {
    let lock = client.rwlock("cache:{prices}")?;
    for _ in 0..2 {
        let writing = lock.write().await?;
        let next = cache.load(Ordering::Relaxed) + 1;
        tokio::time::sleep(Duration::from_millis(30)).await;
        cache.store(next, Ordering::Relaxed);
        println!("refreshed to {next}, token {}", writing.fencing_token());
        assert!(writing.release().await?.was_held());
    }
    Ok(())
}
