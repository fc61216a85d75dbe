//! Allocations of taking and giving back a free lock, less those of the same scripts by the bare
//! client: `cargo bench -p rwlease-bench --bench allocations`. It exits with 3 above the goal.

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

use common::{Bare, Kind, SameScripts, Table, verdict};
use lock::Lock;
use rwlease::{Locks, ReadGuard, RwLock, WriteGuard};
use support::{Backend, Cluster, Result, Shape};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const WARM_UP: usize = 200;
const PAIRS: usize = 2_000;
/// Ours less the bare client's.
const MOST: f64 = 8.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let cluster = Cluster::start_with(Shape::of(3, 0)).await?;
    let locks = Locks::connect(cluster.urls()).await?;
    let bare = Bare::connect(Backend::Redis, &cluster).await;
    let mut good = true;
    println!("{}, three local masters.\n", cluster.version());
    let mut table =
        Table::new(&["allocations of a pair", "rwlease", "the same scripts by `redis`", "more"]);
    for (name, kind) in [("write", Kind::Write), ("read", Kind::Read)] {
        let lock = locks.rwlock("counted")?;
        let ours = match kind {
            Kind::Read => count(&Read(lock)).await,
            _ => count(&Write(lock)).await,
        };
        let bare = count(&SameScripts(bare.clone(), kind, "counted".into())).await;
        let counts = [ours, bare, ours - bare].map(|count| format!("{count:.1}"));
        table.add([name.into()].into_iter().chain(counts));
        good &= ours - bare <= MOST;
    }
    println!("{table}\nAt most {MOST} more are wanted: {}.", if good { "met" } else { "missed" });
    Ok(verdict(good))
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

macro_rules! ours {
    ($name:ident, $take:ident, $guard:ident) => {
        #[derive(Clone)]
        struct $name(RwLock);

        impl Lock for $name {
            type Held = $guard;

            async fn take(&self) -> $guard {
                self.0.$take().await.expect("not taken")
            }

            async fn release(held: $guard) {
                held.release().await.expect("not released");
            }
        }
    };
}

ours!(Read, read, ReadGuard);
ours!(Write, write, WriteGuard);
