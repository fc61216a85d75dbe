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
const OF_SCRIPTS: f64 = 0.90;
/// The ratio to `SET NX PX` by a client crate, with many tasks that write or that read.
const OF_SET: [(&str, f64); 2] = [("uncontended write", 1.25), ("uncontended read", 1.10)];
/// The ratio to `rds_lock`, at any number of tasks, where each task has its own lock.
const AHEAD: f64 = 1.0;
const FAR_AHEAD: f64 = 1.25;
/// The ratio to a mutex of `rslock`, from this many tasks on.
const LEVEL: (usize, f64) = (16, 1.0);

/// Judges the goals whose contenders took part.
pub fn judge(scenarios: &[Scenario]) -> Goals {
    let mut goals = Goals::new("pairs/s, as ratios");
    for scenario in scenarios {
        if scenario.is_open() {
            ahead_in_time(&mut goals, scenario);
        } else {
            of_scripts(&mut goals, scenario);
            of_set(&mut goals, scenario);
            beside_others(&mut goals, scenario);
        }
    }
    goals
}

fn of_scripts(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        let ratios = ratios(scenario, ours, SCRIPTS, 1, OF_SCRIPTS);
        if !ratios.is_empty() {
            goals.all_at_least(what(scenario, ours, SCRIPTS, 1), &ratios);
        }
    }
}

fn of_set(goals: &mut Goals, scenario: &Scenario) {
    let wanted = OF_SET.into_iter().find(|(name, _)| *name == scenario.name);
    if let Some((_, wanted)) = wanted
        && let Some(ratio) = scenario.ratio(DEFAULT, SET, CROWD)
    {
        let name = format!("{}: {DEFAULT} of {SET} by redis, at {CROWD}", scenario.name);
        goals.at_least(name, wanted, ratio);
    }
}

fn beside_others(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        let ahead = ratios(scenario, ours, RDS_LOCK, 1, AHEAD);
        if !ahead.is_empty() {
            goals.all_more_than(what(scenario, ours, RDS_LOCK, 1), &ahead);
        }
    }
    let is_alone = scenario.tasks().len() > 1;
    if let Some(ratio) = scenario.ratio(DEFAULT, RDS_LOCK, CROWD).filter(|_| is_alone) {
        let name = |of| format!("{}: {DEFAULT}{of} of {RDS_LOCK}, at {CROWD}", scenario.name);
        goals.at_least(name(""), FAR_AHEAD, ratio);
        if let Some(late) = scenario.ratio_of_times(DEFAULT, RDS_LOCK, CROWD, 0.99) {
            goals.at_most(name(", p99"), 1.0, late);
        }
    }
    let (from, wanted) = LEVEL;
    let level = ratios(scenario, MUTEX, RSLOCK, from, wanted);
    if !level.is_empty() {
        goals.all_at_least(what(scenario, MUTEX, RSLOCK, from), &level);
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

fn what(scenario: &Scenario, ours: &str, theirs: &str, least: usize) -> String {
    let tasks = scenario.tasks().into_iter().filter(|tasks| *tasks >= least);
    let at: Vec<String> = tasks.map(|tasks| tasks.to_string()).collect();
    format!("{}: {ours} of {theirs}, at {}", scenario.name, at.join(", "))
}

/// In an open loop all contenders do the same number of pairs, so their times are compared.
fn ahead_in_time(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        if let Some(ratio) = scenario.ratio_of_times(ours, RDS_LOCK, scenario.tasks()[0], 0.5) {
            goals.at_most(
                format!("{}: {ours}, median of that of {RDS_LOCK}", scenario.name),
                AHEAD,
                ratio,
            );
        }
    }
}
