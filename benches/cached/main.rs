//! Cached locks compared with plain ones, with tokio's in-memory lock, and with another library's
//! lock, on a cluster of six nodes: `cargo bench -p rwlease-bench --bench cached`.
//!
//! All contenders of a line take turns, round by round. The results are the ratios within one run.
//! A client stands for a process: each has its own connections and id. `-- --rounds N` sets the
//! rounds, and `-- --alone` leaves out the other library's lock. The bench exits with 3 if a goal
//! is missed.

mod contention;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    BenchCluster, Goals, OtherLibraries, Table, has_option, median, number_option, processor_time,
};
use contention::{AnyLock, ContentionRun, at_rate, crowd, round_robin};
use rwlease::{CachedRwLock, Client};
use testkit::Result;
use tokio::time::sleep;

const NAME: &str = "{cached}lock";
const PEERS_KEY: &str = "{cached}theirs";
const TIME: Duration = Duration::from_secs(1);
const READS: u32 = 95;

/// The pairs of one task in a round.
const PAIRS: u32 = 200_000;
const RECALLS: usize = 60;
const TURNS: usize = 100;
const MAX_CACHED_LEASES: usize = 1_024;
const READERS: usize = 1_000;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let rounds = number_option("--rounds", 5).max(1) as usize;
    let target = BenchCluster::start().await?;
    println!("{}, {}, {rounds} rounds.\n", target.version(), target.kind());
    let mut peers = match has_option("--alone") {
        true => None,
        false => Some(OtherLibraries::start(&target.node(0).url(), PEERS_KEY).await?),
    };
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(Client::connect(target.urls()).await?);
    }
    let mut goals = Goals::new("goals");
    local_pairs(&clients[0], rounds, &mut goals).await?;
    tasks(&clients, 1, 64, READS, &mut peers, rounds, &mut goals).await?;
    tasks(&clients, 4, 16, READS, &mut peers, rounds, &mut goals).await?;
    tasks(&clients, 2, 32, 0, &mut None, rounds, &mut goals).await?;
    for among in [2, 3, 10] {
        round_robin_writes(&clients[..among], rounds, &mut goals).await?;
    }
    low_rate(&clients, rounds, &mut goals).await?;
    recall_latency(&clients, &mut goals).await?;
    recall_latency_without_push(&target, &mut goals).await?;
    keepalive_cost(&clients[0], &target, &mut goals).await?;
    drop(clients);
    reader_fleet(&target, rounds).await?;
    print!("{goals}");
    Ok(goals.exit_code())
}

fn cached(locks: &Client, name: &str) -> CachedRwLock {
    locks.rwlock(name).unwrap().cached().unwrap()
}

/// A lock of all these clients, cached and plain.
fn cached_and_plain(clients: &[Client], name: &str) -> [Vec<AnyLock>; 2] {
    let plain = |locks: &Client| AnyLock::Plain(locks.rwlock(name).unwrap());
    [
        clients.iter().map(|locks| AnyLock::Cached(cached(locks, name))).collect(),
        clients.iter().map(plain).collect(),
    ]
}

/// Makes the client cache the lock.
async fn fill_cache(lock: &CachedRwLock, writes: bool) {
    for _ in 0..100 {
        match writes {
            true => drop(lock.write().await.unwrap()),
            false => drop(lock.read().await.unwrap()),
        }
        if lock.cache_status().hold.is_some() {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn percentile(mut times: Vec<Duration>, part: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// One task without contention.
async fn local_pairs(locks: &Client, rounds: usize, goals: &mut Goals) -> Result {
    let lock = cached(locks, NAME);
    let memory = Arc::new(tokio::sync::RwLock::new(()));
    let mut nanos: [Vec<f64>; 4] = Default::default();
    for _ in 0..rounds {
        for (at, nanos) in nanos.iter_mut().enumerate() {
            fill_cache(&lock, true).await;
            let begun = Instant::now();
            for _ in 0..PAIRS {
                match at {
                    0 => drop(black_box(lock.read().await?)),
                    1 => drop(black_box(lock.write().await?)),
                    2 => drop(black_box(memory.clone().read_owned().await)),
                    _ => drop(black_box(memory.clone().write_owned().await)),
                }
            }
            nanos.push(begun.elapsed().as_nanos() as f64 / f64::from(PAIRS));
        }
    }
    let [read, write, memory_read, memory_write] = nanos.map(median);
    let mut table = Table::new(&["one task, ns a pair", "read", "write"]);
    table.add(["cached".into(), format!("{read:.0}"), format!("{write:.0}")]);
    table.add([
        "tokio's RwLock, owned guards".into(),
        format!("{memory_read:.0}"),
        format!("{memory_write:.0}"),
    ]);
    println!("{table}");
    goals.at_most("local pair, ns, read", 150.0, read);
    goals.at_most("local pair, ns, write", 150.0, write);
    Ok(())
}

/// Tasks of several clients that contend for one lock.
async fn tasks(
    clients: &[Client],
    among: usize,
    tasks: usize,
    reads: u32,
    peers: &mut Option<OtherLibraries>,
    rounds: usize,
    goals: &mut Goals,
) -> Result {
    let name = format!("{NAME}:{among}:{tasks}");
    let [cached, plain] = cached_and_plain(&clients[..among], &name);
    let memory = vec![AnyLock::Memory(Arc::default()); among];
    let mut runs: [Vec<ContentionRun>; 3] = Default::default();
    let mut theirs = Vec::new();
    for _ in 0..rounds {
        runs[0].push(crowd(&cached, tasks, reads, TIME).await);
        runs[1].push(crowd(&plain, tasks, reads, TIME).await);
        if among == 1 {
            runs[2].push(crowd(&memory, tasks, reads, TIME).await);
        }
        if let Some(peers) = peers {
            let order = format!("pairs 1 {} {reads} {}", among * tasks, TIME.as_millis());
            theirs.push(peers.run("rds_lock", &order).await?.per_second());
        }
        sleep(Duration::from_millis(200)).await;
    }
    let rate =
        |crowds: &[ContentionRun]| median(crowds.iter().map(ContentionRun::per_second).collect());
    let waits = |crowds: &[ContentionRun], part| {
        median(crowds.iter().map(|crowd| crowd.wait(part)).collect())
    };
    let head = format!("{among} clients of {tasks} tasks, {reads} % reads");
    let mut table = Table::new(&[&head, "pairs/s", "p99.9 ms", "worst ms"]);
    let [ours, plain, memory] = &runs;
    for (name, crowds) in [("cached", ours), ("plain", plain), ("tokio's RwLock", memory)] {
        if !crowds.is_empty() {
            let (late, worst) = (waits(crowds, 0.999), waits(crowds, 1.0));
            table.add([
                name.into(),
                format!("{:.0}", rate(crowds)),
                format!("{late:.1}"),
                format!("{worst:.1}"),
            ]);
        }
    }
    let theirs = median(theirs);
    if peers.is_some() {
        table.add(["rds_lock".into(), format!("{theirs:.0}"), String::new(), String::new()]);
    }
    println!("{table}");
    let later = waits(ours, 0.999) - waits(plain, 0.999);
    match (among, reads) {
        (1, _) => {
            goals.at_least(format!("{head}: of rds_lock"), 100.0, rate(ours) / theirs);
            goals.at_least(format!("{head}: of tokio's RwLock"), 1.0, rate(ours) / rate(memory));
        }
        (_, 0) => {
            goals.at_least(format!("{head}: of plain"), 50.0, rate(ours) / rate(plain));
            goals.at_most(format!("{head}: p99.9 over plain, ms"), 25.0, later);
        }
        _ => {
            goals.at_least(format!("{head}: of rds_lock"), 5.0, rate(ours) / theirs);
            goals.at_most(format!("{head}: p99.9 over plain, ms"), 60.0, later);
        }
    }
    Ok(())
}

/// Clients that write one after another, a millisecond apart.
async fn round_robin_writes(clients: &[Client], rounds: usize, goals: &mut Goals) -> Result {
    let name = format!("{NAME}:turns:{}", clients.len());
    let mut rates: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds {
        for (locks, rates) in cached_and_plain(clients, &name).into_iter().zip(&mut rates) {
            let took = round_robin(locks, TURNS, Duration::from_millis(1)).await;
            rates.push(TURNS as f64 / took.as_secs_f64());
        }
    }
    let [cached, plain] = rates.map(median);
    let what = format!("{} clients in turn, of plain", clients.len());
    goals.at_least(what, 0.9, cached / plain);
    Ok(())
}

/// Ten clients that each write and read ten times a second.
async fn low_rate(clients: &[Client], rounds: usize, goals: &mut Goals) -> Result {
    let name = format!("{NAME}:seldom");
    let mut waits: [Vec<f64>; 2] = Default::default();
    for _ in 0..rounds {
        for (locks, waits) in cached_and_plain(clients, &name).iter().zip(&mut waits) {
            waits.push(at_rate(locks, 10, 2 * TIME).await);
        }
    }
    let [cached, plain] = waits.map(median);
    println!(
        "10 clients, 10 writes and 10 reads a second each: {cached:.2} ms a pair, plain {plain:.2}\n"
    );
    goals.at_most("10 writes and 10 reads a second each: wait, of plain", 1.0, cached / plain);
    Ok(())
}

/// Measures from a client's call, which finds the lock cached and unused elsewhere, until it has a
/// guard. Measures the same for a hand-off: from the release of a lock to the waiter's guard.
async fn recall_latency(clients: &[Client], goals: &mut Goals) -> Result {
    let (mut recalled, mut handed) = (Vec::new(), Vec::new());
    for number in 0..RECALLS {
        let name = format!("{NAME}:recalls:{number}");
        let lock = cached(&clients[0], &name);
        fill_cache(&lock, true).await;
        let other = clients[1].rwlock(&name)?;
        let asked = Instant::now();
        let guard = other.write().await?;
        recalled.push(asked.elapsed());
        let _ = guard.release().await?;
        let plain = clients[0].rwlock(format!("{name}:plain"))?;
        let held = plain.write().await?;
        let waiting = clients[1].rwlock(format!("{name}:plain"))?;
        let waiting = tokio::spawn(async move {
            let guard = waiting.write().await;
            (guard, Instant::now())
        });
        sleep(Duration::from_millis(5)).await;
        let released = Instant::now();
        let _ = held.release().await?;
        let (guard, had) = waiting.await.expect("the waiter failed");
        handed.push(had.saturating_duration_since(released));
        let _ = guard?.release().await?;
    }
    let (recall, hand_off) = (percentile(recalled.clone(), 0.5), percentile(handed, 0.5));
    let late = percentile(recalled, 0.99);
    println!(
        "recall of an idle lease: median {recall:.2} ms, p99 {late:.2}; hand-off {hand_off:.2}\n"
    );
    goals.at_most("recall of an idle lease, of a hand-off", 2.5, recall / hand_off);
    Ok(())
}

/// The same without recalls: the clients' user has no right to send them.
async fn recall_latency_without_push(target: &BenchCluster, goals: &mut Goals) -> Result {
    for node in target.nodes() {
        node.run_words::<()>("ACL SETUSER mute on >mute ~* &* +@all -spublish").await?;
    }
    let urls: Vec<String> =
        target.urls().iter().map(|url| url.replace("://", "://mute:mute@")).collect();
    let (here, there) = (Client::connect(&urls).await?, Client::connect(&urls).await?);
    let waits = (0..RECALLS).map(async |number| {
        let name = format!("{NAME}:silent:{number}");
        let lock = cached(&here, &name);
        fill_cache(&lock, true).await;
        // The contacts are at a random phase.
        sleep(Duration::from_millis(number as u64 * 1_000 / RECALLS as u64)).await;
        drop(lock.write().await?);
        let asked = Instant::now();
        let guard = there.rwlock(&name)?.write().await?;
        let waited = asked.elapsed();
        let _ = guard.release().await?;
        Ok(waited)
    });
    let waits: Result<Vec<Duration>> = futures::future::try_join_all(waits).await;
    let waits = waits?;
    let (half, late) = (percentile(waits.clone(), 0.5), percentile(waits, 0.99));
    println!("without recalls: median {half:.0} ms, p99 {late:.0}\n");
    goals.at_most("without recalls, median, ms", 1_300.0, half);
    goals.at_most("without recalls, p99, ms", 1_600.0, late);
    Ok(())
}

/// The number of scripts that the servers have run.
async fn scripts_run(target: &BenchCluster) -> Result<u64> {
    let mut scripts = 0;
    for node in target.nodes() {
        scripts += node.calls("evalsha").await?;
    }
    Ok(scripts)
}

/// A thousand clients read twenty times a second, and one client writes once a second.
async fn reader_fleet(target: &BenchCluster, rounds: usize) -> Result {
    let urls = target.urls();
    let mut clients = Vec::new();
    while clients.len() < READERS {
        let more = (0..50).map(|_| Client::connect(&urls));
        clients.extend(futures::future::try_join_all(more).await?);
    }
    let name = format!("{NAME}:many");
    let master = target.master_of(clients[0].rwlock(&name)?.slot().get()).await?;
    let until = Instant::now() + Duration::from_secs(3 + rounds as u64);
    let reading: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(number, locks)| {
            let lock = cached(locks, &name);
            tokio::spawn(async move {
                sleep(Duration::from_micros(number as u64 * 50)).await;
                while Instant::now() < until {
                    drop(lock.read().await);
                    sleep(Duration::from_millis(50)).await;
                }
            })
        })
        .collect();
    sleep(Duration::from_secs(2)).await;
    let writer = Client::connect(&urls).await?;
    let writes = writer.rwlock(&name)?;
    let mut waits = Vec::new();
    let before = server_time(target, master).await?;
    let begun = Instant::now();
    for _ in 0..rounds {
        let asked = Instant::now();
        let guard = writes.write().await?;
        waits.push(asked.elapsed());
        let _ = guard.release().await?;
        sleep(Duration::from_secs(1).saturating_sub(asked.elapsed())).await;
    }
    let spent = (server_time(target, master).await? - before) / begun.elapsed().as_secs_f64();
    for reader in reading {
        reader.await?;
    }
    let (half, worst) = (percentile(waits.clone(), 0.5), percentile(waits, 1.0));
    println!(
        "{READERS} clients that read, one write a second: a write waits {half:.0} ms, the longest {worst:.0}; the server spends {:.0} ms a second\n",
        spent * 1e3
    );
    Ok(())
}

/// The processor time of a server, in s.
async fn server_time(target: &BenchCluster, node: usize) -> Result<f64> {
    let info = target.node(node).info("cpu").await?;
    let part = |name: &str| info.get(name).and_then(|time| time.parse::<f64>().ok());
    Ok(part("used_cpu_user").unwrap_or(f64::NAN) + part("used_cpu_sys").unwrap_or(f64::NAN))
}

/// The cost of contacts, for the greatest allowed number of cached locks.
async fn keepalive_cost(locks: &Client, target: &BenchCluster, goals: &mut Goals) -> Result {
    let all: Vec<_> = (0..MAX_CACHED_LEASES)
        .map(|number| cached(locks, &format!("cached:contacts:{number}")))
        .collect();
    // Each lock is in use as soon as it is cached, because an idle one is released after 2 s.
    let guards = all.iter().map(async |lock| {
        fill_cache(lock, false).await;
        lock.read().await
    });
    let guards = futures::future::try_join_all(guards).await?;
    let before = processor_time();
    let begun = Instant::now();
    sleep(Duration::from_secs(5)).await;
    let used = (processor_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let in_use = all.iter().map(CachedRwLock::cache_status);
    let in_use = in_use.filter(|local| local.hold.is_some() && local.readers == 1).count();
    println!("{in_use} leases in use: {:.1} % of a core\n", used * 100.0);
    goals.at_least("cached leases in use at that time", MAX_CACHED_LEASES as f64, in_use as f64);
    goals.at_most("contacts of 1,024 leases, % of a core", 2.0, used * 100.0);
    drop(guards);
    sleep(Duration::from_millis(2_100)).await;
    let before = scripts_run(target).await?;
    sleep(Duration::from_secs(2)).await;
    let calls = scripts_run(target).await? - before;
    goals.at_most("calls for 1,024 leases that nobody uses, after 2 s", 0.0, calls as f64);
    Ok(())
}
