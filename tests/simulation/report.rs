//! The output of the long form.

use std::time::Duration;

use crate::plan::{Fault, Plan};
use crate::runs::Total;
use crate::world::{self, Outcome};

/// The number of lines of a history that it prints.
const LAST_LINES: usize = 120;

pub fn total(total: &Total, elapsed: Duration) {
    let per_second = total.steps as f64 / elapsed.as_secs_f64();
    println!(
        "\n{} runs, {:.0} hours of virtual time",
        total.runs,
        total.time.as_secs_f64() / 3600.0
    );
    println!(
        "{} steps, {per_second:.0} steps a second, {} commands served",
        total.steps, total.scripts
    );
    println!("at most {} calls of a script", total.most_calls);
    println!("\nfaults by kind");
    let is_fault = |name: &str| Fault::ALL.iter().any(|fault| fault.name() == name);
    let list = |faults: bool| {
        for (name, count) in total.counts.iter().filter(|(name, _)| is_fault(name) == faults) {
            println!("{count:>12}  {name}");
        }
    };
    list(true);
    println!("\nstates reached");
    list(false);
    println!("\n{} violations", total.violations.len());
    for found in &total.violations {
        let rule = found.violation.as_ref().map_or("", |violation| violation.rule);
        println!("  seed {}: {rule}", found.plan.seed);
    }
}

/// Prints a violation, with the history of the smallest run that shows it.
pub fn violation(found: &Outcome) {
    let Some(violation) = &found.violation else {
        return;
    };
    println!(
        "\nVIOLATION of \"{}\" by seed {}, at {:?}: {}",
        violation.rule, found.plan.seed, violation.at, violation.what
    );
    let plan = crate::shrink::shrink(&found.plan, violation.rule);
    let again = world::run(&Plan { tells_all: true, ..plan.clone() });
    println!("the end of the history of the smallest run that shows it:");
    let first = again.history.len().saturating_sub(LAST_LINES);
    again.history[first..].iter().for_each(|line| println!("  {line}"));
    println!("replay: SEED={} make sim", found.plan.seed);
    println!("the smallest run: {} make sim", replay(&plan));
}

/// The settings that reproduce a plan.
fn replay(plan: &Plan) -> String {
    let faults: Vec<String> = plan.faults.iter().map(|fault| format!("{fault:?}")).collect();
    let Plan { seed, clients, users, locks, length, .. } = plan;
    let length = length.as_millis();
    format!(
        "SEED={seed} CLIENTS={clients} USERS={users} LOCKS={locks} LENGTH={length} FAULTS={}",
        faults.join(",")
    )
}
