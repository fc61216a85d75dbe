//! The goals of the locks, compared with the other contenders in the same rounds.

use crate::common::Goals;
use crate::contenders::{RDS_LOCK, RSLOCK, SCRIPTS, SET};
use crate::report::Scenario;

/// The default backend, which has the highest goals, and the others.
const DEFAULT: &str = "rwlease native";
const OURS: [&str; 3] = [DEFAULT, "rwlease redis", "rwlease fred"];
const MUTEX: &str = "rwlease Mutex, native";

const CROWD: usize = 64;
/// The ratio to the same scripts over the same connections, at any number of tasks.
const MIN_RATIO_TO_SCRIPTS: f64 = 0.90;
/// The ratio to `SET NX PX` by a client crate, with many tasks that write or that read.
const MIN_RATIO_TO_SET: [(&str, f64); 2] =
    [("uncontended write", 1.25), ("uncontended read", 1.10)];
/// The ratio to `rds_lock`, at any number of tasks, where each task has its own lock.
const MIN_RATIO_TO_RDS_LOCK: f64 = 1.0;
const MIN_CONTENDED_RATIO: f64 = 1.25;
/// The ratio to a mutex of `rslock`, from this many tasks on.
const MIN_RATIO_TO_RSLOCK: (usize, f64) = (16, 1.0);

/// Judges the goals whose contenders took part.
pub fn judge(scenarios: &[Scenario]) -> Goals {
    let mut goals = Goals::new("pairs/s, as ratios");
    for scenario in scenarios {
        if scenario.is_open() {
            judge_latency(&mut goals, scenario);
        } else {
            judge_against_scripts(&mut goals, scenario);
            judge_against_set(&mut goals, scenario);
            judge_against_libraries(&mut goals, scenario);
        }
    }
    goals
}

fn judge_against_scripts(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        let ratios = ratios(scenario, ours, SCRIPTS, 1, MIN_RATIO_TO_SCRIPTS);
        if !ratios.is_empty() {
            goals.all_at_least(goal_title(scenario, ours, SCRIPTS, 1), &ratios);
        }
    }
}

fn judge_against_set(goals: &mut Goals, scenario: &Scenario) {
    let wanted = MIN_RATIO_TO_SET.into_iter().find(|(name, _)| *name == scenario.name);
    if let Some((_, wanted)) = wanted
        && let Some(ratio) = scenario.ratio(DEFAULT, SET, CROWD)
    {
        let name = format!("{}: {DEFAULT} of {SET} by redis, at {CROWD}", scenario.name);
        goals.at_least(name, wanted, ratio);
    }
}

fn judge_against_libraries(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        let ahead = ratios(scenario, ours, RDS_LOCK, 1, MIN_RATIO_TO_RDS_LOCK);
        if !ahead.is_empty() {
            goals.all_more_than(goal_title(scenario, ours, RDS_LOCK, 1), &ahead);
        }
    }
    let is_alone = scenario.tasks().len() > 1;
    if let Some(ratio) = scenario.ratio(DEFAULT, RDS_LOCK, CROWD).filter(|_| is_alone) {
        let name = |of| format!("{}: {DEFAULT}{of} of {RDS_LOCK}, at {CROWD}", scenario.name);
        goals.at_least(name(""), MIN_CONTENDED_RATIO, ratio);
        if let Some(late) = scenario.ratio_of_times(DEFAULT, RDS_LOCK, CROWD, 0.99) {
            goals.at_most(name(", p99"), 1.0, late);
        }
    }
    let (from, wanted) = MIN_RATIO_TO_RSLOCK;
    let level = ratios(scenario, MUTEX, RSLOCK, from, wanted);
    if !level.is_empty() {
        goals.all_at_least(goal_title(scenario, MUTEX, RSLOCK, from), &level);
    }
}

/// The goal and the result, for each number of tasks from `least` on.
fn ratios(
    scenario: &Scenario,
    ours: &str,
    theirs: &str,
    least: usize,
    wanted: f64,
) -> Vec<(f64, f64)> {
    let tasks = scenario.tasks().into_iter().filter(|tasks| *tasks >= least);
    tasks.filter_map(|tasks| Some((wanted, scenario.ratio(ours, theirs, tasks)?))).collect()
}

fn goal_title(scenario: &Scenario, ours: &str, theirs: &str, least: usize) -> String {
    let tasks = scenario.tasks().into_iter().filter(|tasks| *tasks >= least);
    let at: Vec<String> = tasks.map(|tasks| tasks.to_string()).collect();
    format!("{}: {ours} of {theirs}, at {}", scenario.name, at.join(", "))
}

/// In an open loop all contenders do the same number of pairs, so their times are compared.
fn judge_latency(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        if let Some(ratio) = scenario.ratio_of_times(ours, RDS_LOCK, scenario.tasks()[0], 0.5) {
            goals.at_most(
                format!("{}: {ours}, median of that of {RDS_LOCK}", scenario.name),
                MIN_RATIO_TO_RDS_LOCK,
                ratio,
            );
        }
    }
}
