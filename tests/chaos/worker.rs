//! A process that takes locks: this program, started again with orders. It logs each event, and
//! ends when its standard input ends.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rwlease::{
    Cache, CachedRwLock, ErrorKind, Lease, LeaseWatch, LockMode, Locks, Released,
    Result as LockResult,
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::history::{Log, Nanos, now};
use super::store::Stored;
use crate::support::{ConnectBuilder, Error, Result, register_child, unregister_child};

/// Names the file of the orders. Without it, this process is no worker.
const ORDERS: &str = "RWLEASE_CHAOS_WORKER";

/// The name of the test under which a program of tests is a worker.
pub const TEST: &str = "smoke::worker_process_takes_locks";

/// The interval at which a long hold checks whether its deadline has moved.
const LOOK: Duration = Duration::from_millis(100);
const MOVED: Nanos = 5_000_000;

/// The limit of each semaphore, and the number of tasks of each worker that use it.
pub const LIMIT: u32 = 5;
const TAKERS: usize = 2;

/// Longer than a failover takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The orders of one worker.
#[derive(Clone, Debug)]
pub struct Orders {
    pub urls: Vec<String>,
    pub store: String,
    /// The locks of short holds, and the number of groups. A task uses every `groups`-th name.
    pub names: Vec<String>,
    pub groups: usize,
    /// The locks of the long holds, which are renewed: a task for each.
    pub keepers: Vec<String>,
    /// Semaphores: some tasks for each.
    pub semaphores: Vec<String>,
    pub tasks: usize,
    /// How many of them use cached handles.
    pub cached: usize,
    pub reads_percent: u8,
    pub replicas: u32,
    pub lease: Duration,
    pub claim: Duration,
    /// The maxima of a short hold and of a long hold.
    pub hold: Duration,
    pub keep: Duration,
    /// The number of acquisitions after which it ends.
    pub limit: Option<u64>,
    pub seed: u64,
}

/// The handle of a worker's process.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// Its exit status, once it has ended.
    ended: Option<bool>,
}

impl Worker {
    /// Starts it. `before` goes before the command, to start it in another network.
    pub fn start(orders: &Orders, log: &Path, before: &[String]) -> Result<Worker> {
        let file = log.with_extension("orders");
        std::fs::write(&file, orders.write(log).to_string())?;
        let program = std::env::current_exe()?.into_os_string();
        let mut words = before.iter().map(std::ffi::OsString::from).chain([program]);
        let first = words.next().unwrap_or_default();
        let child = Command::new(first)
            .args(words)
            .args(["--exact", TEST, "--nocapture"])
            .env(ORDERS, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log.with_extension("err"))?)
            .spawn()?;
        register_child(child.id())?;
        Ok(Worker { child, ended: None })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it finish its work.
    pub fn stop(&mut self) {
        self.child.stdin = None;
    }

    /// Returns its exit status if it has ended.
    pub fn ended(&mut self) -> Result<Option<bool>> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait()?
        {
            self.ended = Some(status.success());
            unregister_child(self.id())?;
        }
        Ok(self.ended)
    }

    /// `kill -9`; it is reaped when this returns.
    pub fn kill(&mut self) -> Result {
        if self.ended()?.is_none() {
            self.child.kill()?;
            unregister_child(self.id())?;
            self.ended = Some(self.child.wait()?.success());
        }
        Ok(())
    }

    pub fn freeze(&self) -> Result {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    pub fn thaw(&self) -> Result {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Blocks its runtime for that long.
    pub fn stall(&mut self, time: Duration) -> Result {
        use std::io::Write;

        let input = self.child.stdin.as_mut().ok_or_else(|| Error::new("it was stopped"))?;
        Ok(writeln!(input, "{}", time.as_millis())?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.kill();
    }
}

/// Works, if this process is a worker.
pub fn work_if_told() -> Option<Result> {
    let file = PathBuf::from(std::env::var_os(ORDERS)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Some(runtime.map_err(Error::from).and_then(|runtime| {
        let (orders, log) = Orders::read(&file)?;
        tokio::task::LocalSet::new().block_on(&runtime, work(orders, &log))
    }))
}

async fn work(orders: Orders, log: &Path) -> Result {
    let settings = Locks::builder()
        .lease(orders.lease)
        .claim_window(orders.claim)
        .call_timeout(CALL_TIMEOUT)
        .cache(Cache::default().replicas(orders.replicas));
    let bench = Rc::new(Bench {
        log: Log::create(log)?,
        locks: settings.connect_to(&orders.urls).await?,
        store: Stored::connect(&orders.store).await?,
        stop: Arc::default(),
        left: AtomicU64::new(orders.limit.unwrap_or(u64::MAX)),
        orders,
    });
    listen(&bench);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..bench.orders.tasks {
        tasks.spawn_local(bench.clone().short_holds(number));
    }
    for number in 0..bench.orders.keepers.len() {
        tasks.spawn_local(bench.clone().long_holds(number));
    }
    for number in 0..bench.orders.semaphores.len() * TAKERS {
        tasks.spawn_local(bench.clone().permits(number));
    }
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    // A release without an answer is repeated until its lease has ended.
    let left = bench.locks.shutdown(CALL_TIMEOUT + bench.orders.lease).await;
    if left.is_empty() { Ok(()) } else { Err(Error::new(format!("not released: {left:?}"))) }
}

/// Reads orders: a number of milliseconds blocks the runtime, the end of the input stops the
/// worker.
fn listen(bench: &Rc<Bench>) {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let stop = bench.stop.clone();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        for line in lines.map_while(std::io::Result::ok) {
            let _ = tell.send(line);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let bench = bench.clone();
    tokio::task::spawn_local(async move {
        while let Some(line) = told.recv().await {
            let time = Duration::from_millis(line.trim().parse().unwrap_or(0));
            std::thread::sleep(time);
            bench.log.note(now(), format_args!("Z {}", time.as_millis()));
        }
    });
}

struct Bench {
    orders: Orders,
    log: Log,
    locks: Locks,
    store: Stored,
    stop: Arc<AtomicBool>,
    left: AtomicU64,
}

impl Bench {
    fn goes_on(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0 && !self.stop.load(Ordering::Relaxed)
    }

    async fn short_holds(self: Rc<Self>, number: usize) {
        let orders = &self.orders;
        let mut random = fastrand::Rng::with_seed(orders.seed.wrapping_add(number as u64));
        let group = number % orders.groups;
        let names = orders.names.len() / orders.groups;
        let mut handles = (number < orders.cached).then(Handles::default);
        while self.goes_on() {
            let name = zipf(&mut random, names) * orders.groups + group;
            let mode = if random.u8(..100) < orders.reads_percent {
                LockMode::Read
            } else {
                LockMode::Write
            };
            let hold = orders.hold.mul_f64(random.f64());
            let id = self.log.request(name, word(mode));
            let wanted = Wanted { id, name: &orders.names[name], mode, tries: random.u8(..8) == 0 };
            let taken = match &mut handles {
                Some(handles) => {
                    handles.forget_some(&mut random);
                    self.cached(&wanted, handles, hold).await
                }
                None => self.plain(&wanted, hold).await,
            };
            self.over(id, taken).await;
        }
    }

    async fn long_holds(self: Rc<Self>, number: usize) {
        let orders = &self.orders;
        let mut random = fastrand::Rng::with_seed(orders.seed.wrapping_sub(number as u64 + 1));
        while self.goes_on() {
            let hold = orders.keep.mul_f64(random.f64());
            let id = self.log.request(orders.names.len() + number, word(LockMode::Write));
            let name = &orders.keepers[number];
            let wanted = Wanted { id, name, mode: LockMode::Write, tries: false };
            let taken = self.lead(&wanted, hold).await;
            self.over(id, taken).await;
        }
    }

    /// Most holds of permits are short, and some long.
    async fn permits(self: Rc<Self>, number: usize) {
        let orders = &self.orders;
        let mut random =
            fastrand::Rng::with_seed(orders.seed.wrapping_add(number as u64) ^ 1 << 63);
        let number = number / TAKERS;
        while self.goes_on() {
            let permits = random.u32(1..=LIMIT);
            let place = orders.names.len() + orders.keepers.len() + number;
            let id = self.log.request(place, format_args!("{permits}/{LIMIT}"));
            let longest = if random.u8(..16) == 0 { orders.keep } else { orders.hold };
            let wanted = WantedPermits {
                id,
                name: &orders.semaphores[number],
                permits,
                tries: random.u8(..8) == 0,
                hold: longest.mul_f64(random.f64()),
                keeps: random
                    .bool()
                    .then(|| random.u32(1..=permits))
                    .filter(|keeps| *keeps < permits),
            };
            let taken = self.take_permits(&wanted).await;
            self.over(id, taken).await;
        }
    }

    async fn take_permits(&self, wanted: &WantedPermits<'_>) -> LockResult<()> {
        let semaphore = self.locks.semaphore(wanted.name, LIMIT)?;
        let replicas = self.orders.replicas;
        let guard = match wanted.tries {
            true => semaphore.try_acquire(wanted.permits).replicas(replicas).await?,
            false => {
                Some(semaphore.acquire(wanted.permits).replicas(replicas).timeout(LONG).await?)
            }
        };
        let Some(mut guard) = guard else { return self.refused(wanted.id).await };
        let held = Held::Plain(guard.clone());
        self.granted(wanted.id, &held);
        let mut kept = Ok(());
        if let Some(keeps) = wanted.keeps {
            self.stay(wanted.id, &held, wanted.hold / 2).await;
            self.log.note(now(), format_args!("K {} {keeps}", wanted.id));
            kept = guard.release_some(wanted.permits - keeps).await;
        }
        self.stay(wanted.id, &held, wanted.hold / 2).await;
        self.release(wanted.id, &held, guard.release()).await;
        // The log has the outcome of the lease.
        kept.or_else(|error| if error.kind() == ErrorKind::Lost { Ok(()) } else { Err(error) })
    }

    async fn over(&self, id: u64, taken: LockResult<()>) {
        if let Err(error) = taken {
            self.log.note(now(), format_args!("F {id} {:?} {}", error.kind(), one_line(&error)));
            // Requests that fail at once are not repeated without a pause.
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn plain(&self, wanted: &Wanted<'_>, hold: Duration) -> LockResult<()> {
        let lock = self.locks.rwlock(wanted.name)?;
        let replicas = self.orders.replicas;
        match wanted.mode {
            LockMode::Read => {
                let guard = match wanted.tries {
                    true => lock.try_read().replicas(replicas).await?,
                    false => Some(lock.read().replicas(replicas).timeout(LONG).await?),
                };
                let Some(guard) = guard else { return self.refused(wanted.id).await };
                let held = Held::Plain(guard.clone());
                self.read(wanted, &held, hold).await;
                self.release(wanted.id, &held, guard.release()).await;
            }
            LockMode::Write => {
                let guard = match wanted.tries {
                    true => lock.try_write().replicas(replicas).await?,
                    false => Some(lock.write().replicas(replicas).timeout(LONG).await?),
                };
                let Some(guard) = guard else { return self.refused(wanted.id).await };
                let held = Held::Plain(guard.clone());
                self.write(wanted, &held, hold).await;
                self.release(wanted.id, &held, guard.release()).await;
            }
        }
        Ok(())
    }

    /// Long holds are leads, and every worker is a candidate.
    async fn lead(&self, wanted: &Wanted<'_>, hold: Duration) -> LockResult<()> {
        let leader = self.locks.leader(wanted.name)?;
        let lead = leader.campaign().replicas(self.orders.replicas).timeout(LONG).await?;
        let held = Held::Plain(lead.clone());
        self.write(wanted, &held, hold).await;
        self.release(wanted.id, &held, lead.resign()).await;
        Ok(())
    }

    async fn cached(
        &self,
        wanted: &Wanted<'_>,
        handles: &mut Handles,
        hold: Duration,
    ) -> LockResult<()> {
        let lock = handles.of(&self.locks, wanted.name)?;
        match wanted.mode {
            LockMode::Read => {
                let guard = match wanted.tries {
                    true => lock.try_read().await?,
                    false => Some(lock.read().timeout(LONG).await?),
                };
                let Some(guard) = guard else { return self.refused(wanted.id).await };
                let held = Held::Cached(guard.watch());
                self.read(wanted, &held, hold).await;
                self.release(wanted.id, &held, guard.release()).await;
            }
            LockMode::Write => {
                let guard = match wanted.tries {
                    true => lock.try_write().await?,
                    false => Some(lock.write().timeout(LONG).await?),
                };
                let Some(guard) = guard else { return self.refused(wanted.id).await };
                let held = Held::Cached(guard.watch());
                self.write(wanted, &held, hold).await;
                self.release(wanted.id, &held, guard.release()).await;
            }
        }
        Ok(())
    }

    async fn refused(&self, id: u64) -> LockResult<()> {
        self.log.note(now(), format_args!("N {id}"));
        // It counts acquisitions.
        self.left.store(self.left.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        // Requests that fail at once are not repeated without a pause.
        sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn read(&self, &Wanted { id, name, .. }: &Wanted<'_>, held: &Held, hold: Duration) {
        self.granted(id, held);
        let _ = self.store.clone().read(name).await;
        self.stay(id, held, hold).await;
    }

    async fn write(&self, &Wanted { id, name, .. }: &Wanted<'_>, held: &Held, hold: Duration) {
        self.granted(id, held);
        let token = held.token();
        let mut store = self.store.clone();
        let entered = self.stored(id, store.enter(name, token).await);
        self.stay(id, held, hold).await;
        // Writes even without the lock: the store must refuse it then.
        if let Some((_, counter)) = entered {
            let written = store.write(name, token, counter + 1).await;
            self.stored(id, written.map(|sequence| sequence.map(|sequence| (sequence, 0))));
        }
    }

    fn granted(&self, id: u64, held: &Held) {
        let (at, token) = (now(), held.token());
        let deadline = if held.is_held() { held.deadline() } else { at };
        self.log.note(at, format_args!("G {id} {token} {deadline} {}", held.word()));
    }

    /// Holds for a while, logs new deadlines, and stops if the lease is lost.
    async fn stay(&self, id: u64, held: &Held, hold: Duration) {
        let until = now() + hold.as_nanos() as u64;
        let mut noted = held.deadline();
        while now() < until && !self.stop.load(Ordering::Relaxed) {
            let pause = Duration::from_nanos(until.saturating_sub(now())).min(LOOK);
            if timeout(pause, held.lost()).await.is_ok() {
                self.log.note(now(), format_args!("L {id}"));
                return;
            }
            let moved = held.deadline();
            if held.is_held() && moved > noted + MOVED {
                noted = moved;
                self.log.note(now(), format_args!("D {id} {moved}"));
            }
        }
    }

    fn stored(&self, id: u64, answer: Result<Option<(u64, u64)>>) -> Option<(u64, u64)> {
        match answer {
            Ok(Some((sequence, counter))) => {
                self.log.note(now(), format_args!("W {id} {sequence}"));
                Some((sequence, counter))
            }
            Ok(None) => {
                self.log.note(now(), format_args!("V {id}"));
                None
            }
            Err(error) => panic!("the store is always there: {error}"),
        }
    }

    async fn release(
        &self,
        id: u64,
        held: &Held,
        release: impl Future<Output = LockResult<Released>>,
    ) {
        // In this order, it held at least at that moment.
        let at = now();
        let believed = if held.is_held() { "held" } else { "lost" };
        self.log.note(at, format_args!("E {id} {believed}"));
        match release.await {
            Ok(outcome) => self.log.note(now(), format_args!("X {id} {outcome:?}")),
            Err(error) => self.log.note(now(), format_args!("X {id} Failed {}", one_line(&error))),
        }
    }
}

/// Longer than any fault.
const LONG: Duration = Duration::from_secs(60);

/// The request of a task.
struct Wanted<'a> {
    /// Its number in the log.
    id: u64,
    name: &'a str,
    mode: LockMode,
    /// Whether it is a try.
    tries: bool,
}

/// The same of permits.
struct WantedPermits<'a> {
    id: u64,
    name: &'a str,
    permits: u32,
    tries: bool,
    /// How long it holds.
    hold: Duration,
    /// The number of permits from the middle of the hold on.
    keeps: Option<u32>,
}

/// The form of the log.
fn word(mode: LockMode) -> char {
    if mode == LockMode::Write { 'w' } else { 'r' }
}

/// What a task holds: a lease of its own, or a share of its process's cached lock.
enum Held {
    Plain(Lease),
    Cached(LeaseWatch),
}

impl Held {
    fn word(&self) -> &'static str {
        match self {
            Held::Plain(_) => "own",
            Held::Cached(_) => "cached",
        }
    }

    fn token(&self) -> u64 {
        match self {
            Held::Plain(lease) => lease.token(),
            Held::Cached(watch) => watch.token(),
        }
    }

    fn is_held(&self) -> bool {
        match self {
            Held::Plain(lease) => lease.is_held(),
            Held::Cached(watch) => watch.is_held(),
        }
    }

    /// Until when it holds, by its own word. A hold never outlasts it.
    fn deadline(&self) -> Nanos {
        let at = now();
        let remaining = match self {
            Held::Plain(lease) => lease.remaining(),
            Held::Cached(watch) => watch.remaining(),
        };
        at + remaining.as_nanos() as u64
    }

    async fn lost(&self) {
        match self {
            Held::Plain(lease) => lease.lost().await,
            Held::Cached(watch) => watch.ended().await,
        }
    }
}

/// The cached handles of a task. A lock stays cached while a handle exists.
#[derive(Default)]
struct Handles(HashMap<String, CachedRwLock>);

impl Handles {
    fn of(&mut self, locks: &Locks, name: &str) -> LockResult<&CachedRwLock> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), locks.rwlock(name)?.cached()?);
        }
        Ok(&self.0[name])
    }

    /// Drops all of them from time to time: then the process releases the locks that no other task
    /// uses.
    fn forget_some(&mut self, random: &mut fastrand::Rng) {
        if random.u8(..) == 0 {
            self.0.clear();
        }
    }
}

/// Picks few names often, and many names seldom.
fn zipf(random: &mut fastrand::Rng, names: usize) -> usize {
    let place = ((names as f64 + 1.0).ln() * random.f64()).exp() as usize - 1;
    place.min(names - 1)
}

fn one_line(error: &rwlease::Error) -> String {
    format!("{error:?}").replace('\n', " ")
}

impl Orders {
    fn write(&self, log: &Path) -> Value {
        json!({
            "urls": self.urls, "store": self.store, "names": self.names, "groups": self.groups, "keepers": self.keepers, "semaphores": self.semaphores,
            "tasks": self.tasks, "cached": self.cached, "reads_percent": self.reads_percent, "replicas": self.replicas,
            "lease_us": self.lease.as_micros() as u64, "claim_us": self.claim.as_micros() as u64, "hold_us": self.hold.as_micros() as u64, "keep_us": self.keep.as_micros() as u64,
            "limit": self.limit, "seed": self.seed, "log": log,
        })
    }

    fn read(file: &Path) -> Result<(Orders, PathBuf)> {
        let said: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let number = |field: &str| said[field].as_u64().unwrap_or(0);
        let words = |field: &str| {
            let words = said[field].as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(String::from).collect()
        };
        let word = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
        let orders = Orders {
            urls: words("urls"),
            store: word("store"),
            names: words("names"),
            groups: number("groups") as usize,
            keepers: words("keepers"),
            semaphores: words("semaphores"),
            tasks: number("tasks") as usize,
            cached: number("cached") as usize,
            reads_percent: number("reads_percent") as u8,
            replicas: number("replicas") as u32,
            lease: Duration::from_micros(number("lease_us")),
            claim: Duration::from_micros(number("claim_us")),
            hold: Duration::from_micros(number("hold_us")),
            keep: Duration::from_micros(number("keep_us")),
            limit: said["limit"].as_u64(),
            seed: number("seed"),
        };
        Ok((orders, word("log").into()))
    }
}
