//! The deterministic simulation. The real client and the real scripts run on one thread, under one
//! virtual clock, with faults of all kinds. Every promise is checked at every step.
//!
//! `cargo test --test simulation` is its short form. `make sim MINUTES=10` runs it longer, `SEED=17
//! make sim` replays one run, and `make mutants` shows that it finds faults of the scripts.
//! `docs/guarantees.md` lists the check for each promise.

// The ban on direct clocks is for the library.
#![allow(clippy::disallowed_methods, unreachable_pub)]

mod caching;
mod census;
mod checker;
mod clients;
mod election_and_transfer;
mod foreign_servers;
mod history;
mod ledger;
mod mutants;
mod nemesis;
mod network_model;
mod panics;
mod plan;
mod reached;
mod recall_races;
mod reentrant;
mod report;
mod runs;
mod scale;
mod semaphores;
mod shrink;
mod users;
mod verdict;
mod watchdog;
mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plan::{Fault, Plan};
use runs::{Until, runs};

/// The number of runs of the short form.
const SEEDS: u64 = 120;

/// How long the search for a violation may take when a test breaks an assumption.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn simulated_clients_keep_every_lock_promise() {
    let started = Instant::now();
    let total = runs(1, Until::Seed(SEEDS), Plan::from_seed, |_| {});
    total.violations.iter().take(3).for_each(report::violation);
    assert_eq!(total.violations.len(), 0, "of {SEEDS} runs");
    let missing = total.missing();
    assert!(missing.is_empty(), "too seldom reached: {missing:#?}");
    report::total(&total, started.elapsed());
}

#[test]
fn simulated_cluster_with_one_seed_repeats_its_history() {
    for seed in 1..6 {
        let plan = Plan { tells_all: true, ..Plan::from_seed(seed) };
        let (first, second) = (world::run(&plan), world::run(&plan));
        for (at, (a, b)) in first.history.iter().zip(&second.history).enumerate() {
            assert_eq!(a, b, "seed {seed} differs at line {at}");
        }
        assert_eq!((first.digest, first.steps), (second.digest, second.steps), "seed {seed}");
    }
}

/// Otherwise the smaller plan would show another violation than the one that was found.
#[test]
fn shrunk_plan_keeps_clock_skew_below_the_margin() {
    for plan in (1..100).map(Plan::from_seed) {
        for smaller in shrink::smaller_ones(&plan).iter().filter(|it| !it.has(Fault::Skew)) {
            let apart = Duration::from_millis(2 * smaller.skew_ms().unsigned_abs());
            assert!(apart < smaller.margin, "seed {}: {smaller:?}", plan.seed);
        }
    }
}

/// Without a margin, exclusion fails although the servers' clocks differ by less than two seconds.
#[test]
fn clocks_that_differ_more_than_the_margin_break_exclusion() {
    let rule = first_violation(|seed| Plan {
        faults: BTreeSet::from([Fault::Move, Fault::Failover]),
        small_skew_ms: 900,
        margin: Duration::ZERO,
        is_strict: true,
        ..Plan::from_seed(seed)
    });
    assert!(matches!(rule, "one writer" | "no reader beside a writer"), "{rule}");
}

/// A failover that loses writes breaks exclusion. So the other checks must excuse its locks.
#[test]
fn a_failover_that_loses_writes_breaks_exclusion() {
    let rule = first_violation(|seed| Plan {
        faults: BTreeSet::from([Fault::LossyFailover]),
        is_strict: true,
        ..Plan::from_seed(seed)
    });
    assert!(matches!(rule, "one writer" | "no reader beside a writer"), "{rule}");
}

/// Only the scripts detect a request that arrives too late.
#[test]
fn acquire_without_not_after_is_granted_too_late() {
    let scripts = mutants::without_not_after();
    let rule = first_violation(|seed| Plan {
        scripts: Some(scripts.to_path_buf()),
        ..Plan::from_seed(seed)
    });
    assert_eq!(rule, "who comes too late gets nothing");
}

/// Each rule of the judge finds a fault in the scripts by itself.
#[test]
fn the_lock_judge_of_histories_finds_faults_by_itself() {
    const MINTS: &str = "math.max(number('fence') + 1, now_us)";
    let cases: [(&str, &[mutants::Change]); 4] = [
        (
            "history: no two overlapped",
            &[(
                "lib/acquire_slow.lua",
                "if current_writer() or current_upgrader() then",
                "if current_upgrader() then",
            )],
        ),
        (
            "history: tokens name the order of the grants",
            &[("lib/grant_budget.lua", MINTS, "math.max(number('fence') - 5000000, 1)")],
        ),
        ("history: no two have one token", &[("lib/grant_budget.lua", MINTS, "number('fence')")]),
        (
            "history: a try is refused because of somebody",
            &[
                (
                    "lib/fast/acquire_args.lua",
                    "local is_free = is_fast_path\n",
                    "local is_free = is_fast_path and not is_try\n",
                ),
                ("lib/acquire_slow.lua", "elseif can_grant(mode) then", "elseif false then"),
            ],
        ),
    ];
    for (rule, faults) in cases {
        let scripts = mutants::scripts_with(faults);
        let found = first_violation(|seed| Plan {
            faults: BTreeSet::new(),
            is_quorum: false,
            only: rule,
            caching: 0.0,
            scripts: Some(scripts.to_path_buf()),
            ..Plan::from_seed(seed)
        });
        assert_eq!(found, rule);
    }
}

/// Two checks find one permit too many: that of the users, and that of the semaphore's hash.
#[test]
fn a_permit_too_many_is_found() {
    let scripts = mutants::scripts_with(&[(
        "semaphore/acquire.lua",
        "used + wanted_permits <= expected_limit\n",
        "used + wanted_permits <= expected_limit + 1\n",
    )]);
    for rule in [
        "permits are never more than the limit",
        "a hash has no more permits in use than its limit",
    ] {
        let found = first_violation(|seed| Plan {
            only: rule,
            scripts: Some(scripts.to_path_buf()),
            ..Plan::from_seed(seed)
        });
        assert_eq!(found, rule);
    }
}

/// `make sim`: runs for MINUTES, from FIRST or a random seed on, or replays one SEED.
#[test]
#[ignore = "takes as long as MINUTES says"]
fn simulated_clients_run_for_minutes() {
    if let Some(seed) = setting("SEED") {
        let plan = chosen(seed);
        println!("{plan:?}");
        let outcome = world::run(&Plan { tells_all: true, ..plan });
        outcome.history.iter().for_each(|line| println!("{line}"));
        report::violation(&outcome);
        assert_eq!(outcome.violation, None);
        return;
    }
    let minutes = setting("MINUTES").unwrap_or(10);
    let first = setting("FIRST").unwrap_or_else(|| fastrand::u64(1_000_000..1_000_000_000));
    println!("from seed {first} on");
    let started = Instant::now();
    let told = std::sync::Mutex::new((started, 0));
    let length = Duration::from_secs(60 * minutes);
    let total = runs(first, Until::Time(length), Plan::from_seed, |total| {
        let (at, known) = &mut *told.lock().unwrap();
        let new = total.violations.iter().skip(*known);
        new.for_each(|outcome| println!("seed {}: {:?}", outcome.plan.seed, outcome.violation));
        *known = total.violations.len();
        if at.elapsed() > Duration::from_secs(10) {
            *at = Instant::now();
            let seconds = started.elapsed().as_secs();
            println!(
                "{seconds:>5} s  {:>8} runs  {:>12} steps  {known} violations",
                total.runs, total.steps
            );
        }
    });
    report::total(&total, started.elapsed());
    total.violations.iter().take(3).for_each(report::violation);
    assert_eq!(total.violations.len(), 0);
    let missing = total.missing();
    assert!(missing.is_empty(), "too seldom reached: {missing:#?}");
}

/// For `scripts/script-faults`, with the scripts in the folder that `RWLEASE_LUA` names.
#[test]
#[ignore = "for `make mutants`"]
fn violation_of_scripts_is_searched_for() {
    let scripts = std::env::var_os("RWLEASE_LUA").map(PathBuf::from);
    let time = Duration::from_secs(setting("SECONDS").unwrap_or(40));
    let plan = |seed| Plan { scripts: scripts.clone(), ..Plan::from_seed(seed) };
    let total = runs(1, Until::Violation(time), plan, |_| {});
    let found = total.violations.first();
    if let Some(violation) = found.and_then(|outcome| outcome.violation.as_ref()) {
        println!("caught by {:?}", violation.rule);
    }
    assert!(found.is_none());
}

/// The rule of the first violation.
fn first_violation(plan: impl Fn(u64) -> Plan + Sync) -> &'static str {
    let total = runs(1, Until::Violation(SOON), plan, |_| {});
    total
        .violations
        .first()
        .and_then(|found| found.violation.as_ref())
        .map_or("none", |violation| violation.rule)
}

/// The plan of a seed, made smaller by the settings in the environment.
fn chosen(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    let number = |name: &str, place: &mut usize| {
        if let Some(value) = setting(name) {
            *place = value as usize;
        }
    };
    number("CLIENTS", &mut plan.clients);
    number("USERS", &mut plan.users);
    number("LOCKS", &mut plan.locks);
    if let Some(ms) = setting("LENGTH") {
        plan.length = Duration::from_millis(ms);
    }
    if let Ok(faults) = std::env::var("FAULTS") {
        plan.faults.retain(|fault| faults.split(',').any(|name| name == format!("{fault:?}")));
    }
    plan
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .filter(|value| !value.is_empty())
        .map(|value| value.parse().expect(name))
}
