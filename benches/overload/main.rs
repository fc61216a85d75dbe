//! More calls than a server can answer: `cargo bench -p rwlease-bench --bench overload`, or with
//! `-- --quick` in a fifth of the time.
//!
//! A proxy fixes the capacity of each server, in scripts a second. An open loop requests half of
//! the capacity, all of it, twice and four times that, and half again. The bench exits with 3 if a
//! goal is missed. Then it repeats the loop without the proxy's limit, where the machine is the
//! limit, up to twice what it can. That part has no goals.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub
)]

#[path = "../common/goal.rs"]
mod goal;
mod open_loop;
mod paced_proxy;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../common/table.rs"]
mod table;

use std::process::ExitCode;
use std::time::Duration;

use goal::Goals;
use open_loop::{LoadStage, OpenLoop};
use paced_proxy::PacedProxy;
use support::{Result, StandaloneServer};
use table::Table;

/// Scripts a second that the proxy passes. A pair runs two.
const CAPACITY: u32 = 5_000;

/// The load of each stage, as a multiple of the capacity.
const LOADS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 0.5];

/// The same where the machine is the limit. It could not even start four times as many, and would
/// run out of memory.
const UNPACED_LOADS: [f64; 4] = [0.5, 1.0, 2.0, 0.5];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let long = Duration::from_secs(if quick { 4 } else { 20 });
    let server = StandaloneServer::start().await?;
    println!("{}, one server, one client.\n", server.version());

    let paced = PacedProxy::start(&server, Some(CAPACITY)).await?;
    let mut load = OpenLoop::connect(&paced).await?;
    let capacity = f64::from(CAPACITY) / 2.0;
    let stages = run(&mut load, capacity, &LOADS, long).await;
    println!("{}", report("5,000 scripts a second", &LOADS, &stages));
    let goals = goals(&stages);
    println!("{goals}");
    drop(load);

    let unpaced = PacedProxy::start(&server, None).await?;
    let mut load = OpenLoop::connect(&unpaced).await?;
    let capacity = load.capacity(long / 5).await;
    let stages = run(&mut load, capacity, &UNPACED_LOADS, long / 4).await;
    println!("{}", report("as much as the machine can", &UNPACED_LOADS, &stages));
    Ok(goals.exit_code())
}

async fn run(load: &mut OpenLoop, capacity: f64, loads: &[f64], long: Duration) -> Vec<LoadStage> {
    let mut stages = Vec::new();
    for times in loads {
        stages.push(load.stage(times * capacity, long).await);
    }
    load.settle(&mut stages).await;
    stages
}

fn report(title: &str, loads: &[f64], stages: &[LoadStage]) -> Table {
    let mut table = Table::new(&[
        title,
        "pairs asked for a second",
        "done a second",
        "acquire p50, ms",
        "p99, ms",
        "failed",
        "of them in doubt",
        "sent twice",
        "connections retired",
        "back to normal after, s",
    ]);
    let normal = stages.first().map_or(0.0, |stage| stage.latency(0.5));
    for (times, stage) in loads.iter().zip(stages) {
        let recovery =
            stage.recovery_seconds(normal).map_or("never".into(), |after| format!("{after:.1}"));
        table.add([
            format!("load {times}"),
            format!("{:.0}", stage.request_rate()),
            format!("{:.0}", stage.completion_rate()),
            format!("{:.1}", stage.latency(0.5)),
            format!("{:.1}", stage.latency(0.99)),
            stage.failed().to_string(),
            stage.in_doubt.to_string(),
            stage.duplicate_acquires.to_string(),
            stage.retired.to_string(),
            recovery,
        ]);
    }
    table
}

fn goals(stages: &[LoadStage]) -> Goals {
    let mut goals = Goals::new("overload");
    let best = stages.iter().map(LoadStage::completion_rate).fold(1.0, f64::max);
    let [first, _, twice, four_times, last] = stages else {
        return goals;
    };
    for (what, stage) in [("twice", twice), ("four times", four_times)] {
        goals.at_least(
            format!("goodput at {what} the capacity, of the best"),
            0.9,
            stage.completion_rate() / best,
        );
    }
    let retired: u64 = stages.iter().map(|stage| stage.retired).sum();
    goals.at_most("connections retired", 0.0, retired as f64);
    let asked: f64 = stages.iter().map(|stage| stage.requested as f64).sum();
    let in_doubt: f64 = stages.iter().map(|stage| stage.in_doubt as f64).sum();
    goals.at_most("acquisitions in doubt, percent", 0.1, 100.0 * in_doubt / asked);
    let back = last.recovery_seconds(first.latency(0.5)).unwrap_or(f64::INFINITY);
    goals.at_most("back to normal after, s", 1.0, back);
    goals
}
