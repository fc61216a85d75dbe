//! Acquires and releases free locks, for another program to count the client's cost: `cargo bench
//! -p rwlease-bench --bench cost -- [native|redis|fred] [locks|bare] [write|read] [tasks] [pairs]
//! [threads]`. It prints the processor time of a pair.
//!
//! All pairs (ten more for each task than requested), and nothing else, run in [`measured`]. So the
//! count of instructions does not depend on the load of the machine:
//!
//! ```console
//! $ cargo bench -p rwlease-bench --features valgrind --bench cost --no-run
//! $ valgrind --tool=callgrind --collect-atstart=no --toggle-collect='cost::measured*' \
//!       target/release/deps/cost-* native locks write 64 6400
//! $ callgrind_annotate --inclusive=yes callgrind.out.*
//! ```
//!
//! Calls of `malloc` and of `tokio::runtime::task::raw::poll` are the allocations and the wake-ups.
//! `strace -c` counts the system calls.

use common::{BaselineClient, ReadPercent, RwleaseLock, ScriptPair, ScriptsOnly, processor_time};
use load::Lock;
use rwlease::Client;
use testkit::{Backend, Cluster, ClusterConfig};
use tokio::runtime::{Builder, Runtime};

/// Untimed pairs of each task. Programs that count [`measured`] count them too.
const WARM_UP: usize = 10;

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.into());
    let backend = match &*word("native") {
        "redis" => Backend::Redis,
        "fred" => Backend::Fred,
        _ => Backend::Native,
    };
    let (side, kind) = (word("locks"), word("write"));
    let tasks = word("64").parse().expect("a number of tasks");
    let pairs: usize = word("20000").parse().expect("a number of pairs");
    let runtime = match word("1").parse().expect("a number of threads") {
        1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    };
    let runtime = runtime.expect("a runtime");
    let cluster =
        runtime.block_on(Cluster::start_with(ClusterConfig::of(3, 0))).expect("a cluster");
    let names = (0..tasks).map(|task| format!("bench{task}"));
    let kind = if kind == "read" { ScriptPair::Read } else { ScriptPair::Write };
    if side == "bare" {
        let bare = runtime.block_on(BaselineClient::connect(backend, &cluster));
        let lock = |name| ScriptsOnly(bare.clone(), kind, format!("rwlease:{name}").into());
        return count(&runtime, &names.map(lock).collect::<Vec<_>>(), pairs);
    }
    let urls = cluster.urls();
    let locks = runtime.block_on(backend.connect(Client::builder(), &urls)).expect("a connection");
    let reads = ReadPercent(if kind == ScriptPair::Read { 100 } else { 0 });
    let lock = |name| RwleaseLock(locks.rwlock(name).expect("a name"), reads);
    count(&runtime, &names.map(lock).collect::<Vec<_>>(), pairs);
}

fn count<L: Lock>(runtime: &Runtime, locks: &[L], pairs: usize) {
    measured(runtime, locks, WARM_UP);
    let each = pairs / locks.len();
    let before = processor_time();
    measured(runtime, locks, each);
    let spent = (processor_time() - before).as_secs_f64();
    println!("{:.2} us a pair", spent * 1e6 / (each * locks.len()) as f64);
}

#[inline(never)]
fn measured<L: Lock>(runtime: &Runtime, locks: &[L], each: usize) {
    runtime.block_on(run(locks, each));
}

/// Runs a task for each lock, which acquires and releases it `each` times.
async fn run<L: Lock>(locks: &[L], each: usize) {
    let pairs = |lock: L| async move {
        for _ in 0..each {
            L::release(lock.take().await).await;
        }
    };
    let tasks: Vec<_> = locks.iter().map(|lock| tokio::spawn(pairs(lock.clone()))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}
