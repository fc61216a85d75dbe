//! What the contenders do.

use std::process::Command;

use crate::Options;
use crate::common::{Kind, Target};
use crate::contenders::{Contender, Field, Mix, SCRIPTS, Work};
use crate::report::{Report, Row, Scenario};
use crate::support::Result;

const CONCURRENCY: [usize; 4] = [1, 16, 64, 512];
const CROWD: usize = 64;
const WRITERS: usize = 16;
const MANY: usize = 10_000;

pub async fn run(target: &Target, options: &Options, report: &mut Report) -> Result {
    let field = Field::enter(target, options.alone).await?;
    let alone = |tasks| Work {
        tasks,
        locks: tasks,
        rate: None,
        time: options.turn,
    };

    let mut writers = field.floors(Kind::Write);
    writers.extend(field.ours(Mix(0)));
    writers.extend([field.published(), field.mutex()]);
    writers.extend(field.peers());
    let mut scenario = Scenario::new("uncontended write", "each task has a lock of its own");
    for tasks in CONCURRENCY {
        measure(&mut scenario, &writers, alone(tasks), options).await;
    }
    let rate = scenario.per_second(&format!("{SCRIPTS}, redis"), CROWD) / 2.0;
    report.scenarios.push(scenario);

    let mut readers = field.floors(Kind::Read);
    readers.extend(field.ours(Mix(100)));
    let mut scenario = Scenario::new("uncontended read", "each task has a lock of its own");
    for tasks in CONCURRENCY {
        measure(&mut scenario, &readers, alone(tasks), options).await;
    }
    report.scenarios.push(scenario);

    let note = format!(
        "pairs are due at fixed times, {rate:.0} a second: half of what the same scripts do at {CROWD} tasks; a lock of 10,000 each"
    );
    let mut scenario = Scenario::new("open loop, write", &note);
    let mut few = field.floors(Kind::Write);
    few.extend(field.ours(Mix(0)));
    let work = Work {
        rate: Some(rate),
        locks: MANY,
        ..alone(CROWD)
    };
    measure(&mut scenario, &few, work, options).await;
    report.scenarios.push(scenario);

    for (name, mix, tasks, locks) in [
        ("95 of 100 read, one lock", Mix(95), CROWD, 1),
        ("95 of 100 read, 10,000 locks", Mix(95), CROWD, MANY),
        ("writers on one lock", Mix(0), WRITERS, 1),
    ] {
        let note = if locks == 1 {
            "the locks of others exclude readers too"
        } else {
            "a lock at random each time"
        };
        let mut scenario = Scenario::new(name, note);
        let mut all = field.ours(mix);
        all.extend(field.peers());
        let work = Work { locks, ..alone(tasks) };
        measure(&mut scenario, &all, work, options).await;
        report.scenarios.push(scenario);
    }
    Ok(())
}

/// All rounds of one concurrency. Each round begins with another contender.
async fn measure(scenario: &mut Scenario, contenders: &[Contender], work: Work, options: &Options) {
    let first = scenario.rows.len();
    let rows = contenders.iter().map(|contender| Row::new(&contender.name, work.tasks));
    scenario.rows.extend(rows);
    for round in 0..=options.rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let run = (contenders[at].run)(work).await;
            if round > 0 {
                scenario.rows[first + at].add(&run, work.rate.is_none());
            }
        }
    }
    eprintln!("{}, {} tasks: done", scenario.name, work.tasks);
}

/// What the server's own tool reaches with as many connections, in commands a second.
pub fn redis_benchmark(target: &Target) -> Option<f64> {
    let port = target.node(0).port().to_string();
    let limit = Command::new("redis-benchmark")
        .args([
            "--cluster",
            "-p",
            &port,
            "-t",
            "set",
            "-c",
            "64",
            "-n",
            "100000",
            "-r",
            "100000",
            "--csv",
        ])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&limit.stdout);
    let line = said.lines().find(|line| line.starts_with("\"SET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}
