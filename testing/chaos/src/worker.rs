//! A process that takes locks: this program, started again with orders. It logs each event, and
//! ends when its standard input ends.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rwlease::guard::LeaseWatcher;
use rwlease::{
    CachedRwLock, Client, ErrorKind, Fsync, Lease, LockMode, ReleaseOutcome, Result as LockResult,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::history::{Log, Nanos, now};
use super::scenario::Load;
use super::store::{StoreClient, StoreWrite};
use testkit::{ConnectBuilder, Error, Result, register_child, unregister_child};

/// Names the file of the orders. Without it, this process is no worker.
const ORDERS: &str = "RWLEASE_CHAOS_WORKER";

/// The name of the test under which a program of tests is a worker.
pub const TEST: &str = "self_test::worker_process_takes_locks";

/// The interval at which a long hold checks whether its deadline has moved.
const LOOK: Duration = Duration::from_millis(100);
const MOVED: Nanos = 5_000_000;

/// The limit of each semaphore, and the number of tasks of each worker that use it.
pub const LIMIT: u32 = 5;
const TAKERS: usize = 2;

/// How often a worker logs the number of its tasks.
const COUNT: Duration = Duration::from_secs(1);

/// The orders of one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub urls: Vec<String>,
    /// The port to dial in place of one that a node announces, if its way there leads through a
    /// proxy.
    pub ports: Vec<(u16, u16)>,
    pub store: String,
    /// The locks of short holds, and the number of groups. A task uses every `groups`-th name.
    pub names: Vec<String>,
    pub groups: usize,
    /// The locks of the long holds, which are renewed: a task for each.
    pub keepers: Vec<String>,
    /// Semaphores: some tasks for each.
    pub semaphores: Vec<String>,
    pub load: Load,
    pub log: PathBuf,
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
    pub fn start(orders: &Orders, before: &[String]) -> Result<Worker> {
        let file = orders.log.with_extension("orders");
        std::fs::write(&file, serde_json::to_string(orders)?)?;
        let program = std::env::current_exe()?.into_os_string();
        let mut words = before.iter().map(std::ffi::OsString::from).chain([program]);
        let first = words.next().unwrap_or_default();
        let child = Command::new(first)
            .args(words)
            .args(["--exact", TEST, "--nocapture"])
            .env(ORDERS, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(orders.log.with_extension("err"))?)
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
        let orders = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        tokio::task::LocalSet::new().block_on(&runtime, work(orders))
    }))
}

async fn work(orders: Orders) -> Result {
    let load = &orders.load;
    let mut settings = Client::builder()
        .lease(load.lease)
        .claim_timeout(load.claim)
        .call_timeout(load.call_timeout)
        .min_replicas(load.replicas)
        .fsync(if load.fsync { Fsync::All } else { Fsync::None });
    if let ports @ [_, ..] = orders.ports.clone().as_slice() {
        let ports: HashMap<u16, u16> = ports.iter().copied().collect();
        settings = settings.address_translator(move |host, port| {
            (host.to_owned(), ports.get(&port).copied().unwrap_or(port))
        });
    }
    let bench = Rc::new(Bench {
        log: Log::create(&orders.log)?,
        locks: settings.connect_to(&orders.urls).await?,
        store: StoreClient::connect(&orders.store).await?,
        stop: Arc::default(),
        left: AtomicU64::new(orders.limit.unwrap_or(u64::MAX)),
        orders,
    });
    listen(&bench);
    tokio::task::spawn_local(count_tasks(bench.clone()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..bench.orders.load.tasks {
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
    let patience = bench.orders.load.call_timeout + bench.orders.load.lease;
    let left = bench.locks.shutdown(patience).await;
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

/// Logs how many tasks live in the runtime. Those of this worker are not among them, so they are
/// the client's.
async fn count_tasks(bench: Rc<Bench>) {
    let runtime = tokio::runtime::Handle::current();
    loop {
        bench.log.note(now(), format_args!("T {}", runtime.metrics().num_alive_tasks()));
        sleep(COUNT).await;
    }
}

struct Bench {
    orders: Orders,
    log: Log,
    locks: Client,
    store: StoreClient,
    stop: Arc<AtomicBool>,
    left: AtomicU64,
}

/// Tries to get a lock or waits for it, as wanted, and holds what it got.
macro_rules! hold {
    ($bench:ident, $wanted:ident, $attempt:expr, $request:expr, $kind:ident($lease:ident)) => {{
        let guard = match $wanted.tries {
            true => $attempt.await?,
            false => Some($request.timeout($bench.orders.load.timeout).await?),
        };
        let Some(guard) = guard else { return $bench.refused($wanted.id).await };
        $bench.hold($wanted, HeldLease::$kind(guard.$lease()), guard.release()).await;
    }};
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
        let mut handles = (number < orders.load.cached).then(Handles::default);
        while self.goes_on() {
            let name = zipf(&mut random, names) * orders.groups + group;
            let mode = if random.u8(..100) < orders.load.reads_percent {
                LockMode::Read
            } else {
                LockMode::Write
            };
            let hold = orders.load.hold.mul_f64(random.f64());
            let id = self.log.request(name, word(mode));
            let wanted = LockRequest {
                id,
                name: &orders.names[name],
                mode,
                tries: random.u8(..8) == 0,
                hold,
            };
            let taken = match &mut handles {
                Some(handles) => {
                    handles.forget_some(&mut random);
                    self.cached(&wanted, handles).await
                }
                None => self.plain(&wanted).await,
            };
            self.over(id, taken).await;
        }
    }

    async fn long_holds(self: Rc<Self>, number: usize) {
        let orders = &self.orders;
        let mut random = fastrand::Rng::with_seed(orders.seed.wrapping_sub(number as u64 + 1));
        while self.goes_on() {
            let hold = orders.load.keep.mul_f64(random.f64());
            let id = self.log.request(orders.names.len() + number, word(LockMode::Write));
            let name = &orders.keepers[number];
            let wanted = LockRequest { id, name, mode: LockMode::Write, tries: false, hold };
            let taken = self.lead(&wanted).await;
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
            let longest = if random.u8(..16) == 0 { orders.load.keep } else { orders.load.hold };
            let wanted = PermitRequest {
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

    async fn take_permits(&self, wanted: &PermitRequest<'_>) -> LockResult<()> {
        let semaphore = self.locks.semaphore(wanted.name, LIMIT)?;
        let guard = match wanted.tries {
            true => semaphore.try_acquire(wanted.permits).await?,
            false => {
                Some(semaphore.acquire(wanted.permits).timeout(self.orders.load.timeout).await?)
            }
        };
        let Some(mut guard) = guard else { return self.refused(wanted.id).await };
        let held = HeldLease::Plain(guard.clone());
        self.granted(wanted.id, &held);
        let mut kept = Ok(());
        if let Some(keeps) = wanted.keeps {
            self.stay(wanted.id, &held, wanted.hold / 2).await;
            self.log.note(now(), format_args!("K {} {keeps}", wanted.id));
            kept = guard.release_permits(wanted.permits - keeps).await;
        }
        self.stay(wanted.id, &held, wanted.hold / 2).await;
        self.release(wanted.id, &held, guard.release()).await;
        // The log has the outcome of the lease.
        kept.or_else(|error| if error.kind() == ErrorKind::LeaseLost { Ok(()) } else { Err(error) })
    }

    async fn over(&self, id: u64, taken: LockResult<()>) {
        if let Err(error) = taken {
            self.log.note(now(), format_args!("F {id} {:?} {}", error.kind(), one_line(&error)));
            // Requests that fail at once are not repeated without a pause.
            sleep(self.orders.load.pause).await;
        }
    }

    async fn plain(&self, wanted: &LockRequest<'_>) -> LockResult<()> {
        let lock = self.locks.rwlock(wanted.name)?;
        match wanted.mode {
            LockMode::Read => hold!(self, wanted, lock.try_read(), lock.read(), Plain(clone)),
            LockMode::Write => hold!(self, wanted, lock.try_write(), lock.write(), Plain(clone)),
        }
        Ok(())
    }

    /// Long holds are leads, and every worker is a candidate.
    async fn lead(&self, wanted: &LockRequest<'_>) -> LockResult<()> {
        let leader = self.locks.election(wanted.name)?;
        let lead = leader.campaign().timeout(self.orders.load.timeout).await?;
        self.hold(wanted, HeldLease::Plain(lead.clone()), lead.resign()).await;
        Ok(())
    }

    async fn cached(&self, wanted: &LockRequest<'_>, handles: &mut Handles) -> LockResult<()> {
        let lock = handles.of(&self.locks, wanted.name)?;
        match wanted.mode {
            LockMode::Read => hold!(self, wanted, lock.try_read(), lock.read(), Cached(watch)),
            LockMode::Write => hold!(self, wanted, lock.try_write(), lock.write(), Cached(watch)),
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

    async fn hold(
        &self,
        wanted: &LockRequest<'_>,
        held: HeldLease,
        release: impl Future<Output = LockResult<ReleaseOutcome>>,
    ) {
        self.granted(wanted.id, &held);
        match wanted.mode {
            LockMode::Read => {
                let _ = self.store.clone().read(wanted.name).await;
                self.stay(wanted.id, &held, wanted.hold).await;
            }
            LockMode::Write => self.write(wanted, &held).await,
        }
        self.release(wanted.id, &held, release).await;
    }

    async fn write(&self, &LockRequest { id, name, hold, .. }: &LockRequest<'_>, held: &HeldLease) {
        let write = StoreWrite { name, token: held.token(), hold: id };
        let mut store = self.store.clone();
        let entered = self.stored(id, store.enter(&write).await);
        self.stay(id, held, hold).await;
        // Writes even without the lock: the store must refuse it then.
        if let Some((_, counter)) = entered {
            let written = store.set(&write, counter + 1).await;
            self.stored(id, written.map(|sequence| sequence.map(|sequence| (sequence, 0))));
        }
    }

    fn granted(&self, id: u64, held: &HeldLease) {
        let (at, token) = (now(), held.token());
        let deadline = if held.is_held() { held.deadline() } else { at };
        self.log.note(at, format_args!("G {id} {token} {deadline} {}", held.word()));
    }

    /// Holds for a while, logs new deadlines, and stops if the lease is lost.
    async fn stay(&self, id: u64, held: &HeldLease, hold: Duration) {
        let until = now() + hold.as_nanos() as u64;
        let mut noted = held.deadline();
        while now() < until && !self.stop.load(Ordering::Relaxed) {
            let pause = Duration::from_nanos(until.saturating_sub(now())).min(LOOK);
            if timeout(pause, held.ended()).await.is_ok() {
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
        held: &HeldLease,
        release: impl Future<Output = LockResult<ReleaseOutcome>>,
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

/// The request of a task.
struct LockRequest<'a> {
    /// Its number in the log.
    id: u64,
    name: &'a str,
    mode: LockMode,
    /// Whether it is a try.
    tries: bool,
    /// How long it holds.
    hold: Duration,
}

/// The same of permits.
struct PermitRequest<'a> {
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
enum HeldLease {
    Plain(Lease),
    Cached(LeaseWatcher),
}

impl HeldLease {
    fn word(&self) -> &'static str {
        match self {
            HeldLease::Plain(_) => "own",
            HeldLease::Cached(_) => "cached",
        }
    }

    fn token(&self) -> u64 {
        match self {
            HeldLease::Plain(lease) => lease.fencing_token().map_or(0, u64::from),
            HeldLease::Cached(watch) => watch.fencing_token().get(),
        }
    }

    fn is_held(&self) -> bool {
        match self {
            HeldLease::Plain(lease) => lease.is_held(),
            HeldLease::Cached(watch) => watch.is_held(),
        }
    }

    /// Until when it holds, by its own word. A hold never outlasts it.
    fn deadline(&self) -> Nanos {
        let at = now();
        let remaining = match self {
            HeldLease::Plain(lease) => lease.remaining(),
            HeldLease::Cached(watch) => watch.remaining(),
        };
        at + remaining.as_nanos() as u64
    }

    async fn ended(&self) {
        match self {
            HeldLease::Plain(lease) => lease.ended().await,
            HeldLease::Cached(watch) => watch.ended().await,
        }
    }
}

/// The cached handles of a task. A lock stays cached while a handle exists.
#[derive(Default)]
struct Handles(HashMap<String, CachedRwLock>);

impl Handles {
    fn of(&mut self, locks: &Client, name: &str) -> LockResult<&CachedRwLock> {
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
