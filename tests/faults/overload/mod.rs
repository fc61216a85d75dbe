//! Clients that request more than a cluster can do, and then less again.
//!
//! Proxies fix the capacity of the cluster, and an open loop begins pairs of an acquire and a
//! release at a fixed rate, whether or not earlier ones have ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::Client;
use testkit::{Cluster, ClusterConfig, PollLimit, Proxies, ProxyFlow, Result};
use tokio::time::{Instant, sleep};

const NAME: &str = "overload:";

/// How long a caller waits for its lock.
const TIMEOUT: Duration = Duration::from_millis(500);

const LEASE: Duration = Duration::from_secs(10);

/// The interval over which the service counts as normal or not, and how many must be normal in a
/// row.
const BUCKET: Duration = Duration::from_millis(100);
const NORMAL_BUCKETS: usize = 5;

/// A load for a while, as a multiple of the capacity.
struct Stage {
    load: f64,
    time: Duration,
}

/// A pair: when it was due, and how long its acquire took.
struct Granted {
    due: Duration,
    took: Duration,
}

#[derive(Default)]
struct Outcomes {
    granted: Vec<Granted>,
    /// When each failed pair was due, and its number.
    failed: Vec<(Duration, usize)>,
    /// The number of pairs that were released.
    released: usize,
}

struct StageResult {
    stage: Stage,
    requested: usize,
    /// Pairs that were released during the stage.
    released: usize,
    outcomes: Arc<Mutex<Outcomes>>,
    client_kb: u64,
    server_kb: u64,
}

struct Overload {
    cluster: Cluster,
    proxies: Proxies,
    client: Client,
    /// Pairs per second.
    capacity: f64,
    /// The number of pairs so far. Each has a lock of its own.
    count: usize,
}

impl Overload {
    async fn start(scripts_a_second: u32) -> Result<Overload> {
        let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await?;
        let proxies = Proxies::start(&cluster).await?;
        let pace = Duration::from_secs(1) / scripts_a_second;
        (0..3).for_each(|number| proxies.at(number).requests(ProxyFlow::Paced(pace)));
        let settings = Client::builder().address_translator(proxies.translation());
        let client = settings.urls(proxies.urls()).connect().await?;
        for number in 0..30 {
            // Loads the scripts.
            let guard = client.rwlock(format!("warm:{number}"))?.write().await?;
            let _ = guard.release().await?;
        }
        // A pair runs two scripts.
        let capacity = f64::from(3 * scripts_a_second) / 2.0;
        Ok(Overload { cluster, proxies, client, capacity, count: 0 })
    }

    async fn run(&mut self, stage: Stage) -> Result<StageResult> {
        let outcomes = Arc::<Mutex<Outcomes>>::default();
        let (rate, begun) = (stage.load * self.capacity, Instant::now());
        let mut requested = 0;
        while begun.elapsed() < stage.time {
            while (requested as f64) < begun.elapsed().as_secs_f64() * rate {
                let due = Duration::from_secs_f64(requested as f64 / rate);
                let pair = pair(self.client.clone(), self.count, begun, due, outcomes.clone());
                tokio::spawn(pair);
                (requested, self.count) = (requested + 1, self.count + 1);
            }
            sleep(Duration::from_millis(1)).await;
        }
        let released = outcomes.lock().unwrap().released;
        let (client_kb, server_kb) = (memory_of_process()?, self.memory_of_servers().await?);
        Ok(StageResult { stage, requested, released, outcomes, client_kb, server_kb })
    }

    /// The number of connections so far.
    fn connections(&self) -> u64 {
        (0..3).map(|number| self.proxies.at(number).accepted_count()).sum()
    }

    async fn memory_of_servers(&self) -> Result<u64> {
        let mut bytes = 0;
        for node in self.cluster.nodes() {
            bytes += node.used_memory().await?;
        }
        Ok(bytes / 1024)
    }

    /// Waits until no lock of a failed pair is held, and a new pair succeeds.
    async fn wait_until_recovered(&self, results: &[StageResult]) -> Result {
        let failed = results.iter().flat_map(|result| {
            let outcomes = result.outcomes.lock().unwrap();
            outcomes.failed.iter().map(|(_, number)| *number).collect::<Vec<_>>()
        });
        for number in failed {
            let lock = self.client.rwlock(format!("{NAME}{number}"))?;
            let wait_limit = PollLimit::new(format!("the lock of pair {number} to be free"));
            wait_limit.until(|| async { Ok(!lock.is_locked().await?) }).await?;
        }
        let guard = self.client.rwlock("after")?.write().await?;
        assert_eq!(guard.release().await?, rwlease::ReleaseOutcome::Released);
        Ok(())
    }
}

async fn pair(
    client: Client,
    number: usize,
    begun: Instant,
    due: Duration,
    outcomes: Arc<Mutex<Outcomes>>,
) {
    let lock = client.rwlock(format!("{NAME}{number}")).unwrap();
    match lock.write().lease(LEASE).timeout(TIMEOUT).await {
        Ok(guard) => {
            let took = begun.elapsed().saturating_sub(due);
            outcomes.lock().unwrap().granted.push(Granted { due, took });
            if guard.release().await.is_ok() {
                outcomes.lock().unwrap().released += 1;
            }
        }
        Err(_) => outcomes.lock().unwrap().failed.push((due, number)),
    }
}

/// The memory of this process, with the proxies and the outcomes, in KB.
fn memory_of_process() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kb.ok_or_else(|| testkit::Error::new("no VmRSS"))
}

impl StageResult {
    /// The latency of acquires at this quantile, in ms.
    fn latency(&self, quantile: f64) -> f64 {
        let outcomes = self.outcomes.lock().unwrap();
        let mut took: Vec<Duration> = outcomes.granted.iter().map(|one| one.took).collect();
        took.sort_unstable();
        let at = (took.len() as f64 * quantile) as usize;
        took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
    }

    /// The seconds until no pair failed any more and the median was at most twice `normal_ms` plus
    /// 2 ms.
    fn recovery_seconds(&self, normal_ms: f64) -> Option<f64> {
        let outcomes = self.outcomes.lock().unwrap();
        let bucket = |due: Duration| (due.as_secs_f64() / BUCKET.as_secs_f64()) as usize;
        let mut took = vec![Vec::new(); bucket(self.stage.time) + 1];
        for Granted { due, took: time } in &outcomes.granted {
            took[bucket(*due)].push(time.as_secs_f64() * 1000.0);
        }
        let mut normal: Vec<bool> = Vec::new();
        for times in &mut took {
            times.sort_unstable_by(f64::total_cmp);
            let median = times.get(times.len() / 2);
            normal.push(median.is_some_and(|median| *median <= 2.0 * normal_ms + 2.0));
        }
        for (due, _) in &outcomes.failed {
            normal[bucket(*due)] = false;
        }
        let is_normal = |buckets: &[bool]| buckets.iter().all(|normal| *normal);
        let first = normal.windows(NORMAL_BUCKETS).position(is_normal)?;
        Some(first as f64 * BUCKET.as_secs_f64())
    }

    fn print(&self, normal_ms: f64) {
        let outcomes = self.outcomes.lock().unwrap();
        let failed = outcomes.failed.len();
        drop(outcomes);
        let seconds = self.stage.time.as_secs_f64();
        println!(
            "load {} for {seconds} s: {:.0} pairs/s requested, {:.0} pairs/s released, p50 {:.1} ms, \
             p99 {:.1} ms, {failed} failed, client {} KB, servers {} KB, normal after {:?} s",
            self.stage.load,
            self.requested as f64 / seconds,
            self.released as f64 / seconds,
            self.latency(0.5),
            self.latency(0.99),
            self.client_kb,
            self.server_kb,
            self.recovery_seconds(normal_ms),
        );
    }
}

async fn run(scripts_a_second: u32, stages: impl IntoIterator<Item = (f64, u64)>) -> Result {
    let mut overload = Overload::start(scripts_a_second).await?;
    let connections = overload.connections();
    let mut results: Vec<StageResult> = Vec::new();
    for (load, seconds) in stages {
        let stage = Stage { load, time: Duration::from_secs(seconds) };
        results.push(overload.run(stage).await?);
    }
    overload.wait_until_recovered(&results).await?;
    let normal_ms = results[0].latency(0.5);
    for result in &results {
        result.print(normal_ms);
    }
    let opened = overload.connections() - connections;
    println!(
        "{opened} connections opened, servers {} KB at the end",
        overload.memory_of_servers().await?
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn acquires_at_twice_the_capacity_leave_no_lock_held() -> Result {
    run(200, [(0.5, 1), (2.0, 3), (0.5, 2)]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes seven minutes, and prints figures"]
async fn acquires_at_twice_the_capacity_for_five_minutes() -> Result {
    run(500, [(0.5, 20), (2.0, 60), (2.0, 240), (0.5, 60)]).await
}
