//! One of several candidates leads for as long as its lease is good; when it resigns or loses the
//! lead, the next one leads. An observer watches.

mod common;

use std::time::Duration;

use rwlease::{Election, ErrorKind, Result};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let client = common::connect().await?;
    let leader = client.election("leader:{jobs}")?;
    let observer = tokio::spawn(observe(leader.clone()));
    let mut candidates = JoinSet::new();
    for number in 1..=3 {
        candidates.spawn(stand_for_election(leader.clone(), number));
    }
    while let Some(done) = candidates.join_next().await {
        done.expect("a candidate does not panic")?;
    }
    observer.abort();
    Ok(())
}

async fn stand_for_election(leader: Election, number: u32) -> Result<()> {
    let campaign = leader.campaign().lease(Duration::from_secs(10));
    let led = campaign.run_while_held(async |lease| {
        println!("candidate {number} leads, term {}", lease.fencing_token().map_or(0, u64::from));
        lead().await;
    });
    match led.await {
        Ok(()) => println!("candidate {number} resigns"),
        // `lead` was cancelled: another one may lead already.
        Err(error) if error.kind() == ErrorKind::LeaseLost => {
            println!("candidate {number} has lost")
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn lead() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

async fn observe(leader: Election) -> Result<()> {
    let mut watch = leader.observe().poll_interval(Duration::from_millis(50));
    loop {
        match watch.changed().await? {
            Some(leader) => println!("{} leads in term {}", leader.client_id(), leader.term),
            None => println!("nobody leads"),
        }
    }
}
