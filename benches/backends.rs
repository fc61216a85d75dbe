//! Taking and giving back a free lock, by `redis` and by `fred`, on one cluster in one run: `cargo bench --bench backends --features fred [-- --quick]`.
//!
//! Three things are counted for each client crate, in turns, so that drift of the machine meets all alike:
//!
//! - the locks of this library;
//! - the same two scripts, by the bare client with one connection to each master and the slot known;
//! - `SET NX PX` and compare-and-delete by that bare client, which is the least that any lock costs.
//!
//! What counts is the ratio to the other two within a turn; the median over the turns is printed.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fred::clients::Client as FredClient;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, ServerConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, Resp3Frame, RespVersion};
use redis::aio::MultiplexedConnection;
use rwlease::{Locks, Slot};
use support::{Backend, Cluster, Shape};

const CONCURRENCY: [usize; 3] = [1, 64, 512];
/// The least that the locks should reach of the scripts alone and of the plain mutex, at the first two.
const GOALS: [(f64, f64); 2] = [(0.95, 0.90), (0.90, 0.65)];
const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

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
        let bare = Arc::new(Bare::connect(backend, &cluster).await);
        for (at, tasks) in CONCURRENCY.into_iter().enumerate() {
            let mut seen = Vec::new();
            for turn in 0..=turns {
                let by_locks = measure(tasks, each, |task| with_locks(locks.clone(), task)).await;
                let by_scripts = measure(tasks, each, |task| with_scripts(bare.clone(), task)).await;
                let by_set = measure(tasks, each, |task| with_set(bare.clone(), task)).await;
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

/// Pairs of taking and giving back a second, over all tasks.
async fn measure<F: Future<Output = u64> + Send + 'static>(
    tasks: usize,
    each: Duration,
    work: impl Fn(Task) -> F,
) -> f64 {
    let begin = Instant::now();
    let until = begin + each;
    let running: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(work(Task { number, until })))
        .collect();
    let mut pairs = 0;
    for task in running {
        pairs += task.await.unwrap();
    }
    pairs as f64 / begin.elapsed().as_secs_f64()
}

struct Task {
    number: usize,
    until: Instant,
}

impl Task {
    fn name(&self) -> String {
        format!("bench{}", self.number)
    }
}

async fn with_locks(locks: Locks, task: Task) -> u64 {
    let lock = locks.rwlock(task.name()).unwrap();
    let mut pairs = 0;
    while Instant::now() < task.until {
        lock.write().await.unwrap().release().await.unwrap();
        pairs += 1;
    }
    pairs
}

async fn with_scripts(bare: Arc<Bare>, task: Task) -> u64 {
    let key = format!("bare:{}", task.name());
    let mut pairs = 0;
    while Instant::now() < task.until {
        let owner = format!("{:018}", OWNERS.fetch_add(1, Ordering::Relaxed));
        bare.call(
            &key,
            &["EVALSHA", &bare.acquire, "1", &key, "-", "0", &owner, "30000", "f"],
        )
        .await;
        bare.call(&key, &["EVALSHA", &bare.release, "1", &key, "-", "0", &owner, "all"])
            .await;
        pairs += 1;
    }
    pairs
}

async fn with_set(bare: Arc<Bare>, task: Task) -> u64 {
    let key = format!("set:{}", task.name());
    let mut pairs = 0;
    while Instant::now() < task.until {
        let owner = format!("{:018}", OWNERS.fetch_add(1, Ordering::Relaxed));
        bare.call(&key, &["SET", &key, &owner, "NX", "PX", "30000"]).await;
        bare.call(&key, &["EVALSHA", &bare.compare_and_delete, "1", &key, &owner])
            .await;
        pairs += 1;
    }
    pairs
}

static OWNERS: AtomicU64 = AtomicU64::new(0);

/// A client with one connection to each master, and the slot map as it stands.
struct Bare {
    connections: Vec<Connection>,
    acquire: String,
    release: String,
    compare_and_delete: String,
}

enum Connection {
    Redis(MultiplexedConnection),
    Fred(FredClient),
}

impl Bare {
    async fn connect(backend: Backend, cluster: &Cluster) -> Bare {
        let mut connections = Vec::new();
        let mut compare_and_delete = String::new();
        for node in cluster.nodes() {
            for script in rwlease::scripts() {
                let mut load = redis::cmd("SCRIPT");
                let _: String = node.run(load.arg("LOAD").arg(script.text())).await.unwrap();
            }
            let mut load = redis::cmd("SCRIPT");
            compare_and_delete = node.run(load.arg("LOAD").arg(COMPARE_AND_DELETE)).await.unwrap();
            connections.push(match backend {
                Backend::Fred => Connection::Fred(fred(node.port()).await),
                _ => Connection::Redis(redis(&node.url()).await),
            });
        }
        let digest = |name| {
            rwlease::scripts()
                .find(|script| script.name() == name)
                .unwrap()
                .digest()
                .to_owned()
        };
        Bare {
            connections,
            acquire: digest("acquire_write"),
            release: digest("release"),
            compare_and_delete,
        }
    }

    async fn call(&self, key: &str, words: &[&str]) {
        // The masters have a third of the slots each, in their order.
        let at = (0..3)
            .rfind(|at| usize::from(Slot::of(key).get()) >= 16_384 * at / 3)
            .unwrap();
        match &self.connections[at] {
            Connection::Redis(connection) => {
                let mut command = redis::Cmd::new();
                command.arg(words);
                let _: redis::Value = command.query_async(&mut connection.clone()).await.unwrap();
            }
            Connection::Fred(client) => {
                let command = CustomCommand::new(words[0].to_owned(), ClusterHash::Random, false);
                let args = words[1..].iter().map(|word| word.to_string()).collect::<Vec<_>>();
                let reply = client.custom_raw(command, args).await.unwrap();
                assert!(!matches!(reply, Resp3Frame::SimpleError { .. }), "{reply:?}");
            }
        }
    }
}

async fn redis(url: &str) -> MultiplexedConnection {
    use redis::IntoConnectionInfo;

    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info().unwrap().set_tcp_settings(tcp);
    let client = redis::Client::open(info).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

async fn fred(port: u16) -> FredClient {
    let config = Config {
        server: ServerConfig::new_centralized("127.0.0.1", port),
        version: RespVersion::RESP3,
        ..Config::default()
    };
    let connection = fred::types::config::ConnectionConfig {
        tcp: TcpConfig {
            nodelay: Some(true),
            ..TcpConfig::default()
        },
        ..Default::default()
    };
    let client = FredClient::new(config, None, Some(connection), None);
    client.init().await.unwrap();
    client
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
