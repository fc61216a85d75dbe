//! Loads a cluster of six nodes, by all contenders in one run: `make bench BENCH=load`, or `cargo
//! bench -p rwlease-bench --bench load`.
//!
//! All contenders take turns in each round, and each round begins with another one. So a
//! disturbance of the machine affects all of them, and the result is the ratios within a round. The
//! first round only warms up. `-- --rounds N` and `-- --ms N` (of one turn) set the duration,
//! `-- --compose` uses a cluster of containers, and `-- --alone` leaves out the locks of others.
//! The bench exits with 3 if a goal is missed. It needs `redis-benchmark`, for the limit.

mod contenders;
mod fan_in;
mod goals;
mod limit;
mod report;
mod scenarios;

use std::process::ExitCode;
use std::time::Duration;

use common::{BenchCluster, has_option, number_option};
use report::Report;
use testkit::Result;

pub struct Options {
    pub rounds: usize,
    /// The duration of a contender's turn.
    pub turn: Duration,
    /// Leaves out the locks of others.
    pub alone: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let options = Options {
        rounds: number_option("--rounds", 5).max(1) as usize,
        turn: Duration::from_millis(number_option("--ms", 400)),
        alone: has_option("--alone"),
    };
    let target = BenchCluster::start().await?;
    let mut report = Report::begin(&target, &options);
    scenarios::run(&target, &options, &mut report).await?;
    fan_in::run(&target, &options, &mut report).await?;
    let goals = goals::judge(&report.scenarios);
    print!("{report}## goals\n\n{goals}");
    Ok(goals.exit_code())
}
