//! A job that every machine's cron starts, and one runs: the first takes the lock and keeps it for the rest of the minute, the others see that
//! it is taken and leave.

mod common;

use std::time::Duration;

use rwlease::{Locks, Renewal, Result};

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
    // No renewal: the lock is to outlive the job, so that a late machine does not run it again.
    let Some(turn) = lock
        .try_write()
        .lease(Duration::from_secs(60))
        .renewal(Renewal::Manual)
        .await?
    else {
        println!("machine {machine}: somebody else runs it");
        return Ok(());
    };
    println!("machine {machine}: runs the report, token {}", turn.token());
    std::mem::forget(turn); // not released: it ends with its lease
    Ok(())
}
