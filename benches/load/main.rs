//! Loads a cluster of six nodes, by all contenders in one run, and writes the report: `make bench`,
//! or `cargo bench -p rwlease-bench --bench load`.
//!
//! All contenders take turns in each round, and each round begins with another one. So a
//! disturbance of the machine affects all of them, and the result is the ratios within a round. The
//! first round only warms up. `-- --rounds N` and `-- --ms N` (of one turn) set the duration,
//! `-- --compose` uses a cluster of containers, `-- --alone` leaves out the locks of others, and
//! `-- --diff OLD NEW` compares two reports (the `.tsv` files). The bench exits with 3 if a goal is
//! missed. It needs `redis-benchmark`, for the limit.

// The user judges a bench, and it measures with the machine's clock.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub
)]

#[path = "../common/mod.rs"]
mod common;
mod contenders;
mod diff;
mod fan_in;
mod generator;
mod goals;
mod limit;
#[path = "../common/lock.rs"]
mod lock;
#[path = "../handoff/other_libraries.rs"]
#[allow(dead_code)]
mod peers;
mod report;
#[path = "../handoff/scenario.rs"]
#[allow(dead_code)]
mod scenario;
mod scenarios;
#[path = "../../tests/support/mod.rs"]
mod support;
mod svg;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use common::BenchCluster;
use report::Report;
use support::Result;

pub struct Options {
    pub rounds: usize,
    /// The duration of a contender's turn.
    pub turn: Duration,
    /// Leaves out the locks of others.
    pub alone: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let after = |name: &str, place: usize| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + place)
    };
    if let (Some(old), Some(new)) = (after("--diff", 1), after("--diff", 2)) {
        print!("{}", diff::diff(&std::fs::read_to_string(old)?, &std::fs::read_to_string(new)?));
        return Ok(ExitCode::SUCCESS);
    }
    let number =
        |name: &str, usual: u64| after(name, 1).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let options = Options {
        rounds: number("--rounds", 5).max(1) as usize,
        turn: Duration::from_millis(number("--ms", 400)),
        alone: words.iter().any(|word| word == "--alone"),
    };
    let target = BenchCluster::start().await?;
    let mut report = Report::begin(&target, &options);
    scenarios::run(&target, &options, &mut report).await?;
    fan_in::run(&target, &options, &mut report).await?;
    let below = folder(&target);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(below);
    report.write(&folder)?;
    print!("{}", report.markdown());
    eprintln!("written to {below}: report.html and report.tsv");
    Ok(report.goals().exit_code())
}

/// The folder of the report, below the root of the project, beside the output of the other benches.
fn folder(target: &BenchCluster) -> &'static str {
    match target {
        BenchCluster::Native(_) => "target/bench",
        BenchCluster::Compose(_) => "target/bench/compose",
    }
}
