//! Counts the allocations of acquiring and releasing a free lock, minus those of the same scripts
//! by the bare client, and the allocations of a cached lock: `cargo bench -p rwlease-bench --bench
//! allocations`. The bench exits with 3 if a goal is missed.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

#[path = "common/mod.rs"]
mod common;
#[path = "common/lock.rs"]
mod lock;
#[path = "../tests/support/mod.rs"]
mod support;

use std::process::ExitCode;

use common::{BaselineClient, ScriptPair, ScriptsOnly, Table, exit_code};
use lock::Lock;
use rwlease::{
    CachedReadGuard, CachedRwLock, CachedWriteGuard, Locks, ReadGuard, RwLock, WriteGuard,
};
use support::{Backend, Cluster, ClusterConfig, Result};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const WARM_UP: usize = 200;
const PAIRS: usize = 2_000;
/// The most that a contact with the server, or a lock's first requests, may add to each of
/// thousands of local pairs.
const MAX_PER_LOCAL_PAIR: f64 = 0.05;
/// The most that a lock may allocate beyond the bare client.
const MAX_OVER_BASELINE: f64 = 4.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let locks = Locks::connect(cluster.urls()).await?;
    let bare = BaselineClient::connect(Backend::Native, &cluster).await;
    let mut good = true;
    println!("{}, three local masters.\n", cluster.version());
    let mut table =
        Table::new(&["allocations of a pair", "rwlease", "the same scripts alone", "more"]);
    for (name, kind) in [("write", ScriptPair::Write), ("read", ScriptPair::Read)] {
        let lock = locks.rwlock("counted")?;
        let ours = match kind {
            ScriptPair::Read => count(&Read(lock)).await,
            _ => count(&Write(lock)).await,
        };
        let bare = count(&ScriptsOnly(bare.clone(), kind, "counted".into())).await;
        let counts = [ours, bare, ours - bare].map(|count| format!("{count:.1}"));
        table.add([name.into()].into_iter().chain(counts));
        good &= ours - bare <= MAX_OVER_BASELINE;
    }
    println!("{table}\nAt most {MAX_OVER_BASELINE} more are wanted: {}.\n", pass_or_fail(good));
    let cached = cached(&locks).await?;
    Ok(exit_code(good && cached))
}

fn pass_or_fail(good: bool) -> &'static str {
    if good { "met" } else { "missed" }
}

/// Counts a lock that this client has cached and no other client requests.
async fn cached(locks: &Locks) -> Result<bool> {
    let lock = locks.rwlock("cached")?.cached()?;
    let (write, read) =
        (count(&CachedWrite(lock.clone())).await, count(&CachedRead(lock.clone())).await);
    let mut table = Table::new(&["allocations of a local pair", "rwlease"]);
    table.add(["write".into(), format!("{write:.3}")]);
    table.add(["read".into(), format!("{read:.3}")]);
    // The remaining allocations are those of the contact with the server, once a second.
    let good = write < MAX_PER_LOCAL_PAIR && read < MAX_PER_LOCAL_PAIR;
    println!("{table}\nNone is wanted: {}.", pass_or_fail(good));
    Ok(good)
}

async fn count<L: Lock>(lock: &L) -> f64 {
    for _ in 0..WARM_UP {
        L::release(lock.take().await).await;
    }
    let _profiler = dhat::Profiler::builder().testing().build();
    for _ in 0..PAIRS {
        L::release(lock.take().await).await;
    }
    dhat::HeapStats::get().total_blocks as f64 / PAIRS as f64
}

macro_rules! impl_bench_lock {
    ($name:ident, $lock:ident, $take:ident, $guard:ident) => {
        #[derive(Clone)]
        struct $name($lock);

        impl Lock for $name {
            type Held = $guard;

            async fn take(&self) -> $guard {
                self.0.$take().await.expect("not taken")
            }

            async fn release(held: $guard) {
                let _ = held.release().await.expect("not released");
            }
        }
    };
}

impl_bench_lock!(Read, RwLock, read, ReadGuard);
impl_bench_lock!(Write, RwLock, write, WriteGuard);
impl_bench_lock!(CachedRead, CachedRwLock, read, CachedReadGuard);
impl_bench_lock!(CachedWrite, CachedRwLock, write, CachedWriteGuard);
