//! Acquires and releases a free lock over each backend, on one cluster in one run: `cargo bench -p
//! rwlease-bench --bench backends [-- --quick]`.
//!
//! Three variants are measured for each backend. All nine take turns in each round, and each round
//! begins with another one, so that drift of the machine affects all of them:
//!
//! - the locks of this library;
//! - the same two scripts, by the bare client crate with one connection to each master and known
//!   slots (for `native`, by a minimal connection that writes ready commands together);
//! - `SET NX PX` and compare-and-delete by the same client, the lowest cost of any lock.
//!
//! Only writes are measured here. The bench `load` has the reads, and their goals. The results are
//! the ratio of the locks to the other two variants, and that of the other backends to `redis`,
//! within a round. The bench prints the median over the rounds, and the processor time of this
//! process, which runs no server. It exits with 3 if a goal is missed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

#[path = "common/mod.rs"]
mod common;
#[path = "load/generator.rs"]
#[allow(dead_code)]
mod generator;
#[path = "common/lock.rs"]
mod lock;
#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use common::{BaselineClient, ScriptPair, ScriptsOnly, SetNx, Table, exit_code};
use generator::closed;
use lock::Lock;
use rwlease::{Locks, RwLock, WriteGuard};
use support::{Backend, Cluster, ClusterConfig};

const BACKENDS: [Backend; 3] = [Backend::Native, Backend::Redis, Backend::Fred];
/// The place of `redis` among them, to which the others are compared.
const REDIS: usize = 1;
const CONCURRENCY: [usize; 3] = [1, 64, 512];
/// The goals for the first two concurrencies: the lowest ratios of the locks to the scripts alone,
/// and to the plain mutex.
const GOALS: [(f64, f64); 2] = [(0.95, 0.90), (0.90, 0.65)];

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let met = runtime.block_on(run(
        if quick { 1 } else { 7 },
        Duration::from_millis(if quick { 300 } else { 1_000 }),
    ));
    exit_code(met)
}

/// Returns true if the goals are met.
async fn run(turns: usize, each: Duration) -> bool {
    let mut all_met = true;
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    println!(
        "{}, three local masters, {turns} turns of {each:?}, writes alone.\n",
        cluster.version()
    );
    let mut table = Table::new(&[
        "pairs/s",
        "tasks",
        "rwlease",
        "the same scripts",
        "`SET NX PX`",
        "of the scripts",
        "of `SET NX PX`",
        "of ours by `redis`",
        "us of the client a pair",
        "of that by `redis`",
        "goals",
    ]);
    let mut sides = Vec::new();
    for backend in BACKENDS {
        let locks = backend.connect(Locks::builder(), &cluster.urls()).await.unwrap();
        sides.push((locks, BaselineClient::connect(backend, &cluster).await));
    }
    for (at, tasks) in CONCURRENCY.into_iter().enumerate() {
        let contenders: Vec<_> =
            sides.iter().map(|(locks, bare)| Contenders::new(locks, bare, tasks)).collect();
        let mut seen = Vec::new();
        for turn in 0..=turns {
            let made = run_round(&contenders, turn, each).await;
            if turn > 0 {
                seen.push(made);
            }
        }
        for (side, backend) in BACKENDS.into_iter().enumerate() {
            let (cells, met) = row(&seen, side, GOALS.get(at));
            all_met &= met;
            let head = [format!("{backend:?}").to_lowercase(), tasks.to_string()];
            table.add(head.into_iter().chain(cells));
        }
    }
    println!("{table}");
    all_met
}

/// The contenders of one backend.
struct Contenders {
    rwlease: Arc<[RwleaseLock]>,
    scripts: Arc<[ScriptsOnly]>,
    set_nx: Arc<[SetNx]>,
}

/// The results of each of a backend's contenders.
type ContenderRates = [PairRate; 3];

#[derive(Clone, Copy, Default)]
struct PairRate {
    per_second: f64,
    /// The client's processor time for a pair, in µs.
    cost: f64,
}

impl Contenders {
    /// Creates a lock for each task. Lock `n` of each kind has the same slot.
    fn new(locks: &Locks, bare: &Arc<BaselineClient>, tasks: usize) -> Contenders {
        let names = || (0..tasks).map(|task| format!("bench{task}"));
        let scripts = |name| {
            ScriptsOnly(bare.clone(), ScriptPair::Write, format!("bare:{{rwlease:{name}}}").into())
        };
        Contenders {
            rwlease: names().map(|name| RwleaseLock(locks.rwlock(name).unwrap())).collect(),
            scripts: names().map(scripts).collect(),
            set_nx: names()
                .map(|name| SetNx(bare.clone(), format!("set:{{rwlease:{name}}}").into()))
                .collect(),
        }
    }

    async fn run(&self, kind: usize, each: Duration) -> PairRate {
        let (tasks, before) = (self.rwlease.len(), processor_time());
        let run = match kind {
            0 => closed(&self.rwlease, tasks, each).await,
            1 => closed(&self.scripts, tasks, each).await,
            _ => closed(&self.set_nx, tasks, each).await,
        };
        let (per_second, spent) = (run.per_second(), processor_time() - before);
        PairRate { per_second, cost: spent * 1e6 / (per_second * each.as_secs_f64()) }
    }
}

/// The processor time of this process, in seconds.
fn processor_time() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// All contenders take one turn each.
async fn run_round(contenders: &[Contenders], turn: usize, each: Duration) -> [ContenderRates; 3] {
    let mut made = [[PairRate::default(); 3]; 3];
    for step in turn..turn + 9 {
        let (kind, side) = (step % 9 / 3, step % 3);
        made[side][kind] = contenders[side].run(kind, each).await;
    }
    made
}

/// The columns of one backend, and whether it reaches its goal.
fn row(
    seen: &[[ContenderRates; 3]],
    side: usize,
    goal: Option<&(f64, f64)>,
) -> (Vec<String>, bool) {
    let column = |of: fn(ContenderRates) -> f64| median(seen.iter().map(|made| of(made[side])));
    let of_scripts = column(|[locks, scripts, _]| locks.per_second / scripts.per_second);
    let of_set = column(|[locks, _, set]| locks.per_second / set.per_second);
    let of_redis = |value: fn(PairRate) -> f64| {
        median(seen.iter().map(|made| value(made[side][0]) / value(made[REDIS][0])))
    };
    let met = goal.is_none_or(|(scripts, set)| of_scripts >= *scripts && of_set >= *set);
    let goal = goal.map_or(String::new(), |(scripts, set)| {
        format!("{scripts:.2} and {set:.2}: {}", if met { "met" } else { "missed" })
    });
    let rates = [0, 1, 2].map(|kind| median(seen.iter().map(|made| made[side][kind].per_second)));
    let mut cells = rates.map(|rate| format!("{rate:.0}")).to_vec();
    let ratios = [of_scripts, of_set, of_redis(|pairs| pairs.per_second)];
    cells.extend(ratios.map(|ratio| format!("{ratio:.2}")));
    cells.push(format!("{:.1}", column(|[locks, _, _]| locks.cost)));
    cells.push(format!("{:.2}", of_redis(|pairs| pairs.cost)));
    cells.push(goal);
    (cells, met)
}

#[derive(Clone)]
struct RwleaseLock(RwLock);

impl Lock for RwleaseLock {
    type Held = WriteGuard;

    async fn take(&self) -> WriteGuard {
        self.0.write().await.unwrap()
    }

    async fn release(held: WriteGuard) {
        let _ = held.release().await.unwrap();
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
