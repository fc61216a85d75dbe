//! The goals of the locks, compared with the other contenders in the same rounds.

use common::Goals;

use crate::contenders::{MUTEX, RDS_LOCK, RSLOCK, SCRIPTS, SET};
use crate::report::Scenario;

/// The default backend, which has the highest goals, and the others.
const DEFAULT: &str = "rwlease native";
const OURS: [&str; 3] = [DEFAULT, "rwlease redis", "rwlease fred"];

const CROWD: usize = 64;
/// The ratio to the same scripts over the same connections, at any number of tasks.
const MIN_RATIO_TO_SCRIPTS: f64 = 0.90;
/// The ratio to `SET NX PX` by a client crate, with many tasks that write or that read.
const MIN_RATIO_TO_SET: [(&str, f64); 2] =
    [("uncontended write", 1.25), ("uncontended read", 1.10)];
/// The ratio to `rds_lock`, at any number of tasks, where each task has its own lock.
const MIN_RATIO_TO_RDS_LOCK: f64 = 1.0;
const MIN_RATIO_TO_RDS_LOCK_OF_CROWD: f64 = 1.25;
/// The ratio to a mutex of `rslock`, from this many tasks on.
const MIN_RATIO_TO_RSLOCK: (usize, f64) = (16, 1.0);

/// Judges the goals whose contenders took part.
pub fn judge(scenarios: &[Scenario]) -> Goals {
    let mut goals = Goals::new("pairs/s, as ratios");
    for scenario in scenarios {
        if scenario.is_open() {
            judge_latency(&mut goals, scenario);
        } else {
            judge_rates(&mut goals, scenario);
        }
    }
    goals
}

fn judge_rates(goals: &mut Goals, scenario: &Scenario) {
    let name = &scenario.name;
    for ours in OURS {
        if let Some((title, pairs)) = ratios(scenario, ours, SCRIPTS, 1, MIN_RATIO_TO_SCRIPTS) {
            goals.all_at_least(title, &pairs);
        }
    }
    let to_set = MIN_RATIO_TO_SET.into_iter().find(|(scenario, _)| scenario == name);
    if let Some((_, wanted)) = to_set
        && let Some(ratio) = scenario.ratio(DEFAULT, SET, CROWD)
    {
        goals.at_least(format!("{name}: {DEFAULT} of {SET} by redis, at {CROWD}"), wanted, ratio);
    }
    for ours in OURS {
        if let Some((title, pairs)) = ratios(scenario, ours, RDS_LOCK, 1, MIN_RATIO_TO_RDS_LOCK) {
            goals.all_more_than(title, &pairs);
        }
    }
    let is_uncontended = scenario.tasks().len() > 1;
    if let Some(ratio) = scenario.ratio(DEFAULT, RDS_LOCK, CROWD).filter(|_| is_uncontended) {
        let title = |of| format!("{name}: {DEFAULT}{of} of {RDS_LOCK}, at {CROWD}");
        goals.at_least(title(""), MIN_RATIO_TO_RDS_LOCK_OF_CROWD, ratio);
        if let Some(late) = scenario.ratio_of_times(DEFAULT, RDS_LOCK, CROWD, 0.99) {
            goals.at_most(title(", p99"), 1.0, late);
        }
    }
    let (from, wanted) = MIN_RATIO_TO_RSLOCK;
    if let Some((title, pairs)) = ratios(scenario, MUTEX, RSLOCK, from, wanted) {
        goals.all_at_least(title, &pairs);
    }
}

/// The title, and the goal and the result for each number of tasks from `least` on. `None` if one
/// of the two took no part.
fn ratios(
    scenario: &Scenario,
    ours: &str,
    theirs: &str,
    least: usize,
    wanted: f64,
) -> Option<(String, Vec<(f64, f64)>)> {
    let tasks = scenario.tasks().into_iter().filter(|tasks| *tasks >= least);
    let (at, pairs): (Vec<String>, Vec<_>) = tasks
        .filter_map(|tasks| {
            Some((tasks.to_string(), (wanted, scenario.ratio(ours, theirs, tasks)?)))
        })
        .unzip();
    let title = format!("{}: {ours} of {theirs}, at {}", scenario.name, at.join(", "));
    (!pairs.is_empty()).then_some((title, pairs))
}

/// In an open loop all contenders do the same number of pairs, so their times are compared.
fn judge_latency(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        if let Some(ratio) = scenario.ratio_of_times(ours, RDS_LOCK, scenario.tasks()[0], 0.5) {
            let title = format!("{}: {ours}, median of that of {RDS_LOCK}", scenario.name);
            goals.at_most(title, 1.0, ratio);
        }
    }
}
