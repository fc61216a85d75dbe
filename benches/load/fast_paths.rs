//! The share of the calls of scripts that a fast path answers, in the contended scenarios.
//!
//! The scripts of this run send `ECHO` where the slow path begins, and each server counts its
//! commands.

use std::fs;
use std::sync::Arc;

use rwlease::Client;

use common::{BenchCluster, Goals, ReadPercent, RwleaseLock};
use load::closed;
use testkit::{Result, TempFolder};

use crate::Options;
use crate::scenarios::{CROWD, WRITERS};

const MIN_SHARE: f64 = 0.9;

/// The file with which each slow path begins.
const SLOW_PATH: &str = "lib/prelude.lua";

pub struct FastPathShare {
    scenario: &'static str,
    calls: u64,
    slow: u64,
}

impl FastPathShare {
    fn share(&self) -> f64 {
        1.0 - self.slow as f64 / self.calls.max(1) as f64
    }
}

pub async fn run(target: &BenchCluster, options: &Options) -> Result<Vec<FastPathShare>> {
    let lock = connect(target).await?.rwlock("fast-paths")?;
    let [_, before] = counts(target).await?;
    lock.status().await?; // it has no fast path
    let [_, after] = counts(target).await?;
    assert!(after > before, "the slow path is not counted");
    let mut shares = Vec::new();
    for (scenario, mix, tasks) in [
        ("95 of 100 read, one lock", ReadPercent(95), CROWD),
        ("writers on one lock", ReadPercent(0), WRITERS),
    ] {
        let locks: Arc<[RwleaseLock]> = Arc::new([RwleaseLock(lock.clone(), mix)]);
        let [calls, slow] = counts(target).await?;
        closed(&locks, tasks, options.turn * options.rounds as u32).await;
        let [all_calls, all_slow] = counts(target).await?;
        shares.push(FastPathShare { scenario, calls: all_calls - calls, slow: all_slow - slow });
    }
    Ok(shares)
}

pub fn judge(shares: &[FastPathShare], goals: &mut Goals) {
    for one in shares {
        let title = format!("{}: calls that a fast path answers", one.scenario);
        goals.at_least(title, MIN_SHARE, one.share());
    }
}

async fn connect(target: &BenchCluster) -> Result<Client> {
    let folder = TempFolder::of_scripts("paths")?;
    let file = folder.join(SLOW_PATH);
    let text = fs::read_to_string(&file)?;
    fs::write(&file, format!("redis.pcall('ECHO', 'slow path')\n{text}"))?;
    Ok(Client::builder().scripts_from(&*folder)?.urls(target.urls()).connect().await?)
}

/// How many calls of scripts and how many `ECHO` the masters have counted.
async fn counts(target: &BenchCluster) -> Result<[u64; 2]> {
    let mut sums = [0; 2];
    for master in target.masters().await? {
        let stats: String = target.node(master).run_words("INFO commandstats").await?;
        for (sum, command) in sums.iter_mut().zip(["evalsha", "echo"]) {
            let line = format!("cmdstat_{command}:calls=");
            let calls = stats.lines().find_map(|one| one.strip_prefix(&line)?.split(',').next());
            *sum += calls.and_then(|calls| calls.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sums)
}
