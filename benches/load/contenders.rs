//! Who takes part.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use rwlease::{Locks, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
use tokio::sync::Mutex as AsyncMutex;

use crate::common::{Bare, Kind, SameScripts, SetNx, Target};
use crate::generator::{Run, closed, open};
use crate::lock::Lock;
use crate::peers::Peers;
use crate::support::{Backend, Result};

/// The floor of each client crate, and what the ratios are to.
pub const SET: &str = "SET NX PX";
pub const SCRIPTS: &str = "same scripts";

const PEERS: [&str; 2] = ["rslock", "rds_lock"];
const PEERS_KEY: &str = "{load}theirs";
/// A peer that polls has hardly begun when a turn of the others is over.
const SLOWER: u32 = 4;

/// What is done with how many locks.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub tasks: usize,
    pub locks: usize,
    pub rate: Option<f64>,
    pub time: Duration,
}

pub struct Contender {
    pub name: String,
    pub run: Box<dyn Fn(Work) -> BoxFuture<'static, Run> + Send + Sync>,
}

/// The clients of all.
pub struct Field {
    clients: Vec<(Backend, Locks, Arc<Bare>)>,
    peers: Option<Arc<AsyncMutex<Peers>>>,
}

impl Field {
    pub async fn enter(target: &Target, alone: bool) -> Result<Field> {
        let mut clients = Vec::new();
        for backend in [Backend::Redis, Backend::Fred] {
            let locks = backend.connect(Locks::builder(), &target.urls()).await?;
            clients.push((backend, locks, Bare::connect(backend, target).await));
        }
        let peers = match alone {
            true => None,
            false => {
                let owner = target.owner(target.slot_of(PEERS_KEY).await?).await?;
                let peers = Peers::start(&target.node(owner).url(), PEERS_KEY).await?;
                Some(Arc::new(AsyncMutex::new(peers)))
            }
        };
        Ok(Field { clients, peers })
    }

    /// The locks of this library, by each backend.
    pub fn ours(&self, mix: Mix) -> Vec<Contender> {
        let each = self.clients.iter().map(|(backend, locks, _)| {
            let locks = locks.clone();
            contender(format!("rwlease {}", name_of(*backend)), move |number| {
                Ours(locks.rwlock(format!("load:{number}")).expect("a name"), mix)
            })
        });
        each.collect()
    }

    /// The scripts of a read or a write by the bare clients, named after the contender whose floor they are.
    pub fn floors(&self, kind: Kind) -> Vec<Contender> {
        let mut all = Vec::new();
        for (backend, _, bare) in &self.clients {
            let (scripts, set, name) = (bare.clone(), bare.clone(), name_of(*backend));
            all.push(contender(format!("{SCRIPTS}, {name}"), move |number| {
                SameScripts(scripts.clone(), kind, format!("scripts:{number}").into())
            }));
            all.push(contender(format!("{SET}, {name}"), move |number| {
                SetNx(set.clone(), format!("set:{number}").into())
            }));
        }
        all
    }

    pub fn published(&self) -> Contender {
        let bare = self.clients[0].2.clone();
        contender("published hash, redis".into(), move |number| {
            SameScripts(bare.clone(), Kind::Published, format!("published:{number}").into())
        })
    }

    pub fn mutex(&self) -> Contender {
        let locks = self.clients[0].1.clone();
        contender("rwlease Mutex, redis".into(), move |number| {
            Plain(locks.mutex(format!("mutex:{number}")).expect("a name"))
        })
    }

    /// The locks of others. All of theirs are in one slot, since they cannot follow more.
    pub fn peers(&self) -> Vec<Contender> {
        let Some(peers) = &self.peers else { return Vec::new() };
        let each = PEERS.map(|peer| {
            let peers = peers.clone();
            let run = move |work: Work| {
                let peers = peers.clone();
                async move {
                    let waits = work.locks < work.tasks;
                    let time = if waits { work.time * SLOWER } else { work.time };
                    let pairs = peers.lock().await.pairs(peer, work.locks, work.tasks, time).await;
                    let (elapsed, pairs) = pairs.expect("no answer of the peers");
                    Run {
                        elapsed,
                        pairs,
                        cpu: None,
                    }
                }
                .boxed()
            };
            Contender {
                name: peer.into(),
                run: Box::new(run),
            }
        });
        each.into()
    }
}

fn contender<L: Lock>(name: String, lock: impl Fn(usize) -> L + Send + Sync + 'static) -> Contender {
    let run = move |work: Work| {
        let locks: Vec<L> = (0..work.locks).map(&lock).collect();
        async move {
            let before = cpu_time();
            let run = match work.rate {
                Some(rate) => open(&locks, rate, work.time).await,
                None => closed(&locks, work.tasks, work.time).await,
            };
            Run {
                cpu: Some(cpu_time() - before),
                ..run
            }
        }
        .boxed()
    };
    Contender {
        name,
        run: Box::new(run),
    }
}

/// What this process has used of the processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn name_of(backend: Backend) -> String {
    format!("{backend:?}").to_lowercase()
}

/// How many of a hundred read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix(pub u8);

#[derive(Clone)]
struct Ours(RwLock, Mix);

enum Held {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Lock for Ours {
    type Held = Held;

    async fn take(&self) -> Held {
        if fastrand::u8(..100) < self.1.0 {
            Held::Read(self.0.read().await.expect("not taken"))
        } else {
            Held::Write(self.0.write().await.expect("not taken"))
        }
    }

    async fn release(held: Held) {
        let released = match held {
            Held::Read(guard) => guard.release().await,
            Held::Write(guard) => guard.release().await,
        };
        released.expect("not released");
    }
}

#[derive(Clone)]
struct Plain(Mutex);

impl Lock for Plain {
    type Held = MutexGuard;

    async fn take(&self) -> MutexGuard {
        self.0.lock().await.expect("not taken")
    }

    async fn release(held: MutexGuard) {
        held.release().await.expect("not released");
    }
}
