//! Renewal at scale: many guards of one client on three masters, first with all masters up and then
//! with one of them stopped.
//!
//! `cargo bench -p rwlease-bench --bench renewal`, or with `-- --quick` for the small sizes alone.
//! The bench exits with 3 if a guard was lost that should have been kept.
#![allow(
    missing_docs,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    unreachable_pub
)]

#[path = "common/goal.rs"]
mod goal;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "common/table.rs"]
mod table;

use std::ops::Sub;
use std::process::ExitCode;
use std::time::Duration;

use futures::{StreamExt, stream};
use goal::exit_code;
use rwlease::{LeaseState, Locks, WriteGuard};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use support::{Cluster, ClusterConfig};
use table::Table;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The number of concurrent acquires before the measurement.
const TAKERS: usize = 256;

/// The most memory that a guard may cost, in bytes.
const MAX_BYTES_PER_GUARD: usize = 1024;

/// The number of guards whose memory is counted.
const COUNTED: usize = 5_000;

struct Scale {
    guards: usize,
    lease: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let sizes = [(1_000, 6), (10_000, 6), (100_000, 30)];
    let sizes = if quick { &sizes[..2] } else { &sizes[..] };
    let shape = ClusterConfig::of(3, 0).line("cluster-require-full-coverage no");
    let cluster = Cluster::start_with(shape).await.unwrap();
    println!("{}, three local masters, one client.\n", cluster.version());
    let mut table = Table::new(&[
        "guards",
        "lease, s",
        "taken in, s",
        "all renewed in, s",
        "least left, s",
        "lost",
        "server, µs each",
        "with a shard stopped: the others renewed in, s",
        "their least left, s",
        "lost",
        "lost of the shard",
        "all released in, s",
    ]);
    let bytes = bytes_per_guard(&cluster).await;
    let mut good = true;
    for &(guards, seconds) in sizes {
        let lease = Duration::from_secs(seconds);
        let (line, as_wanted) = measure(&cluster, &Scale { guards, lease }).await;
        table.add(line);
        good &= as_wanted;
    }
    println!("{table}");
    println!(
        "Guards are renewed at a third of their lease. Each takes {bytes:.0} bytes of the client's memory."
    );
    println!("None is to be lost but those of the shard: {}.", if good { "met" } else { "missed" });
    exit_code(good)
}

async fn bytes_per_guard(cluster: &Cluster) -> f64 {
    let locks = Locks::connect(cluster.urls()).await.unwrap();
    let lease = Duration::from_secs(600);
    // Creates the connections and the buffers.
    drop(take(&locks, &Scale { guards: 2 * TAKERS, lease }, "warm").await);
    sleep(Duration::from_millis(500)).await;
    let profiler = dhat::Profiler::builder().testing().build();
    let before = dhat::HeapStats::get().curr_bytes;
    let guards = take(&locks, &Scale { guards: COUNTED, lease }, "counted").await;
    let bytes = dhat::HeapStats::get().curr_bytes - before;
    drop(profiler);
    drop(guards);
    assert!(locks.shutdown(Duration::from_secs(30)).await.is_empty());
    assert!(bytes / COUNTED < MAX_BYTES_PER_GUARD, "{bytes} bytes for {COUNTED} guards");
    bytes as f64 / COUNTED as f64
}

async fn take(locks: &Locks, scale: &Scale, prefix: &str) -> Vec<WriteGuard> {
    let take = |number: usize| {
        let lock = locks.rwlock(format!("{prefix}:{number}")).unwrap();
        async move { lock.write().lease(scale.lease).await.unwrap() }
    };
    stream::iter(0..scale.guards).map(take).buffer_unordered(TAKERS).collect().await
}

/// A line of the table, and whether all guards that should be kept were kept.
async fn measure(cluster: &Cluster, scale: &Scale) -> (Vec<String>, bool) {
    let Scale { guards: count, lease } = *scale;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let locks = Locks::connect(cluster.urls()).await.unwrap();
    let start = Instant::now();
    let guards = take(&locks, scale, "bench").await;
    let taken = start.elapsed();
    let more = Handle::current().metrics().num_alive_tasks().saturating_sub(tasks);
    eprintln!("{count} guards are taken, by {more} tasks more than before");
    let mut line = vec![count.to_string(), seconds(lease), seconds(taken)];
    let (cells, all_kept) = healthy_phase(cluster, &guards, lease).await;
    line.extend(cells);
    let (cells, others_kept) = stopped_master_phase(cluster, &guards, lease).await;
    line.extend(cells);
    let start = Instant::now();
    drop(guards);
    assert!(locks.shutdown(Duration::from_secs(60)).await.is_empty());
    line.push(seconds(start.elapsed()));
    (line, all_kept && others_kept)
}

async fn healthy_phase(
    cluster: &Cluster,
    guards: &[WriteGuard],
    lease: Duration,
) -> ([String; 4], bool) {
    let before = ServerWork::of(cluster).await;
    let watched = watch(guards.iter().collect(), lease * 2 / 3).await;
    let work = ServerWork::of(cluster).await - before;
    eprintln!(
        "  for each guard and round {:.2} scripts, {:.4} reads of a server; {} were uncertain",
        work.scripts as f64 / guards.len() as f64 / ROUNDS,
        work.reads as f64 / guards.len() as f64 / ROUNDS,
        watched.uncertain,
    );
    let server = work.micros as f64 / work.scripts as f64;
    let cells =
        [watched.round(), seconds(watched.least), watched.lost.to_string(), format!("{server:.0}")];
    (cells, watched.lost == 0)
}

async fn stopped_master_phase(
    cluster: &Cluster,
    guards: &[WriteGuard],
    lease: Duration,
) -> ([String; 4], bool) {
    let mut sick = Vec::new();
    let mut well = Vec::new();
    let view = cluster.view().await.unwrap();
    for guard in guards {
        let slot = guard.slot().to_string().parse().unwrap();
        let on = if view.master_of(slot) == Some(cluster.id(0)) { &mut sick } else { &mut well };
        on.push(guard);
    }
    cluster.node(0).freeze().unwrap();
    let watched = watch(well, lease * 11 / 10).await;
    let lost = sick.iter().filter(|guard| !guard.is_held()).count();
    cluster.node(0).thaw().unwrap();
    eprintln!("  with a shard stopped, {} of the others were uncertain", watched.uncertain);
    let cells = [
        watched.round(),
        seconds(watched.least),
        watched.lost.to_string(),
        format!("{lost} of {}", sick.len()),
    ];
    (cells, (watched.lost, lost) == (0, sick.len()))
}

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// Renewals of each guard in two thirds of a lease.
const ROUNDS: f64 = 2.0;

/// The counts of the servers' work.
struct ServerWork {
    scripts: u64,
    micros: u64,
    /// Reads of sockets: one for each pipeline, or a few.
    reads: u64,
}

impl ServerWork {
    async fn of(cluster: &Cluster) -> ServerWork {
        let mut work = ServerWork { scripts: 0, micros: 0, reads: 0 };
        for node in cluster.nodes() {
            let stats = node.command_stats().await.unwrap();
            for script in ["evalsha", "eval"].iter().filter_map(|name| stats.get(*name)) {
                work.scripts += script.calls;
                work.micros += script.usec;
            }
            let reads = &node.info("stats").await.unwrap()["total_reads_processed"];
            work.reads += reads.parse::<u64>().unwrap();
        }
        work
    }
}

impl Sub for ServerWork {
    type Output = ServerWork;

    fn sub(self, before: ServerWork) -> ServerWork {
        ServerWork {
            scripts: self.scripts - before.scripts,
            micros: self.micros - before.micros,
            reads: self.reads - before.reads,
        }
    }
}

/// The observations of guards that the bench polls.
struct GuardSamples {
    /// The time within which each of them was renewed at least once.
    round: Option<Duration>,
    /// The shortest remaining lease.
    least: Duration,
    uncertain: usize,
    lost: usize,
}

async fn watch(guards: Vec<&WriteGuard>, during: Duration) -> GuardSamples {
    let start = Instant::now();
    let lease = guards.iter().map(|guard| guard.remaining()).max().unwrap_or_default();
    let mut watched = GuardSamples { round: None, least: lease, uncertain: 0, lost: 0 };
    let ends: Vec<Instant> =
        guards.iter().map(|guard| Instant::now() + guard.remaining()).collect();
    let mut waiting: Vec<usize> = (0..guards.len()).collect();
    while start.elapsed() < during {
        sleep(SAMPLE_INTERVAL + PER_GUARD * guards.len() as u32).await;
        waiting
            .retain(|&at| Instant::now() + guards[at].remaining() < ends[at] + RENEWAL_THRESHOLD);
        if waiting.is_empty() && watched.round.is_none() {
            watched.round = Some(start.elapsed());
        }
        let states = || guards.iter().map(|guard| guard.state());
        watched.least =
            guards.iter().map(|guard| guard.remaining()).min().unwrap().min(watched.least);
        watched.uncertain =
            states().filter(|state| *state == LeaseState::Uncertain).count().max(watched.uncertain);
        watched.lost = states().filter(|state| *state == LeaseState::Lost).count();
    }
    watched
}

/// The pause between two looks. It is long enough not to take the client's processor time.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
const PER_GUARD: Duration = Duration::from_micros(3);

/// A lease whose end has moved by this much was renewed.
const RENEWAL_THRESHOLD: Duration = Duration::from_millis(100);

impl GuardSamples {
    fn round(&self) -> String {
        self.round.map_or("not all".into(), seconds)
    }
}
