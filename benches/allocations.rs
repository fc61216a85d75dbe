//! Counts the allocations of acquiring and releasing a free lock, minus those of the same scripts
//! by the bare client, the allocations of a cached lock, and the memory of a guard: `cargo bench -p
//! rwlease-bench --bench allocations`. The bench exits with 3 if a goal is missed.

use std::process::ExitCode;
use std::time::Duration;

use common::{BaselineClient, ReadPercent, RwleaseLock, ScriptPair, ScriptsOnly, Table, exit_code};
use futures::{StreamExt, stream};
use load::Lock;
use rwlease::{Client, WriteGuard};
use testkit::{Backend, Cluster, ClusterConfig, Result};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const WARM_UP: usize = 200;
const PAIRS: usize = 2_000;
/// The most that a contact with the server, or a lock's first requests, may add to each of
/// thousands of local pairs.
const MAX_PER_LOCAL_PAIR: f64 = 0.05;
/// The most that a lock may allocate beyond the bare client.
const MAX_OVER_BASELINE: f64 = 4.0;

/// The number of guards whose memory is counted, and the concurrent acquires before.
const GUARDS: usize = 5_000;
const TAKERS: usize = 256;
const MAX_BYTES_PER_GUARD: f64 = 1024.0;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
    let locks = Client::connect(cluster.urls()).await?;
    println!("{}, three local masters.\n", cluster.version());
    let is_good = [plain(&cluster, &locks).await?, cached(&locks).await?, guards(&locks).await?];
    Ok(exit_code(is_good == [true; 3]))
}

fn pass_or_fail(good: bool) -> &'static str {
    if good { "met" } else { "missed" }
}

async fn plain(cluster: &Cluster, locks: &Client) -> Result<bool> {
    let bare = BaselineClient::connect(Backend::Native, cluster).await;
    let mut good = true;
    let mut table =
        Table::new(&["allocations of a pair", "rwlease", "the same scripts alone", "more"]);
    for (name, kind, reads) in [("write", ScriptPair::Write, 0), ("read", ScriptPair::Read, 100)] {
        let ours = RwleaseLock(locks.rwlock("counted")?, ReadPercent(reads));
        let ours = count(async || RwleaseLock::release(ours.take().await).await).await;
        let bare = ScriptsOnly(bare.clone(), kind, "counted".into());
        let bare = count(async || ScriptsOnly::release(bare.take().await).await).await;
        let counts = [ours, bare, ours - bare].map(|count| format!("{count:.1}"));
        table.add([name.into()].into_iter().chain(counts));
        good &= ours - bare <= MAX_OVER_BASELINE;
    }
    println!("{table}\nAt most {MAX_OVER_BASELINE} more are wanted: {}.\n", pass_or_fail(good));
    Ok(good)
}

/// Counts a lock that this client has cached and no other client requests.
async fn cached(locks: &Client) -> Result<bool> {
    let lock = locks.rwlock("cached")?.cached()?;
    let write = count(async || drop(lock.write().await.expect("not taken"))).await;
    let read = count(async || drop(lock.read().await.expect("not taken"))).await;
    let mut table = Table::new(&["allocations of a local pair", "rwlease"]);
    table.add(["write".into(), format!("{write:.3}")]);
    table.add(["read".into(), format!("{read:.3}")]);
    // The remaining allocations are those of the contact with the server, once a second.
    let good = write < MAX_PER_LOCAL_PAIR && read < MAX_PER_LOCAL_PAIR;
    println!("{table}\nNone is wanted: {}.\n", pass_or_fail(good));
    Ok(good)
}

async fn count(pair: impl AsyncFn()) -> f64 {
    for _ in 0..WARM_UP {
        pair().await;
    }
    let _profiler = dhat::Profiler::builder().testing().build();
    for _ in 0..PAIRS {
        pair().await;
    }
    dhat::HeapStats::get().total_blocks as f64 / PAIRS as f64
}

/// Counts the memory of the client for each guard.
async fn guards(locks: &Client) -> Result<bool> {
    // Creates the connections and the buffers.
    drop(take_many(locks, "warm", 2 * TAKERS).await);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let profiler = dhat::Profiler::builder().testing().build();
    let guards = take_many(locks, "guard", GUARDS).await;
    let bytes = dhat::HeapStats::get().curr_bytes as f64 / GUARDS as f64;
    drop(profiler);
    drop(guards);
    let good = bytes < MAX_BYTES_PER_GUARD;
    println!(
        "Each guard takes {bytes:.0} bytes of the client's memory. At most {MAX_BYTES_PER_GUARD} are wanted: {}.",
        pass_or_fail(good)
    );
    Ok(good)
}

async fn take_many(locks: &Client, prefix: &str, count: usize) -> Vec<WriteGuard> {
    let take = async |number: usize| {
        let lock = locks.rwlock(format!("{prefix}:{number}")).expect("a name");
        lock.write().lease(Duration::from_secs(600)).await.expect("not taken")
    };
    stream::iter(0..count).map(take).buffer_unordered(TAKERS).collect().await
}
