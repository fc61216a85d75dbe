//! A job that every machine's cron starts, and one runs: the first takes the lock and keeps it for
//! the rest of the minute, the others see that it is taken and leave.

mod common;

use std::time::Duration;

use rwlease::{Locks, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let locks = common::connect().await?;
    for machine in ["a", "b", "c"] {
        run_if_first(&locks, machine).await?;
    }
    Ok(())
}

async fn run_if_first(locks: &Locks, machine: &str) -> Result<()> {
    // Named by the run, so that the next minute's run has a lock of its own.
    let lock = locks.rwlock("nightly-report:2026-01-31T02:00")?;
    let Some(turn) = lock.try_write().lease(Duration::from_secs(60)).await? else {
        println!("machine {machine}: somebody else runs it");
        return Ok(());
    };
    println!("machine {machine}: runs the report, token {}", turn.token());
    turn.keep().await?; // not released: a late machine does not run it again
    Ok(())
}
