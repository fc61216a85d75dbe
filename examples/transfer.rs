//! A front end locks an order, checks it, and hands the held lock on to a worker with the job:
//! nobody gets in between, and the worker's writes have the same fencing token.

mod common;

use rwlease::{Client, LeaseTransfer, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let front = common::connect().await?;
    // A process of its own, elsewhere; in this process, the same servers.
    let worker = match std::env::var_os("RWLEASE_URL") {
        Some(_) => common::connect().await?,
        None => front.clone(),
    };
    let job = accept(&front).await?;
    work(&worker, &job).await
}

/// Gives the job, with the lock that goes with it. The job must be as secret as the lock.
async fn accept(client: &Client) -> Result<String> {
    let held = client.rwlock("order:{42}")?.write().await?;
    println!("front end: order 42 is checked, token {}", held.fencing_token());
    Ok(held.into_transfer().await?.to_string())
}

async fn work(client: &Client, job: &str) -> Result<()> {
    let transfer: LeaseTransfer = job.parse()?;
    let guard = client.accept_transfer(&transfer).await?;
    println!("worker: order 42 is being shipped, token {}", guard.fencing_token());
    if let Err(error) = client.accept_transfer(&transfer).await {
        println!("worker: a second delivery of the job: {error}");
    }
    assert!(guard.release().await?.was_held());
    Ok(())
}
