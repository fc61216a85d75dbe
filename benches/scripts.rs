//! Measures the server's own time for the scripts, and the memory of locks, readers and waiters:
//! `cargo bench -p rwlease-bench --bench scripts`.
//!
//! The time is the server's count (`INFO commandstats`), without the network and the client. Each
//! round runs one script. The sizes take turns, so that drift of the machine affects all of them,
//! and the best round counts. The bench exits with 3 if a goal is missed. `-- --quick` runs few
//! rounds.

use std::collections::{BTreeMap, VecDeque};
use std::process::ExitCode;

use common::{Goals, PUBLISHED_ACQUIRE, PUBLISHED_RELEASE, Table, has_option};
use redis::{Client, Connection, cmd, pipe};
use testkit::{Server, ServerSettings};

const SIZES: [usize; 7] = [1, 100, 250, 500, 1_000, 10_000, 20_000];
const OPERATIONS: [&str; 4] = ["acquire read", "acquire write, refused", "release read", "renew"];
/// The numbers of holders beside which permits are acquired and released.
const HELD: [usize; 5] = [1, 100, 1_000, 5_000, 10_000];
/// The highest ratio to the time of a read.
const MAX_RATIO_TO_READ: f64 = 1.3;
const QUEUES: [usize; 4] = [1, 100, 1_000, 10_000];
const QUEUE_OPERATIONS: [&str; 3] = ["release, hand over", "join the queue", "poll"];
const ROUNDS: usize = 100;
const FEW_ROUNDS: usize = 5;
/// Calls of one script in a round. They are few, so that a busy machine leaves some rounds
/// undisturbed.
const CALLS: usize = 100;
/// From this size on, all calls of a round use one lock. Below it each call has its own lock,
/// because the round itself would change the size.
const SHARED_LOCK_SIZE: usize = 1_000;

const MAX_SIZE_RATIO: f64 = 2.0;
/// The highest ratio of an uncontended pair to that of the published lock: on Redis 7.0, and on
/// later servers.
const MAX_RATIO_TO_PUBLISHED: (f64, f64) = (1.75, 1.65);
const MAX_BYTES: [(&str, f64); 2] = [("reader", 200.0), ("waiter", 256.0)];

const LEASE: u64 = 600_000;
/// Scripts in addition to those of the library.
const SCRIPTS: [(&str, &str); 2] =
    [("published acquire", PUBLISHED_ACQUIRE), ("published release", PUBLISHED_RELEASE)];

/// The others are compared with the last one.
const PAIRS: [&str; 5] =
    ["write, one try", "write, would wait", "read, one try", "read, would wait", "published write"];
/// The first ones of the pairs, which have a goal.
const JUDGED_PAIRS: usize = 4;

/// Contended calls: the calls that lead to each, and the call. `W` and `R` are tries to write and
/// to read, `w` and `r` take a place in the queue; `P` and `p` do so for the only permit of a
/// semaphore. The number is that of an acquisition.
const CONTENDED: [(&str, &str, Contended, f64); 18] = [
    ("free: acquire", "", Contended::Join("acquire_write"), f64::INFINITY),
    ("free: release", "W", Contended::Release(0), f64::INFINITY),
    ("join: a write, behind another", "Ww", Contended::Join("acquire_write"), MOST_OF_A_FREE_ONE),
    ("join: a read, behind another", "Wr", Contended::Join("acquire_read"), MOST_OF_A_FREE_ONE),
    ("join: a read, readers hold", "RRwr", Contended::Join("acquire_read"), MOST_OF_A_FREE_ONE),
    ("join: a write, first", "W", Contended::Join("acquire_write"), MOST_OF_A_FREE_ONE),
    ("poll: a write", "Www", Contended::Poll(2), MOST_OF_A_FREE_ONE),
    ("poll: a read", "Wrr", Contended::Poll(2), MOST_OF_A_FREE_ONE),
    ("poll: a read, readers hold", "RRwr", Contended::Poll(3), MOST_OF_A_FREE_ONE),
    ("release: one of several readers", "RRRwr", Contended::Release(0), MOST_OF_A_FREE_ONE),
    ("hand-off: a reader to a writer", "Rwr", Contended::Release(0), f64::INFINITY),
    ("hand-off: a writer to a writer", "Www", Contended::Release(0), f64::INFINITY),
    ("hand-off: a writer to 16 readers", "Wrrrrrrrrrrrrrrrr", Contended::Release(0), f64::INFINITY),
    ("grant_waiters: nothing to do", "RRwr", Contended::GrantWaiters, MOST_OF_A_FREE_ONE),
    ("leave: one of several writers", "Wwww", Contended::Release(2), f64::INFINITY),
    (
        "permits, join: behind another",
        "Pp",
        Contended::Join("semaphore/acquire"),
        MOST_OF_A_FREE_ONE,
    ),
    ("permits, poll", "Ppp", Contended::Poll(2), MOST_OF_A_FREE_ONE),
    ("permits, hand-off", "Pp", Contended::Release(0), f64::INFINITY),
];
const MOST_OF_A_FREE_ONE: f64 = 2.75;
/// Rounds of contended calls: each makes its locks anew.
const CONTENDED_ROUNDS: usize = 15;
/// The readers that wait when a call of `grant_waiters` lets in as many as it may.
const CROWD: usize = 10_000;
/// The place of a waiter that is subscribed.
const SUBSCRIBED: &str = "2000 30000 100000 d0ff1b2e9a77";

/// The number of locks whose memory is counted.
const COUNT: usize = 10_000;

fn main() -> ExitCode {
    let rounds = if has_option("--quick") { FEW_ROUNDS } else { ROUNDS };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start(&ServerSettings::default())).unwrap();
    let version = server.version();
    println!(
        "{} {}.{}.{}, one local server, its own time, the best of {rounds} rounds.",
        version.name, version.major, version.minor, version.patch
    );

    let is_later = version.name != "Redis" || (version.major, version.minor) > (7, 0);
    let most = if is_later { MAX_RATIO_TO_PUBLISHED.1 } else { MAX_RATIO_TO_PUBLISHED.0 };
    let mut bench = ScriptBench::new(&server, rounds);
    let mut goals = Goals::new("server time and memory");
    bench.readers(&mut goals);
    bench.waiters(&mut goals);
    bench.uncontended(most, &mut goals);
    bench.contended(&mut goals);
    bench.semaphores(&mut goals);
    bench.memory(&mut goals);
    print!("\n{goals}");
    goals.exit_code()
}

struct ScriptBench {
    connection: Connection,
    digests: BTreeMap<&'static str, String>,
    ids: u64,
    leases: u64,
    rounds: usize,
}

#[derive(Clone, Copy)]
enum Contended {
    Join(&'static str),
    Poll(usize),
    Release(usize),
    GrantWaiters,
}

/// Locks with the same number of holders or waiters.
struct LockKeys {
    keys: Vec<String>,
    /// In the order of their arrival.
    ids: Vec<VecDeque<String>>,
}

impl ScriptBench {
    fn new(server: &Server, rounds: usize) -> ScriptBench {
        let mut connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        let mut load = |text: &str| cmd("SCRIPT").arg("LOAD").arg(text).query(&mut connection);
        let own = rwlease::scripts().map(|script| (script.name(), script.text()));
        let digests = own.chain(SCRIPTS).map(|(name, text)| (name, load(text).unwrap())).collect();
        ScriptBench { connection, digests, ids: 0, leases: 0, rounds }
    }

    /// Time by the number of readers. It should be constant.
    fn readers(&mut self, goals: &mut Goals) {
        let mut locks: Vec<LockKeys> = SIZES.iter().map(|&size| self.fill(size)).collect();
        let mut best = [[f64::INFINITY; SIZES.len()]; OPERATIONS.len()];
        for _ in 0..self.rounds {
            for (size, locks) in locks.iter_mut().enumerate() {
                for (operation, best) in best.iter_mut().enumerate() {
                    let calls = self.round(OPERATIONS[operation], locks);
                    best[size] = best[size].min(self.time(&calls));
                }
            }
        }
        report("readers", &SIZES, &OPERATIONS, &best, goals);
    }

    /// Time by the number of waiting writers. It should be constant.
    fn waiters(&mut self, goals: &mut Goals) {
        let mut queues: Vec<LockKeys> = QUEUES.iter().map(|&size| self.fill_queue(size)).collect();
        let mut best = [[f64::INFINITY; QUEUES.len()]; QUEUE_OPERATIONS.len()];
        for _ in 0..self.rounds {
            for (size, locks) in queues.iter_mut().enumerate() {
                for (operation, best) in best.iter_mut().enumerate() {
                    let calls: Vec<Call> = (0..CALLS)
                        .map(|number| {
                            let at = number % locks.keys.len();
                            let (key, ids) = (&locks.keys[at], &mut locks.ids[at]);
                            match operation {
                                0 => Call::new("release", key, &["-", &ids.pop_front().unwrap()]),
                                1 => self.join(key, ids),
                                _ => Call::new("acquire_write", key, &waiting(ids.back().unwrap())),
                            }
                        })
                        .collect();
                    best[size] = best[size].min(self.time(&calls));
                }
            }
        }
        report("waiting writers", &QUEUES, &QUEUE_OPERATIONS, &best, goals);
    }

    fn fill_queue(&mut self, size: usize) -> LockKeys {
        let count = if size < SHARED_LOCK_SIZE { CALLS } else { 1 };
        let keys: Vec<String> = (0..count).map(|number| format!("queue:{size}:{number}")).collect();
        let mut ids = vec![VecDeque::new(); count];
        for (key, ids) in keys.iter().zip(&mut ids) {
            // The first of them holds.
            let calls: Vec<Call> = (0..=size).map(|_| self.join(key, ids)).collect();
            self.run(&calls);
        }
        LockKeys { keys, ids }
    }

    fn join(&mut self, key: &str, ids: &mut VecDeque<String>) -> Call {
        let id = self.id();
        let call = Call::new("acquire_write", key, &waiting(&id));
        ids.push_back(id);
        call
    }

    fn fill(&mut self, size: usize) -> LockKeys {
        let count = if size < SHARED_LOCK_SIZE { CALLS } else { 1 };
        let keys: Vec<String> = (0..count).map(|number| format!("lock:{size}:{number}")).collect();
        let mut ids = vec![VecDeque::new(); count];
        for (key, readers) in keys.iter().zip(&mut ids) {
            let calls: Vec<Call> = (0..size).map(|_| self.acquire_read(key, readers)).collect();
            self.run(&calls);
        }
        LockKeys { keys, ids }
    }

    /// The calls of a round, each for its lock.
    fn round(&mut self, operation: &str, locks: &mut LockKeys) -> Vec<Call> {
        self.leases += 1;
        let lease = (LEASE + self.leases).to_string();
        (0..CALLS)
            .map(|number| {
                let at = number % locks.keys.len();
                let (key, readers) = (&locks.keys[at], &mut locks.ids[at]);
                match operation {
                    "acquire read" => self.acquire_read(key, readers),
                    "release read" => {
                        // The oldest reader is not the last of the array, so the script must fill
                        // its place.
                        let id = readers.pop_front().unwrap();
                        Call::new("release", key, &["-", &id])
                    }
                    "renew" => {
                        let id = &readers[number / locks.keys.len() % readers.len()];
                        self.renewal("renew", key, id, &lease)
                    }
                    _ => {
                        let id = self.id();
                        Call::new("acquire_write", key, &try_args(&id, &lease))
                    }
                }
            })
            .collect()
    }

    /// A renewal of what the server has: of a lock, or of one permit.
    fn renewal(&mut self, script: &'static str, key: &str, id: &str, lease: &str) -> Call {
        let fields = cmd("HMGET").arg(key).arg("s").arg(format!("r:{id}")).clone();
        let (line, record): (String, Option<String>) = fields.query(&mut self.connection).unwrap();
        let token = record.as_ref().map_or(&line[15..31], |record| &record[14..30]);
        let held = match (script, &line[..2]) {
            ("semaphore/renew", _) => "1",
            (_, "2W") => "w",
            _ => "r",
        };
        Call::new(script, key, &["-", id, lease, held, token])
    }

    fn acquire_read(&mut self, key: &str, readers: &mut VecDeque<String>) -> Call {
        let id = self.id();
        let call = Call::new("acquire_read", key, &try_args(&id, &LEASE.to_string()));
        readers.push_back(id);
        call
    }

    /// The server time of acquiring and releasing an uncontended lock, beside that of the published
    /// lock.
    fn uncontended(&mut self, most: f64, goals: &mut Goals) {
        let mut best = [[f64::INFINITY; 2]; PAIRS.len()];
        for round in 0..self.rounds {
            for (best, pair) in best.iter_mut().zip(self.pairs(round)) {
                for (best, calls) in best.iter_mut().zip(pair) {
                    *best = best.min(self.time(&calls));
                }
            }
        }
        let [.., [acquire, release]] = best;
        let mut table =
            Table::new(&["uncontended, µs", "acquire", "release", "both", "of the published lock"]);
        for (at, (name, [acquire_here, release_here])) in PAIRS.into_iter().zip(best).enumerate() {
            let both = acquire_here + release_here;
            let ratio = both / (acquire + release);
            let times = [acquire_here, release_here, both].map(|time| format!("{time:.1}"));
            table.add([name.into()].into_iter().chain(times).chain([format!("{ratio:.2}")]));
            if at < JUDGED_PAIRS {
                goals.at_most(format!("{name}: of the published lock"), most, ratio);
            }
        }
        print!("\n{table}");
    }

    /// The acquires and the releases of an acquisition of this round, in the order of [`PAIRS`].
    fn pairs(&mut self, round: usize) -> [[Vec<Call>; 2]; PAIRS.len()] {
        let id = &self.id();
        let now = (1_785_000_000_000 + round as u64).to_string();
        let wait = ["-", "0", id, "30000", "f", "1", "3x", "1000 5000 1000 d0ff1b2e9a77"];
        let release = || calls("release", "alone", &["-", id]);
        [
            [calls("acquire_write", "alone", &wait[..7]), release()],
            [calls("acquire_write", "alone", &wait), release()],
            [calls("acquire_read", "alone", &wait[..7]), release()],
            [calls("acquire_read", "alone", &wait), release()],
            [
                calls("published acquire", "published", &["10000", "1000", "3000", &now]),
                calls("published release", "published", &[&now]),
            ],
        ]
    }

    /// Calls beside holders and waiters, each of a lock of its own.
    fn contended(&mut self, goals: &mut Goals) {
        let mut best = [f64::INFINITY; CONTENDED.len() + 1];
        for _ in 0..self.rounds.min(CONTENDED_ROUNDS) {
            for (row, best) in best.iter_mut().enumerate() {
                *best = best.min(match CONTENDED.get(row) {
                    Some(&(_, from, call, _)) => self.contended_call(from, call),
                    None => self.crowd(),
                });
            }
        }
        let mut table = Table::new(&["contended, µs", "server time", "of a free acquire"]);
        let names = CONTENDED.map(|(name, ..)| name);
        let names =
            names.into_iter().chain(["grant_waiters: lets in as many as it may, of 10,000"]);
        let free = best[0];
        for (at, (name, time)) in names.zip(best).enumerate() {
            table.add([name.into(), format!("{time:.1}"), format!("{:.2}", time / free)]);
            if let Some(&(_, _, _, most)) = CONTENDED.get(at).filter(|row| row.3.is_finite()) {
                goals.at_most(format!("{name}: of a free acquire"), most, time / free);
            }
        }
        print!("\n{table}");
    }

    fn contended_call(&mut self, from: &str, call: Contended) -> f64 {
        let lease = LEASE.to_string();
        let (mut before, mut timed) = (Vec::new(), Vec::new());
        let of_permits = from.starts_with('P');
        let release = if of_permits { "semaphore/release" } else { "release" };
        for number in 0..CALLS {
            let key = format!("contended:{number}");
            cmd("DEL").arg(&key).exec(&mut self.connection).unwrap();
            // An idle lock: a new one costs more. Its key lives long enough for all that follow.
            let first = self.id();
            let script = if of_permits { "semaphore/acquire" } else { "acquire_write" };
            let mut args = waiting_args(&first, of_permits);
            args[3] = &lease;
            before.push(Call::new(script, &key, &args[..7]));
            before.push(Call::new(release, &key, &["-", &first]));
            let mut calls = Vec::new();
            for kind in from.chars() {
                let script = match kind {
                    'W' | 'w' => "acquire_write",
                    'R' | 'r' => "acquire_read",
                    _ => "semaphore/acquire",
                };
                let id = self.id();
                let count = if kind.is_lowercase() { 8 } else { 7 };
                let args = waiting_args(&id, of_permits);
                calls.push((id.clone(), Call::new(script, &key, &args[..count])));
            }
            timed.push(match call {
                Contended::Join(script) => {
                    Call::new(script, &key, &waiting_args(&self.id(), of_permits))
                }
                Contended::Poll(at) => {
                    let (_, call) = &calls[at];
                    let mut args = call.args.clone();
                    args.push((at + 1).to_string());
                    Call { script: call.script, key: key.clone(), args }
                }
                Contended::Release(at) => Call::new(release, &key, &["-", &calls[at].0]),
                Contended::GrantWaiters => Call::new("grant_waiters", &key, &["-", "3x"]),
            });
            before.extend(calls.into_iter().map(|(_, call)| call));
        }
        self.run(&before);
        self.time(&timed)
    }

    /// Calls `grant_waiters` while very many readers wait.
    fn crowd(&mut self) -> f64 {
        let key = "contended:crowd";
        cmd("DEL").arg(key).exec(&mut self.connection).unwrap();
        let writer = self.id();
        let mut calls = vec![Call::new("acquire_write", key, &try_args(&writer, "60000"))];
        for _ in 0..CROWD {
            calls.push(Call::new("acquire_read", key, &waiting_args(&self.id(), false)));
        }
        calls.push(Call::new("release", key, &["-", &writer]));
        self.run(&calls);
        let calls: Vec<Call> =
            (0..CALLS).map(|_| Call::new("grant_waiters", key, &["-", "3x"])).collect();
        self.time(&calls)
    }

    /// Acquires, renews and releases permits beside holders of one permit each, and reads beside as
    /// many readers.
    fn semaphores(&mut self, goals: &mut Goals) {
        let mut best = [[[f64::INFINITY; HELD.len()]; 3]; 2];
        let keys = HELD.map(|size| {
            [("acquire_read", "read"), ("semaphore/acquire", "permits")].map(|(script, kind)| {
                let key = format!("{kind}:{size}");
                let calls: Vec<Call> = (0..size).map(|_| self.hold(script, &key).0).collect();
                self.run(&calls);
                key
            })
        });
        for _ in 0..self.rounds {
            for (at, [read, permits]) in keys.iter().enumerate() {
                for (kind, key, take, renew, give) in [
                    (0, read, "acquire_read", "renew", "release"),
                    (1, permits, "semaphore/acquire", "semaphore/renew", "semaphore/release"),
                ] {
                    let (takes, ids): (Vec<_>, Vec<_>) =
                        (0..CALLS).map(|_| self.hold(take, key)).unzip();
                    self.leases += 1;
                    let lease = (LEASE + self.leases).to_string();
                    let gives: Vec<Call> =
                        ids.iter().map(|id| Call::new(give, key, &["-", id])).collect();
                    let mut time = |bench: &mut ScriptBench, operation: usize, calls: &[Call]| {
                        let best: &mut f64 = &mut best[kind][operation][at];
                        *best = best.min(bench.time(calls));
                    };
                    time(self, 0, &takes);
                    let renewals: Vec<Call> =
                        ids.iter().map(|id| self.renewal(renew, key, id, &lease)).collect();
                    time(self, 1, &renewals);
                    time(self, 2, &gives);
                }
            }
        }
        let [reads, permits] = best;
        let operations = ["acquire", "renew", "release"];
        report("holders of permits", &HELD, &operations, &permits, goals);
        for (what, at) in [("an acquire", 0), ("a renewal", 1)] {
            let ratios = permits[at].iter().zip(reads[at]).map(|(permits, read)| permits / read);
            let worst = ratios.fold(0.0, f64::max);
            let goal = format!("{what} of permits, of a read beside as many");
            goals.at_most(goal, MAX_RATIO_TO_READ, worst);
        }
    }

    fn hold(&mut self, script: &'static str, key: &str) -> (Call, String) {
        let (id, lease) = (self.id(), LEASE.to_string());
        let what = if script == "acquire_read" { ["f", "1"] } else { ["1", "100000"] };
        (Call::new(script, key, &["-", "0", &id, &lease, what[0], what[1], "3x"]), id)
    }

    /// The memory of a lock, and of a reader and a waiter among many of one lock.
    fn memory(&mut self, goals: &mut Goals) {
        let mut table = Table::new(&["memory of 10,000", "bytes of each"]);
        self.locks(&mut table);
        for (kind, most) in MAX_BYTES {
            let key = format!("memory:{kind}");
            let writer = self.id();
            let mut calls = Vec::new();
            if kind == "waiter" {
                calls.push(Call::new("acquire_write", &key, &try_args(&writer, "60000")));
            }
            for number in 0..COUNT {
                let id = self.id();
                let place = "2000 30000 100000 d0ff1b2e9a77";
                let waiting = ["-", "0", &id, "30000", "f", "1", "3x", place];
                let script = if kind == "reader" || number % 2 == 0 {
                    "acquire_read"
                } else {
                    "acquire_write"
                };
                let args = if kind == "reader" { &waiting[..7] } else { &waiting[..] };
                calls.push(Call::new(script, &key, args));
            }
            self.run(&calls);
            let each = self.bytes(&[key]) / COUNT as f64;
            table.add([format!("{kind} of one lock"), format!("{each:.0}")]);
            goals.at_most(format!("bytes of a {kind}"), most, each);
        }
        print!("\n{table}");
    }

    /// The memory of a lock with one holder, and of an idle one: released, and kept for its grace
    /// period.
    fn locks(&mut self, table: &mut Table) {
        let id = &self.id();
        let (take, release) = (try_args(id, "30000"), ["-", id]);
        for (first, held, idle, script) in [
            (10_000, "lock with one writer", "lock that was written, idle", "acquire_write"),
            (20_000, "lock with one reader", "lock that was read, idle", "acquire_read"),
        ] {
            let keys: Vec<String> =
                (first..first + COUNT).map(|number| format!("rwlease:order:{number}")).collect();
            for (name, script, args) in [(held, script, &take[..]), (idle, "release", &release[..])]
            {
                let calls: Vec<Call> =
                    keys.iter().map(|key| Call::new(script, key, args)).collect();
                self.run(&calls);
                let each = self.bytes(&keys) / COUNT as f64;
                table.add([name.into(), format!("{each:.0}")]);
            }
        }
    }

    /// The memory of these keys.
    fn bytes(&mut self, keys: &[String]) -> f64 {
        let mut pipeline = pipe();
        for key in keys {
            pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        }
        let bytes: Vec<f64> = pipeline.query(&mut self.connection).unwrap();
        bytes.iter().sum()
    }

    /// The server's time for each call, in microseconds. All calls run the same script.
    fn time(&mut self, calls: &[Call]) -> f64 {
        cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection).unwrap();
        self.run(calls);
        let info: String = cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let stat = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap();
        let number = |name| -> f64 {
            let part = stat.split(',').find_map(|part| part.strip_prefix(name));
            part.unwrap().parse().unwrap()
        };
        number("usec=") / number("calls=")
    }

    fn run(&mut self, calls: &[Call]) {
        for calls in calls.chunks(200) {
            let mut pipeline = pipe();
            for call in calls {
                let digest = &self.digests[call.script];
                pipeline.cmd("EVALSHA").arg(digest).arg(1).arg(&call.key).arg(&call.args).ignore();
            }
            pipeline.exec(&mut self.connection).unwrap();
        }
    }

    fn id(&mut self) -> String {
        self.ids += 1;
        format!("clientclien{:05x}", self.ids)
    }
}

/// Prints a table of times. None should be far from the first of its line.
fn report<const N: usize>(
    what: &str,
    sizes: &[usize; N],
    operations: &[&str],
    best: &[[f64; N]],
    goals: &mut Goals,
) {
    let mut table = Table::new(&[&format!("µs by {what}")]);
    table.head.extend(sizes.iter().map(usize::to_string));
    table.head.push("worst ratio to the first".into());
    let mut worst: f64 = 0.0;
    for (operation, times) in operations.iter().zip(best) {
        let ratio = times.iter().fold(0.0, |worst: f64, time| worst.max(time / times[0]));
        worst = worst.max(ratio);
        let times = times.map(|time| format!("{time:.1}"));
        table.add([operation.to_string()].into_iter().chain(times).chain([format!("{ratio:.2}")]));
    }
    print!("\n{table}");
    goals.at_most(format!("by {what}: worst ratio to the first"), MAX_SIZE_RATIO, worst);
}

/// The arguments of a waiting writer that polls, with a long time to live.
fn waiting(id: &str) -> [&str; 8] {
    ["-", "0", id, "600000", "f", "1", "3x", "600000 600000 100000 -"]
}

/// The arguments of a waiter that is subscribed: for a lock, or for the only permit of a semaphore.
fn waiting_args(id: &str, of_permits: bool) -> [&str; 8] {
    let what = if of_permits { ["1", "1"] } else { ["f", "1"] };
    ["-", "0", id, "30000", what[0], what[1], "3x", SUBSCRIBED]
}

/// The arguments of a try.
fn try_args<'a>(id: &'a str, lease: &'a str) -> [&'a str; 7] {
    ["-", "0", id, lease, "f", "1", "3x"]
}

/// The same call for each lock of a round.
fn calls(script: &'static str, prefix: &str, args: &[&str]) -> Vec<Call> {
    let keys = (0..CALLS).map(|number| format!("{prefix}:{number}"));
    keys.map(|key| Call::new(script, &key, args)).collect()
}

struct Call {
    script: &'static str,
    key: String,
    args: Vec<String>,
}

impl Call {
    fn new(script: &'static str, key: &str, args: &[&str]) -> Call {
        Call { script, key: key.into(), args: args.iter().map(|arg| arg.to_string()).collect() }
    }
}
