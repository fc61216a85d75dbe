//! The scenarios of the contenders.

use common::{BenchCluster, ReadPercent, ScriptPair};

use crate::Options;
use crate::contenders::{Contender, Contenders, LoadSpec, SCRIPTS};
use crate::limit::ServerLimit;
use crate::report::{Report, Row, Scenario};
use testkit::Result;

const CONCURRENCY: [usize; 4] = [1, 16, 64, 512];
const CROWD: usize = 64;
const WRITERS: usize = 16;
const MANY: usize = 10_000;

pub async fn run(target: &BenchCluster, options: &Options, report: &mut Report) -> Result {
    let limit = ServerLimit::find(target).await?;
    report.head.push(format!("the limit: {}", limit.describe()));
    let field = Contenders::connect(target, options.alone).await?;
    let alone = |tasks| LoadSpec { tasks, locks: tasks, rate: None, time: options.turn };

    let mut writers = field.floors(ScriptPair::Write);
    writers.extend(field.rwlease_contenders(ReadPercent(0)));
    writers.extend([field.published(), field.mutex()]);
    writers.extend(field.peers(ReadPercent(0)));
    writers.push(limit.contender());
    let mut scenario = Scenario::new("uncontended write", "Each task has a lock of its own");
    for tasks in CONCURRENCY {
        measure(&mut scenario, &writers, alone(tasks), options).await;
    }
    let rate = scenario.per_second(&format!("{SCRIPTS}, redis"), CROWD) / 2.0;
    report.scenarios.push(scenario);

    let mut readers = field.floors(ScriptPair::Read);
    readers.extend(field.rwlease_contenders(ReadPercent(100)));
    readers.extend(field.peers(ReadPercent(100)));
    readers.push(limit.contender());
    let mut scenario = Scenario::new("uncontended read", "Each task has a lock of its own");
    for tasks in CONCURRENCY {
        measure(&mut scenario, &readers, alone(tasks), options).await;
    }
    report.scenarios.push(scenario);

    let note = format!(
        "Pairs are due at fixed times, {rate:.0} a second: half of what the same scripts do at {CROWD} tasks; a lock of 10,000 each"
    );
    let mut scenario = Scenario::new("open loop, write", &note);
    let mut few = field.floors(ScriptPair::Write);
    few.extend(field.rwlease_contenders(ReadPercent(0)));
    few.extend(field.peers(ReadPercent(0)));
    let work = LoadSpec { rate: Some(rate), locks: MANY, ..alone(CROWD) };
    measure(&mut scenario, &few, work, options).await;
    report.scenarios.push(scenario);

    let no_reads = "64 tasks; `rslock` has no reads: its readers exclude one another";
    for (name, mix, tasks, locks, note) in [
        ("95 of 100 read, one lock", ReadPercent(95), CROWD, 1, no_reads),
        (
            "95 of 100 read, 10,000 locks",
            ReadPercent(95),
            CROWD,
            MANY,
            "64 tasks, each time a lock at random",
        ),
        (
            "writers on one lock",
            ReadPercent(0),
            WRITERS,
            1,
            "16 tasks; nothing is done while it is held",
        ),
    ] {
        let mut scenario = Scenario::new(name, note);
        let mut all = field.rwlease_contenders(mix);
        all.extend(field.peers(mix));
        let work = LoadSpec { locks, ..alone(tasks) };
        measure(&mut scenario, &all, work, options).await;
        report.scenarios.push(scenario);
    }
    Ok(())
}

/// Runs all rounds of one concurrency. Each round begins with another contender.
async fn measure(
    scenario: &mut Scenario,
    contenders: &[Contender],
    work: LoadSpec,
    options: &Options,
) {
    let first = scenario.rows.len();
    let rows = contenders.iter().map(|contender| Row::new(&contender.name, work.tasks));
    scenario.rows.extend(rows);
    for round in 0..=options.rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let run = (contenders[at].run)(work).await;
            if round > 0 {
                scenario.rows[first + at].add(&run, work.rate.is_none() && !work.is_contended());
            }
        }
    }
    eprintln!("{}, {} tasks: done", scenario.name, work.tasks);
}
