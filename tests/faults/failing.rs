//! Masters that die or are stopped under load: how many acknowledged writes are lost, with and
//! without the confirmation of a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use rwlease::{Locks, RenewalPolicy, WriteGuard};
use tokio::time::{Instant, sleep};

use crate::support::{Cluster, ConnectBuilder, Fields, Server, expand_fields};

const LEASE: Duration = Duration::from_secs(120);
const TASKS: usize = 12;

/// How often each fault happens.
fn rounds() -> usize {
    std::env::var("RWLEASE_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap())
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Kill,
    /// Stopped, replaced by its replica, and resumed.
    Pause,
}

/// Tasks that acquire locks of one shard, keep them, and renew them.
struct Load {
    locks: Locks,
    replicas: u32,
    stop: AtomicBool,
    /// Set at the fault. Renewals stop then, because they would restore lost leases.
    fault: AtomicBool,
    next: AtomicUsize,
}

impl Load {
    async fn new(cluster: &Cluster, replicas: u32, fault: Fault) -> Arc<Load> {
        let mut builder = Locks::builder();
        if fault == Fault::Pause {
            // Waits for the stopped master, to get its answers when it resumes.
            builder = builder.response_timeout(Duration::from_secs(20));
        }
        Arc::new(Load {
            locks: builder.connect_to(&cluster.urls()).await.unwrap(),
            replicas,
            stop: AtomicBool::new(false),
            fault: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        })
    }

    async fn run(self: Arc<Self>) -> Vec<WriteGuard> {
        let mut held: Vec<WriteGuard> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // The hash tag selects the shard whose master fails.
            let lock = self.locks.rwlock(format!("{}-{number}{{a}}", self.replicas)).unwrap();
            let request =
                lock.write().lease(LEASE).renewal(RenewalPolicy::Manual).replicas(self.replicas);
            if let Ok(guard) = request.timeout(Duration::from_secs(30)).await {
                held.push(guard);
            }
            if !self.fault.load(Ordering::Relaxed) && held.len() > 4 {
                let _ = held[fastrand::usize(..held.len())].renew().await;
            }
        }
        held
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_confirmed_by_a_replica_survives_its_master() {
    let cluster = Cluster::start().await.unwrap();
    let mut lost = [[0; 2]; 2];
    let mut acknowledged = [[0; 2]; 2];
    for fault in [Fault::Kill, Fault::Pause] {
        for _ in 0..rounds() {
            for (replicas, seen) in round(&cluster, fault).await.into_iter().enumerate() {
                acknowledged[fault as usize][replicas] += seen.acknowledged;
                lost[fault as usize][replicas] += seen.lost;
            }
        }
        let (lost, of) = (lost[fault as usize], acknowledged[fault as usize]);
        println!(
            "{fault:?}: lost without replicas {} of {}, with one {} of {}",
            lost[0], of[0], lost[1], of[1]
        );
    }
    assert_eq!([lost[0][1], lost[1][1]], [0, 0], "confirmed by a replica, and lost");
    assert!(acknowledged.iter().flatten().all(|&some| some > 0));
}

struct Seen {
    acknowledged: usize,
    lost: usize,
}

async fn round(cluster: &Cluster, fault: Fault) -> [Seen; 2] {
    let slot = cluster.slot_of("a").await.unwrap();
    let old = cluster.master_of(slot).await.unwrap();
    let loads = [Load::new(cluster, 0, fault).await, Load::new(cluster, 1, fault).await];
    let start = |load: &Arc<Load>| join_all((0..TASKS).map(|_| tokio::spawn(load.clone().run())));
    let working = [tokio::spawn(start(&loads[0])), tokio::spawn(start(&loads[1]))];
    sleep(Duration::from_millis(500)).await;
    loads.iter().for_each(|load| load.fault.store(true, Ordering::Relaxed));
    strike(cluster, fault, slot, old).await;
    sleep(Duration::from_millis(500)).await;
    loads.iter().for_each(|load| load.stop.store(true, Ordering::Relaxed));
    let new = cluster.node(cluster.master_of(slot).await.unwrap());
    let mut seen = Vec::new();
    for working in working {
        let held = working.await.unwrap().into_iter().flat_map(Result::unwrap).collect();
        seen.push(judge(new, held).await);
    }
    for load in loads {
        load.locks.shutdown(Duration::from_secs(20)).await;
    }
    seen.try_into().unwrap_or_else(|_| unreachable!())
}

async fn strike(cluster: &Cluster, fault: Fault, slot: u16, old: usize) {
    match fault {
        Fault::Kill => {
            cluster.node(old).kill().unwrap();
            cluster.new_master(slot, old).await.unwrap();
            cluster.node(old).restart().await.unwrap();
        }
        Fault::Pause => {
            cluster.node(old).freeze().unwrap();
            cluster.new_master(slot, old).await.unwrap();
            cluster.node(old).thaw().unwrap();
        }
    }
    cluster.wait_for_agreement().await.unwrap();
}

/// Compares the guards with the state of the new master.
async fn judge(master: &Server, held: Vec<WriteGuard>) -> Seen {
    let mut connection = master.connect().await.unwrap();
    let mut seen = Seen { acknowledged: 0, lost: 0 };
    for guard in held {
        let start = Instant::now();
        let here = guard.remaining();
        if here.is_zero() {
            continue;
        }
        seen.acknowledged += 1;
        let there = at_server(&mut connection, guard.name(), guard.token()).await;
        if there.is_none_or(|there| here > there + start.elapsed()) {
            seen.lost += 1;
        }
    }
    seen
}

/// The remaining lease at the server, if the server has a record of this token.
async fn at_server(
    connection: &mut MultiplexedConnection,
    name: &str,
    token: u64,
) -> Option<Duration> {
    let mut both = redis::pipe();
    both.cmd("TIME").cmd("HGETALL").arg(format!("rwlease:{name}"));
    let ((seconds, micros), read): ((u64, u64), Fields) =
        both.query_async(connection).await.unwrap();
    let record = expand_fields(&read).unwrap().remove("writer")?;
    let now = Duration::from_micros(seconds * 1_000_000 + micros);
    let deadline = Duration::from_millis(record.get(1..14)?.parse().ok()?);
    (record.get(14..30)?.parse() == Ok(token)).then(|| deadline.saturating_sub(now))
}
