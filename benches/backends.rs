//! Taking and giving back a free lock, by `redis` and by `fred`, on one cluster in one run: `cargo bench --bench backends --features fred [-- --quick]`.
//!
//! Three things are counted for each client crate, in turns, so that drift of the machine meets all alike:
//!
//! - the locks of this library;
//! - the same two scripts, by the bare client with one connection to each master and the slot known;
//! - `SET NX PX` and compare-and-delete by that bare client, which is the least that any lock costs.
//!
//! What counts is the ratio to the other two within a turn; the median over the turns is printed.

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

use std::time::Duration;

use common::{Bare, Kind, SameScripts, SetNx};
use generator::closed;
use lock::Lock;
use rwlease::{Locks, RwLock, WriteGuard};
use support::{Backend, Cluster, Shape};

const CONCURRENCY: [usize; 3] = [1, 64, 512];
/// The least that the locks should reach of the scripts alone and of the plain mutex, at the first two.
const GOALS: [(f64, f64); 2] = [(0.95, 0.90), (0.90, 0.65)];

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(run(
        if quick { 1 } else { 7 },
        Duration::from_millis(if quick { 300 } else { 1_000 }),
    ));
}

async fn run(turns: usize, each: Duration) {
    let cluster = Cluster::start_with(Shape::of(3, 0)).await.unwrap();
    println!("{} in turns of {each:?}, {turns} of them", cluster.version());
    println!("backend  tasks      locks/s   scripts/s  SET NX/s   of the scripts  of SET NX");
    for backend in [Backend::Redis, Backend::Fred] {
        let locks = backend.connect(Locks::builder(), &cluster.urls()).await.unwrap();
        let bare = Bare::connect(backend, &cluster).await;
        for (at, tasks) in CONCURRENCY.into_iter().enumerate() {
            let names = || (0..tasks).map(|task| format!("bench{task}"));
            let ours: Vec<_> = names().map(|name| Ours(locks.rwlock(name).unwrap())).collect();
            let scripts: Vec<_> = names()
                .map(|name| SameScripts(bare.clone(), Kind::Write, format!("bare:{name}").into()))
                .collect();
            let set: Vec<_> = names()
                .map(|name| SetNx(bare.clone(), format!("set:{name}").into()))
                .collect();
            let mut seen = Vec::new();
            for turn in 0..=turns {
                let by_locks = closed(&ours, tasks, each).await.per_second();
                let by_scripts = closed(&scripts, tasks, each).await.per_second();
                let by_set = closed(&set, tasks, each).await.per_second();
                if turn > 0 {
                    seen.push([by_locks, by_scripts, by_set, by_locks / by_scripts, by_locks / by_set]);
                }
            }
            let [by_locks, by_scripts, by_set, of_scripts, of_set] =
                std::array::from_fn(|column| median(seen.iter().map(|row| row[column]).collect()));
            let goal = GOALS.get(at).map_or(String::new(), |(scripts, set)| {
                let met = of_scripts >= *scripts && of_set >= *set;
                format!(
                    "  goal {scripts:.2} and {set:.2}: {}",
                    if met { "met" } else { "missed" }
                )
            });
            println!(
                "{:<7}  {tasks:>5}  {by_locks:>11.0} {by_scripts:>11.0} {by_set:>9.0}  {of_scripts:>15.2} {of_set:>10.2}{goal}",
                format!("{backend:?}").to_lowercase(),
            );
        }
    }
}

/// The locks of this library.
#[derive(Clone)]
struct Ours(RwLock);

impl Lock for Ours {
    type Held = WriteGuard;

    async fn take(&self) -> WriteGuard {
        self.0.write().await.unwrap()
    }

    async fn release(held: WriteGuard) {
        held.release().await.unwrap();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
