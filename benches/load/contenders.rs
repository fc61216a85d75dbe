//! The contenders of the bench.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::{Client, SetNxMutex, SetNxMutexGuard};
use tokio::sync::Mutex as AsyncMutex;

use common::{
    BaselineClient, BenchCluster, OtherLibraries, ReadPercent, RwleaseLock, ScriptPair,
    ScriptsOnly, SetNx, processor_time,
};
use load::{LoadRun, Lock, are_shared, closed, open};
use testkit::{Backend, Result};

/// The floors of each bare client, and the bases of the ratios.
pub const SET: &str = "SET NX PX";
pub const SCRIPTS: &str = "same scripts";

pub const MUTEX: &str = "rwlease SetNxMutex, native";

/// The prefix of the names of our locks.
const NAME: &str = "load";

/// The other libraries: `rslock` has no reads, `rds_lock` has.
pub const RSLOCK: &str = "rslock";
pub const RDS_LOCK: &str = "rds_lock";
const PEERS_KEY: &str = "theirs";
/// The factor for the turns of peers with shared locks. A peer that polls has hardly begun when a
/// turn of the others is over.
pub const PEER_TIME_FACTOR: u32 = 4;

/// The work, and the number of locks.
#[derive(Clone, Copy, Debug)]
pub struct LoadSpec {
    pub tasks: usize,
    pub locks: usize,
    pub rate: Option<f64>,
    pub time: Duration,
}

impl LoadSpec {
    /// Whether tasks may wait for one another. (In an open loop they do not: each pair has its own
    /// lock.)
    pub fn is_contended(&self) -> bool {
        self.rate.is_none() && are_shared(self.locks, self.tasks)
    }
}

pub struct Contender {
    pub name: String,
    pub run: Box<dyn Fn(LoadSpec) -> BoxFuture<'static, LoadRun> + Send + Sync>,
}

impl Contender {
    pub fn new<F>(
        name: impl Into<String>,
        run: impl Fn(LoadSpec) -> F + Send + Sync + 'static,
    ) -> Contender
    where
        F: Future<Output = LoadRun> + Send + 'static,
    {
        Contender { name: name.into(), run: Box::new(move |work| run(work).boxed()) }
    }
}

/// The clients of all contenders.
pub struct Contenders {
    clients: Vec<(Backend, Client)>,
    /// The client crates alone, and a minimal connection.
    bare: Vec<(Backend, Arc<BaselineClient>)>,
    peers: Option<Arc<AsyncMutex<OtherLibraries>>>,
}

impl Contenders {
    pub async fn connect(target: &BenchCluster, alone: bool) -> Result<Contenders> {
        let (mut clients, mut bare) = (Vec::new(), Vec::new());
        for backend in [Backend::Native, Backend::Redis, Backend::Fred] {
            clients.push((backend, backend.connect(Client::builder(), &target.urls()).await?));
        }
        for backend in [Backend::Redis, Backend::Native, Backend::Fred] {
            bare.push((backend, BaselineClient::connect(backend, target).await));
        }
        let peers = match alone {
            true => None,
            false => {
                let peers = OtherLibraries::start(&target.node(0).url(), PEERS_KEY).await?;
                Some(Arc::new(AsyncMutex::new(peers)))
            }
        };
        Ok(Contenders { clients, bare, peers })
    }

    /// The locks of this library, over each backend.
    pub fn rwlease_contenders(&self, mix: ReadPercent) -> Vec<Contender> {
        let each = self.clients.iter().map(|(backend, locks)| {
            let locks = locks.clone();
            contender(format!("rwlease {}", name_of(*backend)), move |number| {
                RwleaseLock(locks.rwlock(format!("{NAME}:{number}")).expect("a name"), mix)
            })
        });
        each.collect()
    }

    /// The floors of a read or a write, by the bare clients. Each has the name of its backend.
    pub fn floors(&self, kind: ScriptPair) -> Vec<Contender> {
        let mut all = Vec::new();
        for (backend, bare) in &self.bare {
            let (scripts, set, name) = (bare.clone(), bare.clone(), name_of(*backend));
            all.push(contender(format!("{SCRIPTS}, {name}"), move |number| {
                ScriptsOnly(scripts.clone(), kind, key_in_slot_of("scripts", number).into())
            }));
            all.push(contender(format!("{SET}, {name}"), move |number| {
                SetNx(set.clone(), key_in_slot_of("set", number).into())
            }));
        }
        all
    }

    pub fn published(&self) -> Contender {
        let bare = self.bare[0].1.clone();
        contender("published hash, redis".into(), move |number| {
            ScriptsOnly(
                bare.clone(),
                ScriptPair::Published,
                key_in_slot_of("published", number).into(),
            )
        })
    }

    pub fn mutex(&self) -> Contender {
        let locks = self.clients[0].1.clone();
        contender(MUTEX.into(), move |number| {
            SetNxLock(locks.set_nx_mutex(key_in_slot_of("mutex", number)).expect("a name"))
        })
    }

    /// The locks of other libraries, on all masters like ours.
    pub fn peers(&self, mix: ReadPercent) -> Vec<Contender> {
        let Some(peers) = &self.peers else {
            return Vec::new();
        };
        let able = match mix {
            ReadPercent(100) => vec![RDS_LOCK],
            _ => vec![RSLOCK, RDS_LOCK],
        };
        let each = able.into_iter().map(|peer| {
            let peers = peers.clone();
            Contender::new(peer, move |work| {
                let (peers, order) = (peers.clone(), order(work, mix));
                async move {
                    let run = peers.lock().await.run(peer, &order).await;
                    run.expect("no answer of the peers")
                }
            })
        });
        each.collect()
    }
}

/// The order to the package of the other locks.
fn order(work: LoadSpec, ReadPercent(reads): ReadPercent) -> String {
    let time = if work.is_contended() { work.time * PEER_TIME_FACTOR } else { work.time };
    let (locks, ms) = (work.locks, time.as_millis());
    match work.rate {
        Some(rate) => format!("due {locks} {rate} {reads} {ms}"),
        None => format!("pairs {locks} {} {reads} {ms}", work.tasks),
    }
}

/// A key in the slot of our lock with this number.
fn key_in_slot_of(prefix: &str, number: usize) -> String {
    format!("{prefix}:{{rwlease:{NAME}:{number}}}")
}

fn contender<L: Lock>(
    name: String,
    lock: impl Fn(usize) -> L + Send + Sync + 'static,
) -> Contender {
    Contender::new(name, move |work| {
        let locks: Arc<[L]> = (0..work.locks).map(&lock).collect();
        async move {
            let before = processor_time();
            let run = match work.rate {
                Some(rate) => open(&locks, rate, work.time).await,
                None => closed(&locks, work.tasks, work.time).await,
            };
            LoadRun { cpu: Some(processor_time() - before), ..run }
        }
    })
}

fn name_of(backend: Backend) -> String {
    format!("{backend:?}").to_lowercase()
}

#[derive(Clone)]
struct SetNxLock(SetNxMutex);

impl Lock for SetNxLock {
    type Held = SetNxMutexGuard;

    async fn take(&self) -> SetNxMutexGuard {
        self.0.lock().await.expect("not taken")
    }

    async fn release(held: SetNxMutexGuard) {
        let _ = held.release().await.expect("not released");
    }
}
