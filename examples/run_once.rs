//! A job that every machine's cron starts, and one runs: the lock stays taken for most of the
//! minute, and the other machines leave.

mod common;

use std::time::Duration;

use rwlease::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let client = common::connect().await?;
    for machine in ["a", "b", "c"] {
        run_if_first(&client, machine).await?;
    }
    Ok(())
}

async fn run_if_first(client: &Client, machine: &str) -> Result<()> {
    let lock = client.rwlock("minutely-report")?;
    let Some(turn) = lock.try_write().at_least(Duration::from_secs(50)).await? else {
        println!("machine {machine}: somebody else runs it");
        return Ok(());
    };
    println!("machine {machine}: runs the report, token {}", turn.fencing_token());
    let _ = turn.release().await?; // the lock stays taken: a late machine does not run it again
    Ok(())
}
