//! What the locks should reach beside the others in the same rounds.

use crate::common::Goals;
use crate::contenders::{RDS_LOCK, RSLOCK, SCRIPTS, SET};
use crate::report::Scenario;

const OURS: [&str; 3] = ["rwlease redis", "rwlease native", "rwlease fred"];
const MUTEX: &str = "rwlease Mutex, redis";

/// At so many tasks at least so much of a floor.
const FLOORS: [(&str, [(usize, f64); 2]); 2] =
    [(SCRIPTS, [(1, 0.95), (64, 0.90)]), (SET, [(1, 0.90), (64, 0.65)])];
const AHEAD: f64 = 1.0;
const LEVEL: f64 = 0.95;

/// The goals whose contenders took part.
pub fn judge(scenarios: &[Scenario]) -> Goals {
    let mut goals = Goals::new("pairs/s, as ratios");
    for scenario in scenarios {
        if scenario.is_open() {
            ahead_in_time(&mut goals, scenario);
        } else {
            floors(&mut goals, scenario);
            beside_others(&mut goals, scenario);
        }
    }
    goals
}

fn floors(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        for (floor, wanted) in FLOORS {
            let ratios =
                wanted.map(|(tasks, wanted)| Some((wanted, scenario.ratio(ours, floor, tasks)?)));
            if let [Some(few), Some(many)] = ratios {
                let at = wanted.map(|(tasks, _)| tasks.to_string()).join(" and ");
                goals.all_at_least(
                    format!("{}: {ours} of {floor}, at {at}", scenario.name),
                    &[few, many],
                );
            }
        }
    }
}

fn beside_others(goals: &mut Goals, scenario: &Scenario) {
    let ratios = |ours, theirs, wanted| -> Vec<(f64, f64)> {
        let ratio = |&tasks: &usize| Some((wanted, scenario.ratio(ours, theirs, tasks)?));
        scenario.tasks().iter().filter_map(ratio).collect()
    };
    let at: Vec<String> = scenario.tasks().iter().map(usize::to_string).collect();
    let what =
        |ours, theirs| format!("{}: {ours} of {theirs}, at {}", scenario.name, at.join(", "));
    for ours in OURS {
        let ahead = ratios(ours, RDS_LOCK, AHEAD);
        if !ahead.is_empty() {
            goals.all_more_than(what(ours, RDS_LOCK), &ahead);
        }
    }
    let level = ratios(MUTEX, RSLOCK, LEVEL);
    if !level.is_empty() {
        goals.all_at_least(what(MUTEX, RSLOCK), &level);
    }
}

/// All do as many pairs there as are due.
fn ahead_in_time(goals: &mut Goals, scenario: &Scenario) {
    for ours in OURS {
        if let Some(ratio) = scenario.ratio_of_medians(ours, RDS_LOCK) {
            goals.at_most(
                format!("{}: {ours}, median of that of {RDS_LOCK}", scenario.name),
                AHEAD,
                ratio,
            );
        }
    }
}
