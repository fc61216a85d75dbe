//! One run: a cluster, the store, the workers with their history, and the faults.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::join_all;
use rwlease::{Client, Slot};
use serde::{Deserialize, Serialize};

use super::history::{History, Nanos, now, wall_clock_lead};
use super::ledger::{Change, Completion, Ledger};
use super::nemesis::Props;
use super::nemesis::restart::{Log, LogEnd};
use super::staying::Measured;
use super::store::Store;
use super::worker::{LIMIT, Orders, Worker};
use testkit::{Cluster, ConnectBuilder, Error, NetworkNamespace, PollLimit, Result};

/// The load of the workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    pub workers: usize,
    /// The tasks of each worker.
    pub tasks: usize,
    /// How many of them use cached handles.
    pub cached: usize,
    pub names: usize,
    /// Whether each task uses the locks of one shard, so that a failed shard does not stop all.
    pub by_shard: bool,
    /// Locks that the workers hold for a long time, one worker after the other.
    pub keepers: usize,
    /// Semaphores. Some tasks of every worker wait for their permits.
    pub semaphores: usize,
    pub reads_percent: u8,
    pub replicas: u32,
    /// Whether the masters and these replicas must have each grant and each renewal on disk.
    pub fsync: bool,
    pub log: Log,
    pub log_end: LogEnd,
    pub lease: Duration,
    /// The claim window of pushed grants: long where servers and workers share few processors. Each
    /// waiter that is gone delays the next one by as much.
    pub claim: Duration,
    pub hold: Duration,
    /// The maximum of a long hold.
    pub keep: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    /// The same of other calls, such as a release.
    pub call_timeout: Duration,
    /// The pause after a request that failed.
    pub pause: Duration,
}

/// How long a waiter may wait for a lock that nobody holds: a claim window for each waiter ahead of
/// it whose process is gone, and polls, on a busy machine.
const POLLS: Duration = Duration::from_secs(2);
const GONE_BEFORE: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

impl Load {
    pub fn wait_limit(&self) -> Nanos {
        let wait_limit = self.claim * GONE_BEFORE + POLLS;
        wait_limit.min(PATIENCE).as_nanos() as Nanos
    }
}

/// A fault of servers or workers, and the proof of it.
#[derive(Clone, Debug)]
pub struct Fault {
    pub what: String,
    pub at: Nanos,
    pub until: Nanos,
    /// The numbers of the locks that it struck.
    pub struck: Vec<usize>,
    /// What the servers reported afterwards.
    pub proof: String,
    /// The workers that cannot recover until it is over. Their requests need not succeed while it
    /// lasts.
    pub far: Vec<usize>,
    /// Requests for these locks need not succeed until then.
    pub out: Vec<usize>,
    pub out_until: Nanos,
}

#[derive(Debug)]
pub struct Scene {
    pub cluster: Cluster,
    pub history: History,
    pub faults: Vec<Fault>,
    /// Violations that a nemesis saw.
    pub wrong: Vec<String>,
    /// By their numbers in the history. Workers that have ended stay in the list.
    pub workers: Vec<Worker>,
    pub random: fastrand::Rng,
    pub load: Load,
    /// The names of all locks, by number: first the locks of short holds, then those of long holds,
    /// then the semaphores.
    pub names: Vec<String>,
    pub folder: PathBuf,
    orders: Orders,
    store: Store,
    ledger: Ledger,
    /// At the start.
    pub clock_lead: i64,
    /// The network of the other side, if the row has a partition.
    space: Option<NetworkNamespace>,
    /// What a fault that stays needs.
    pub props: Props,
    /// What was measured while such a fault stayed.
    pub measured: Option<Measured>,
}

impl Scene {
    pub async fn start(
        cluster: Cluster,
        urls: Vec<String>,
        space: Option<NetworkNamespace>,
        load: Load,
        seed: u64,
        folder: PathBuf,
    ) -> Result<Scene> {
        // The logs of a run before this one would be read as those of this one's workers.
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let store = Store::start().await?;
        let (names, groups) = if load.by_shard {
            (spread(&cluster, "n", load.names).await?, cluster.masters().await?.len())
        } else {
            ((0..load.names).map(|number| format!("n{number}")).collect(), 1)
        };
        let keepers = spread(&cluster, "k", load.keepers).await?;
        let semaphores = spread(&cluster, "p", load.semaphores).await?;
        let orders = Orders {
            urls,
            ports: Vec::new(),
            store: store.url(),
            names: names.clone(),
            groups,
            keepers: keepers.clone(),
            semaphores: semaphores.clone(),
            load: load.clone(),
            log: PathBuf::new(),
            limit: None,
            seed,
        };
        Ok(Scene {
            ledger: Ledger::open(&cluster, &folder.join("servers.log")).await?,
            clock_lead: wall_clock_lead(),
            cluster,
            history: History::default(),
            faults: Vec::new(),
            wrong: Vec::new(),
            workers: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            load,
            names: [names, keepers, semaphores].concat(),
            folder,
            orders,
            store,
            space,
            props: Props::default(),
            measured: None,
        })
    }

    /// Starts the workers of the load, each with its share of the requests if there is a limit.
    pub fn start_workers(&mut self, limit: Option<u64>) -> Result {
        self.orders.limit = limit.map(|limit| limit.div_ceil(self.load.workers as u64));
        let there = self.space.as_ref().map_or(Vec::new(), NetworkNamespace::before);
        for number in 0..self.load.workers {
            self.add_worker(if is_far(number) { &there } else { &[] })?;
        }
        Ok(())
    }

    /// The workers on the other side.
    pub fn far_workers(&self) -> Vec<usize> {
        (0..self.workers.len()).filter(|&number| is_far(number)).collect()
    }

    /// Starts one more worker, and returns its number. `before` goes before the command.
    pub fn add_worker(&mut self, before: &[String]) -> Result<usize> {
        let log = self.folder.join(format!("worker-{}.log", self.workers.len()));
        let mut orders = self.orders.clone();
        (orders.seed, orders.log) = (self.random.u64(..), log.clone());
        self.props.redirect(self.workers.len(), &self.cluster, &mut orders);
        self.workers.push(Worker::start(&orders, before)?);
        Ok(self.history.add(Some(log)))
    }

    /// The orders of a worker like the others, for locks of the store's server, which no fault
    /// affects.
    pub fn control_orders(&self) -> Orders {
        let names = 0..self.load.names / self.orders.groups.max(1);
        Orders {
            urls: vec![self.store.server().url()],
            names: names.map(|number| format!("control{number}")).collect(),
            groups: 1,
            keepers: Vec::new(),
            semaphores: Vec::new(),
            load: Load { replicas: 0, fsync: false, ..self.load.clone() },
            log: self.folder.join("control.log"),
            ..self.orders.clone()
        }
    }

    pub fn space(&self) -> Result<&NetworkNamespace> {
        self.space.as_ref().ok_or_else(|| Error::new("all are in one network"))
    }

    /// Records a fault, from `at` to now. Locks of long holds are left out: they do not show how
    /// soon a lock can be acquired again.
    pub fn fault(
        &mut self,
        what: impl Into<String>,
        at: Nanos,
        mut struck: Vec<usize>,
        proof: impl Into<String>,
    ) {
        struck.retain(|&name| name < self.orders.names.len());
        self.faults.push(Fault {
            what: what.into(),
            at,
            until: now(),
            struck,
            proof: proof.into(),
            far: Vec::new(),
            out: Vec::new(),
            out_until: 0,
        });
    }

    /// Records that requests for these locks did not have to succeed from the last fault until
    /// then.
    pub fn excuse(&mut self, out: Vec<usize>, until: Nanos) {
        if let Some(fault) = self.faults.last_mut() {
            (fault.out, fault.out_until) = (out, until);
        }
    }

    /// Records a change of the servers before it is made. Any other change makes the run void.
    pub fn order(&mut self, change: Change) {
        self.ledger.order(change);
    }

    /// Looks for changes of the servers since the last look that were not ordered.
    pub async fn settle(&mut self, ended: Completion) -> Result {
        self.ledger.settle(&self.cluster, ended).await
    }

    /// The changes of the servers that were not ordered, in words.
    pub fn unordered(&self) -> &[String] {
        self.ledger.unordered()
    }

    /// Copies the servers' logs to the run's folder, except those of servers in containers.
    pub fn keep_server_logs(&self) -> Result {
        let folder = self.folder.join("servers");
        std::fs::create_dir_all(&folder)?;
        let nodes = self.cluster.nodes().iter().enumerate();
        let servers = nodes.map(|(number, node)| (format!("node-{number}.log"), node));
        let servers = servers.chain([("store.log".to_owned(), self.store.server())]);
        for (name, server) in servers.filter(|(_, server)| server.container().is_none()) {
            std::fs::copy(server.folder().join("server.log"), folder.join(name))?;
        }
        Ok(())
    }

    /// The numbers of all locks.
    pub fn all(&self) -> Vec<usize> {
        (0..self.names.len()).collect()
    }

    /// The numbers of the locks whose slots a node has.
    pub async fn names_at(&self, node: usize) -> Result<Vec<usize>> {
        let view = self.cluster.view().await?;
        let id = self.cluster.id(node);
        let is_there = |number: &usize| view.master_of(self.slot(*number)) == Some(id);
        Ok((0..self.names.len()).filter(is_there).collect())
    }

    pub fn slot(&self, name: usize) -> u16 {
        Slot::of(key(&self.names[name])).get()
    }

    /// A master with slots.
    pub async fn some_master(&mut self) -> Result<usize> {
        let masters = self.cluster.masters().await?;
        self.random.choice(masters).ok_or_else(|| Error::new("there is no master"))
    }

    /// The only replica of a master that is gone, which must take over.
    pub async fn heir(&self, master: usize) -> Result<usize> {
        match self.cluster.replicas_of(master).await?[..] {
            [heir] => Ok(heir),
            ref replicas => {
                Err(Error::new(format!("node {master} has the replicas {replicas:?}, not one")))
            }
        }
    }

    /// The epoch of a node, as the nodes say.
    pub async fn epoch(&self, node: usize) -> Result<u64> {
        let view = self.cluster.view().await?;
        let entry = view.0.get(self.cluster.id(node));
        Ok(entry.map_or(0, |entry| entry.epoch))
    }

    /// Waits until a request from now on was granted on each shard (or on any lock, without
    /// shards).
    pub async fn advance(&mut self) -> Result {
        self.granted_to(None).await
    }

    /// Waits for the same of each living worker.
    pub async fn all_advance(&mut self) -> Result {
        for worker in self.living() {
            self.granted_to(Some(worker)).await?;
        }
        Ok(())
    }

    async fn granted_to(&mut self, worker: Option<usize>) -> Result {
        let since = now();
        let groups = self.orders.groups;
        let wait_limit = PollLimit::limited("grants on every shard", Duration::from_secs(120));
        let mut seen = vec![false; groups];
        loop {
            self.history.read()?;
            for hold in self.history.recent(since) {
                let is_theirs = worker.is_none_or(|worker| hold.worker == worker);
                if is_theirs && hold.granted.is_some() && hold.name < self.orders.names.len() {
                    seen[hold.name % groups] = true;
                }
            }
            if seen.iter().all(|seen| *seen) {
                return Ok(());
            }
            self.check_workers()?;
            wait_limit.pause(format!("of worker {worker:?}: {seen:?}")).await?;
        }
    }

    /// Fails if a worker ended with an error and was not killed.
    pub fn check_workers(&mut self) -> Result {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if self.history.when_killed(number).is_none() && worker.ended()? == Some(false) {
                let said =
                    std::fs::read_to_string(self.folder.join(format!("worker-{number}.err")))?;
                return Err(Error::new(format!("worker {number} ended: {said}")));
            }
        }
        Ok(())
    }

    /// The workers that were not killed.
    pub fn living(&self) -> Vec<usize> {
        let living = |number: &usize| self.history.when_killed(*number).is_none();
        (0..self.workers.len()).filter(living).collect()
    }

    /// Whether all workers have ended by themselves.
    pub fn all_ended(&mut self) -> Result<bool> {
        let mut all = true;
        for worker in &mut self.workers {
            all &= worker.ended()?.is_some();
        }
        Ok(all)
    }

    /// Tells the workers to end, and reads the rest of their logs.
    pub async fn stop_workers(&mut self) -> Result {
        for worker in &mut self.workers {
            worker.stop();
        }
        let wait_limit = PollLimit::limited("the workers to end", Duration::from_secs(180));
        while !self.all_ended()? {
            wait_limit.pause("some work").await?;
        }
        self.history.read()?;
        self.check_workers()
    }

    /// The orphans: locks with holders or waiters although all workers have released theirs and
    /// have ended.
    pub async fn orphans(&self) -> Result<Vec<String>> {
        let locks = Client::builder().connect_to(&self.cluster.urls()).await?;
        let mut orphans = Vec::new();
        for some in self.names.chunks(256) {
            let looks = some.iter().map(async |name: &String| {
                if self.orders.semaphores.contains(name) {
                    let status = locks.semaphore(name, LIMIT)?.status().await?;
                    let is_orphan = status.in_use > 0 || status.waiter_count > 0;
                    return Ok(is_orphan.then(|| format!("{name}: {status:?}")));
                }
                let status = locks.rwlock(name)?.status().await?;
                let is_orphan = status.is_locked() || status.waiter_count > 0;
                Ok::<_, Error>(is_orphan.then(|| format!("{name}: {status:?}")))
            });
            for looked in join_all(looks).await {
                orphans.extend(looked?);
            }
        }
        Ok(orphans)
    }

    /// The locks that cannot be acquired a lease after all workers have ended, with the reason.
    pub async fn left_behind(&self) -> Result<Vec<String>> {
        let locks = Client::builder().connect_to(&self.cluster.urls()).await?;
        let patient = self.load.lease + Duration::from_secs(10);
        let mut left = Vec::new();
        for some in self.names.chunks(256) {
            let tries = some.iter().map(async |name: &String| {
                if self.orders.semaphores.contains(name) {
                    let semaphore = locks.semaphore(name, LIMIT)?;
                    return semaphore.acquire(LIMIT).timeout(patient).await?.release().await;
                }
                locks.rwlock(name)?.write().timeout(patient).await?.release().await
            });
            let named = some.iter().zip(join_all(tries).await);
            left.extend(named.filter_map(|(name, had)| Some(format!("{name}: {:?}", had.err()?))));
        }
        Ok(left)
    }

    /// The counters of the store that lack writes.
    pub async fn lost_updates(&self) -> Result<Vec<String>> {
        self.store.behind().await
    }
}

/// Names of locks, the same number for each master, in turn.
async fn spread(cluster: &Cluster, start: &str, count: usize) -> Result<Vec<String>> {
    let view = cluster.view().await?;
    let masters = cluster.masters().await?;
    let mut names = Vec::new();
    let mut number = 0;
    while names.len() < count {
        let turn = cluster.id(masters[names.len() % masters.len()]);
        let name = format!("{start}{number}");
        if view.master_of(Slot::of(key(&name)).get()) == Some(turn) {
            names.push(name);
        }
        number += 1;
    }
    Ok(names)
}

/// Half of the workers, if the row has a partition.
fn is_far(worker: usize) -> bool {
    worker.is_multiple_of(2)
}

fn key(name: &str) -> String {
    format!("rwlease:{name}")
}
