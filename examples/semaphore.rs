//! A service that may make so many requests at a time, from all machines together: each task takes
//! as many permits as its work needs, and gives them back as it is done.

mod common;

use rwlease::{Result, Semaphore};

/// What the service allows; every machine names the same.
const LIMIT: u32 = 4;

#[tokio::main]
async fn main() -> Result<()> {
    let client = common::connect().await?;
    let requests = client.semaphore("geocoder-requests", LIMIT)?;
    let batches = (1..=6u32).map(|batch| {
        let requests = requests.clone();
        tokio::spawn(async move { send(&requests, batch, 1 + batch % 3).await })
    });
    for batch in batches.collect::<Vec<_>>() {
        batch.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    Ok(())
}

/// Sends a batch of requests at the same time.
async fn send(requests: &Semaphore, batch: u32, count: u32) -> Result<()> {
    let mut permits = requests.acquire(count).await?;
    println!("batch {batch}: {count} requests, token {}", permits.fencing_token());
    while permits.num_permits() > 1 {
        tokio::task::yield_now().await; // one more of its requests is answered
        permits.release_permits(1).await?;
    }
    assert!(permits.release().await?.was_held());
    Ok(())
}
