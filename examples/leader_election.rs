//! One of several candidates leads for as long as its lease is good; when it steps down or is lost,
//! the next one does.

mod common;

use std::time::Duration;

use rwlease::{Locks, Result};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = common::connect().await?;
    let mut candidates = JoinSet::new();
    for number in 1..=3 {
        candidates.spawn(stand_for_election(locks.clone(), number));
    }
    while let Some(done) = candidates.join_next().await {
        done.expect("a candidate does not panic")?;
    }
    Ok(())
}

async fn stand_for_election(locks: Locks, number: u32) -> Result<()> {
    let leadership = locks.rwlock("leader:{jobs}")?.write().lease(Duration::from_secs(10)).await?;
    println!("candidate {number} leads, term {}", leadership.token());
    tokio::select! {
        () = lead() => println!("candidate {number} steps down"),
        // A leader must stop at once when its lease is lost: another one may lead already.
        () = leadership.lost() => println!("candidate {number} has lost the lead"),
    }
    leadership.release().await?;
    Ok(())
}

async fn lead() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
