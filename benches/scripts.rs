//! The server's own time for the scripts, and its memory for readers and waiters: `cargo bench --bench scripts`.
//!
//! The time is what the server counts (`INFO commandstats`), so that neither the network nor the client is in it. One script a round; the
//! sizes take turns, so that drift of the machine meets all alike; the best round counts. It ends with a failure if a
//! script at any size takes more than twice its time at one reader.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;

use redis::{Client, Connection, cmd, pipe};
use support::{Server, ServerSettings};

const SIZES: [usize; 7] = [1, 100, 250, 500, 1_000, 10_000, 20_000];
const OPERATIONS: [&str; 4] = ["acquire read", "acquire write, refused", "release read", "renew"];
const QUEUES: [usize; 4] = [1, 100, 1_000, 10_000];
const QUEUE_OPERATIONS: [&str; 3] = ["release, hand over", "join the queue", "poll"];
const ROUNDS: usize = 100;
/// Calls of one script in a round: few, so that a busy machine leaves some rounds alone.
const CALLS: usize = 40;
/// Up to this size each call of a round meets a lock of its own: else the round itself would change the size.
const ONE_LOCK_FROM: usize = 1_000;

const MOST_RATIO: f64 = 2.0;
const MOST_BYTES: [(&str, f64); 2] = [("reader", 200.0), ("waiter", 256.0)];

const LEASE: u64 = 600_000;
const PUBLISHED_ACQUIRE: &str = include_str!("published/acquire_write.lua");
const PUBLISHED_RELEASE: &str = include_str!("published/release_write.lua");

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::start(&ServerSettings::default())).unwrap();
    let version = server.version();
    println!("{} {}.{}.{}", version.name, version.major, version.minor, version.patch);

    let mut bench = Bench::new(&server);
    let readers = bench.readers();
    let waiters = bench.waiters();
    bench.uncontended();
    let memory = bench.memory();
    if readers && waiters && memory {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

struct Bench {
    connection: Connection,
    digests: BTreeMap<&'static str, String>,
    owners: u64,
    leases: u64,
}

/// Locks of one size.
struct Locks {
    keys: Vec<String>,
    /// In the order of their coming.
    owners: Vec<VecDeque<String>>,
}

impl Bench {
    fn new(server: &Server) -> Bench {
        let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        let own = rwlease::scripts().map(|script| (script.name(), script.text()));
        let published = [
            ("published acquire", PUBLISHED_ACQUIRE),
            ("published release", PUBLISHED_RELEASE),
        ];
        let digests = own
            .chain(published)
            .map(|(name, text)| {
                (
                    name,
                    cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection).unwrap(),
                )
            })
            .collect();
        Bench {
            connection,
            digests,
            owners: 0,
            leases: 0,
        }
    }

    /// Time by the number of readers. True if it is constant.
    fn readers(&mut self) -> bool {
        let mut locks: Vec<Locks> = SIZES.iter().map(|&size| self.fill(size)).collect();
        let mut best = [[f64::INFINITY; SIZES.len()]; OPERATIONS.len()];
        for _ in 0..ROUNDS {
            for (size, locks) in locks.iter_mut().enumerate() {
                for (operation, best) in best.iter_mut().enumerate() {
                    let calls = self.round(OPERATIONS[operation], locks);
                    best[size] = best[size].min(self.time(&calls));
                }
            }
        }
        report("readers", &SIZES, &OPERATIONS, &best)
    }

    /// Time by the number of waiting writers. True if it is constant.
    fn waiters(&mut self) -> bool {
        let mut queues: Vec<Locks> = QUEUES.iter().map(|&size| self.fill_queue(size)).collect();
        let mut best = [[f64::INFINITY; QUEUES.len()]; QUEUE_OPERATIONS.len()];
        for _ in 0..ROUNDS {
            for (size, locks) in queues.iter_mut().enumerate() {
                for (operation, best) in best.iter_mut().enumerate() {
                    let calls: Vec<Call> = (0..CALLS)
                        .map(|number| {
                            let at = number % locks.keys.len();
                            let (key, owners) = (&locks.keys[at], &mut locks.owners[at]);
                            match operation {
                                0 => Call::new("release", key, &["-", "0", &owners.pop_front().unwrap(), "all"]),
                                1 => self.join(key, owners),
                                _ => Call::new("acquire_write", key, &waiting(owners.back().unwrap())),
                            }
                        })
                        .collect();
                    best[size] = best[size].min(self.time(&calls));
                }
            }
        }
        report("waiting writers", &QUEUES, &QUEUE_OPERATIONS, &best)
    }

    fn fill_queue(&mut self, size: usize) -> Locks {
        let count = if size < ONE_LOCK_FROM { CALLS } else { 1 };
        let keys: Vec<String> = (0..count).map(|number| format!("queue:{size}:{number}")).collect();
        let mut owners = vec![VecDeque::new(); count];
        for (key, owners) in keys.iter().zip(&mut owners) {
            // The first of them holds.
            let calls: Vec<Call> = (0..=size).map(|_| self.join(key, owners)).collect();
            self.run(&calls);
        }
        Locks { keys, owners }
    }

    fn join(&mut self, key: &str, owners: &mut VecDeque<String>) -> Call {
        let owner = self.owner();
        let call = Call::new("acquire_write", key, &waiting(&owner));
        owners.push_back(owner);
        call
    }

    fn fill(&mut self, size: usize) -> Locks {
        let count = if size < ONE_LOCK_FROM { CALLS } else { 1 };
        let keys: Vec<String> = (0..count).map(|number| format!("lock:{size}:{number}")).collect();
        let mut owners = vec![VecDeque::new(); count];
        for (key, readers) in keys.iter().zip(&mut owners) {
            let calls: Vec<Call> = (0..size).map(|_| self.acquire_read(key, readers)).collect();
            self.run(&calls);
        }
        Locks { keys, owners }
    }

    /// The calls of a round, each at its lock.
    fn round(&mut self, operation: &str, locks: &mut Locks) -> Vec<Call> {
        self.leases += 1;
        let lease = (LEASE + self.leases).to_string();
        (0..CALLS)
            .map(|number| {
                let at = number % locks.keys.len();
                let (key, readers) = (&locks.keys[at], &mut locks.owners[at]);
                match operation {
                    "acquire read" => self.acquire_read(key, readers),
                    "release read" => {
                        // The one that has held longest is somewhere in the array, so its place must be filled.
                        let owner = readers.pop_front().unwrap();
                        Call::new("release", key, &["-", "0", &owner, "all"])
                    }
                    "renew" => {
                        let owner = &readers[number / locks.keys.len() % readers.len()];
                        Call::new("renew", key, &["-", "0", owner, &lease])
                    }
                    _ => {
                        let owner = self.owner();
                        Call::new("acquire_write", key, &["-", "0", &owner, &lease, "f"])
                    }
                }
            })
            .collect()
    }

    fn acquire_read(&mut self, key: &str, readers: &mut VecDeque<String>) -> Call {
        let owner = self.owner();
        let call = Call::new("acquire_read", key, &["-", "0", &owner, &LEASE.to_string(), "f"]);
        readers.push_back(owner);
        call
    }

    /// A lock that nobody else wants, beside the published one.
    fn uncontended(&mut self) {
        let keys: Vec<String> = (0..CALLS).map(|number| format!("alone:{number}")).collect();
        let other: Vec<String> = (0..CALLS).map(|number| format!("published:{number}")).collect();
        let mut best = [f64::INFINITY; 8];
        for round in 0..ROUNDS {
            let owners: Vec<String> = keys.iter().map(|_| self.owner()).collect();
            // OWNER is the owner of the round.
            let all = |script, args: &[&str]| -> Vec<Call> {
                let pairs = keys.iter().zip(&owners);
                let with = |owner: &'_ String| args.iter().map(|arg| arg.replace("OWNER", owner)).collect();
                pairs
                    .map(|(key, owner)| Call {
                        script,
                        key: key.clone(),
                        args: with(owner),
                    })
                    .collect()
            };
            let published =
                |script, args: &[&str]| -> Vec<Call> { other.iter().map(|key| Call::new(script, key, args)).collect() };
            let now = (1_785_000_000_000 + round as u64).to_string();
            let mut waiting = vec!["-", "0", "OWNER", "30000", "f"];
            let release = all("release", &["-", "0", "OWNER", "all"]);
            let write = all("acquire_write", &waiting);
            let read = all("acquire_read", &waiting);
            waiting.extend(["1000", "5000", "0", "1000", "d0ff1b2e9a77", "3x"]);
            let waiting = all("acquire_write", &waiting);
            let theirs = published("published acquire", &["10000", "1000", "3000", &now]);
            let their_release = published("published release", &[&now]);
            let rounds = [
                &write,
                &release,
                &waiting,
                &release,
                &read,
                &release,
                &theirs,
                &their_release,
            ];
            for (best, calls) in best.iter_mut().zip(rounds) {
                *best = best.min(self.time(calls));
            }
        }
        let reference = best[6] + best[7];
        println!("\nuncontended               acquire   release      both   to the published lock's");
        for (name, at) in [
            ("write, one try", 0),
            ("write, would wait", 2),
            ("read, one try", 4),
            ("published write", 6),
        ] {
            let both = best[at] + best[at + 1];
            println!(
                "{name:<22}{:>8.1} µs{:>7.1} µs{both:>7.1} µs{:>10.2}",
                best[at],
                best[at + 1],
                both / reference
            );
        }
    }

    /// Memory of a reader and of a waiter. True if it is small.
    fn memory(&mut self) -> bool {
        const COUNT: usize = 10_000;
        println!();
        let mut is_small = true;
        for (kind, most) in MOST_BYTES {
            let key = format!("memory:{kind}");
            let writer = self.owner();
            let mut calls = Vec::new();
            if kind == "waiter" {
                calls.push(Call::new("acquire_write", &key, &["-", "0", &writer, "60000", "f"]));
            }
            for number in 0..COUNT {
                let owner = self.owner();
                let waiting = [
                    "-",
                    "0",
                    &owner,
                    "30000",
                    "f",
                    "2000",
                    "30000",
                    "0",
                    "100000",
                    "d0ff1b2e9a77",
                    "3x",
                ];
                let script = if kind == "reader" || number % 2 == 0 {
                    "acquire_read"
                } else {
                    "acquire_write"
                };
                let args = if kind == "reader" { &waiting[..5] } else { &waiting[..] };
                calls.push(Call::new(script, &key, args));
            }
            self.run(&calls);
            let bytes: f64 = cmd("MEMORY")
                .arg("USAGE")
                .arg(&key)
                .arg("SAMPLES")
                .arg(0)
                .query(&mut self.connection)
                .unwrap();
            let each = bytes / COUNT as f64;
            println!("{each:.0} bytes a {kind} at {COUNT}, under {most:.0} is wanted");
            is_small &= each < most;
        }
        is_small
    }

    /// The server's time for each of the calls, which are all of one script, in microseconds.
    fn time(&mut self, calls: &[Call]) -> f64 {
        cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection).unwrap();
        self.run(calls);
        let info: String = cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"))
            .unwrap();
        let number = |name| {
            let part = line.split(',').find_map(|part| part.strip_prefix(name));
            part.unwrap().parse::<f64>().unwrap()
        };
        number("usec=") / number("calls=")
    }

    fn run(&mut self, calls: &[Call]) {
        for calls in calls.chunks(200) {
            let mut pipeline = pipe();
            for call in calls {
                let digest = &self.digests[call.script];
                pipeline
                    .cmd("EVALSHA")
                    .arg(digest)
                    .arg(1)
                    .arg(&call.key)
                    .arg(&call.args)
                    .ignore();
            }
            pipeline.exec(&mut self.connection).unwrap();
        }
    }

    fn owner(&mut self) -> String {
        self.owners += 1;
        format!("clientclien{:05x}", self.owners)
    }
}

/// Prints a table of times. True if none is too far from the first of its line.
fn report<const N: usize>(what: &str, sizes: &[usize; N], operations: &[&str], best: &[[f64; N]]) -> bool {
    let header: String = sizes.iter().map(|size| format!("{size:>14}")).collect();
    println!("\n{what:<24}{header}");
    let mut worst: f64 = 0.0;
    for (operation, times) in operations.iter().zip(best) {
        let ratios = times.map(|time| time / times[0]);
        worst = ratios.into_iter().fold(worst, f64::max);
        let times: String = times
            .iter()
            .zip(ratios)
            .map(|(time, ratio)| format!("{time:>6.1} µs {ratio:>4.2}"))
            .collect();
        println!("{operation:<24}{times}");
    }
    println!("worst ratio {worst:.2}, at most {MOST_RATIO:.1} is wanted");
    worst <= MOST_RATIO
}

/// The arguments of one who waits to write, long and by polling.
fn waiting(owner: &str) -> [&str; 11] {
    [
        "-", "0", owner, "600000", "f", "600000", "600000", "0", "100000", "-", "-",
    ]
}

struct Call {
    script: &'static str,
    key: String,
    args: Vec<String>,
}

impl Call {
    fn new(script: &'static str, key: &str, args: &[&str]) -> Call {
        Call {
            script,
            key: key.into(),
            args: args.iter().map(|arg| arg.to_string()).collect(),
        }
    }
}
