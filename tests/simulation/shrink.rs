//! Makes a plan that violates a rule smaller, as long as it violates the same rule.

use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::world;

/// How long the search for a smaller plan may take.
const LIMIT: Duration = Duration::from_secs(20);

pub fn shrink(plan: &Plan, rule: &str) -> Plan {
    let mut smallest = plan.clone();
    let still =
        |plan: &Plan| world::run(plan).violation.is_some_and(|violation| violation.rule == rule);
    let started = Instant::now();
    loop {
        let is_late = started.elapsed() > LIMIT;
        let Some(smaller) = smaller_ones(&smallest).into_iter().find(still).filter(|_| !is_late)
        else {
            return smallest;
        };
        smallest = smaller;
    }
}

/// Plans that each lack one thing.
pub fn smaller_ones(plan: &Plan) -> Vec<Plan> {
    let mut smaller = Vec::new();
    for fault in &plan.faults {
        let mut faults = plan.faults.clone();
        faults.remove(fault);
        smaller.push(Plan { faults, ..plan.clone() });
    }
    if plan.clients > 1 {
        smaller.push(Plan { clients: plan.clients - 1, ..plan.clone() });
    }
    if plan.users > 1 {
        smaller.push(Plan { users: plan.users - 1, ..plan.clone() });
    }
    if plan.locks > 1 {
        smaller.push(Plan { locks: plan.locks - 1, ..plan.clone() });
    }
    if plan.length > Duration::from_millis(500) {
        smaller.push(Plan { length: plan.length / 2, ..plan.clone() });
    }
    smaller
}
