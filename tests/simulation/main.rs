//! The deterministic simulation: the real client and the real scripts, on one thread, under one virtual clock, with all that can go
//! wrong, and every promise checked at every step.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods, unreachable_pub)]

mod book;
mod census;
mod checker;
mod clients;
mod court;
mod hash;
mod nemesis;
mod plan;
mod queue;
mod reached;
mod users;
mod weather;
mod world;

use plan::Plan;

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 1..6 {
        let plan = Plan {
            tells_all: true,
            ..Plan::from_seed(seed)
        };
        let (first, second) = (world::run(&plan), world::run(&plan));
        for (at, (a, b)) in first.history.iter().zip(&second.history).enumerate() {
            assert_eq!(a, b, "seed {seed} differs at line {at}");
        }
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.steps, second.steps, "seed {seed}");
    }
}

#[test]
fn try_out() {
    let from: u64 = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let count: u64 = std::env::var("COUNT")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let mut counts = std::collections::BTreeMap::new();
    let (mut steps, mut scripts, mut most) = (0, 0, 0);
    let start = std::time::Instant::now();
    for seed in from..from + count {
        let plan = Plan::from_seed(seed);
        let outcome = world::run(&plan);
        steps += outcome.steps;
        scripts += outcome.scripts;
        most = most.max(outcome.most_calls);
        for (name, count) in outcome.counts {
            *counts.entry(name).or_insert(0) += count;
        }
        if let Some(violation) = outcome.violation {
            println!("seed {seed}: {violation:?}\n{:?}", outcome.plan);
            if count == 1 {
                let again = world::run(&Plan {
                    tells_all: true,
                    ..plan
                });
                let history = again.history;
                for line in &history[history.len().saturating_sub(4000)..] {
                    println!("{line}");
                }
            }
        }
    }
    println!(
        "{steps} steps, {scripts} served, most calls {most}, {:?}\n{counts:#?}",
        start.elapsed()
    );
}
