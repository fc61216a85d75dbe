//! A thousand tasks wait for one lock.

use std::time::{Duration, Instant};

use rwlease::{Client, RwLock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use common::BenchCluster;
use load::LoadRun;

use crate::Options;
use crate::report::{Report, Row, Scenario};
use testkit::{PollLimit, Result};

const WAITERS: usize = 1_000;
const CLIENTS: usize = 4;

pub async fn run(target: &BenchCluster, options: &Options, report: &mut Report) -> Result {
    let note = "From the release of a write until each waiter has had its turn, by four clients";
    let mut scenario = Scenario::new("fan-in of 1,000 waiters", note);
    scenario.rows = vec![Row::new("readers", WAITERS), Row::new("writers", WAITERS)];
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(target.urls()).await?);
    }
    for round in 0..=options.rounds {
        for (row, write) in [false, true].into_iter().enumerate() {
            let locks: Vec<RwLock> = clients
                .iter()
                .map(|locks| locks.rwlock("fan-in"))
                .collect::<rwlease::Result<_>>()?;
            let run = measure_drain(target, &locks, write).await?;
            if round > 0 {
                scenario.rows[row].add(&run, false);
            }
        }
    }
    eprintln!("{}: done", scenario.name);
    report.scenarios.push(scenario);
    Ok(())
}

async fn measure_drain(target: &BenchCluster, locks: &[RwLock], write: bool) -> Result<LoadRun> {
    let held = locks[0].write().await?;
    let mut tasks = JoinSet::new();
    for number in 0..WAITERS {
        let lock = locks[number % locks.len()].clone();
        tasks.spawn(async move {
            let released = if write {
                let guard = lock.write().await?;
                (Instant::now(), guard.release().await?)
            } else {
                let guard = lock.read().await?;
                (Instant::now(), guard.release().await?)
            };
            Ok::<_, rwlease::Error>(released.0)
        });
    }
    wait_until_queued(target, &locks[0]).await?;
    // By now the subscriptions exist, and the last polls before them are over.
    sleep(Duration::from_millis(1_500)).await;
    let begun = Instant::now();
    let _ = held.release().await?;
    let mut pairs = Vec::new();
    while let Some(had) = tasks.join_next().await {
        pairs.push(had??.saturating_duration_since(begun));
    }
    let elapsed = pairs.iter().max().copied().unwrap_or_default();
    Ok(LoadRun { elapsed, pairs, ..LoadRun::default() })
}

async fn wait_until_queued(target: &BenchCluster, lock: &RwLock) -> Result {
    let node = target.node(target.master_of(lock.slot().get()).await?);
    let count =
        redis::cmd("HGET").arg(format!("rwlease:{}", lock.name())).arg("waiters").to_owned();
    let wait_limit = PollLimit::new("all to wait");
    while node.run::<Option<usize>>(&count).await? != Some(WAITERS) {
        wait_limit.pause("not yet").await?;
    }
    Ok(())
}
