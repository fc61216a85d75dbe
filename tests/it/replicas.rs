//! What `replicas(n)` confirms is at n replicas, on every server, even when an answer was lost and
//! the call is sent again.

mod by_default;
mod fsync;

use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use futures::future::try_join_all;
use oracle::Holder;
use rwlease::{Client, Error, ErrorKind, Lease, LeaseState, RenewalPolicy, RwLock, WriteGuard};
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, CutPoint, PollLimit, Proxy, ProxyFlow,
    StandaloneServer, connect, decode_lock, lock_hash, wait_renewed,
};

// No test takes `LONG`, so the client sends nothing by itself for leases of that length.
use crate::fixture::{LONG, Record, eventually, in_task, soon};

/// How much later a slow request arrives than others.
const SLOW: Duration = Duration::from_secs(1);

/// A master with one replica, and a client of the master whose connections can be cut.
struct Stage {
    master: StandaloneServer,
    replica: StandaloneServer,
    proxy: Proxy,
    locks: Client,
}

impl Stage {
    async fn new() -> Stage {
        let master = StandaloneServer::start().await.unwrap();
        let replica = master.start_replica().await.unwrap();
        let proxy = Proxy::start(&master).await.unwrap();
        let settings = Client::builder().response_timeout(10 * SLOW);
        let locks = settings.connect_to(&[proxy.url()]).await.unwrap();
        Stage { master, replica, proxy, locks }
    }

    /// Waits until the replica confirms what was written before.
    async fn in_step(&self) {
        self.master.wait_for_replica().await.unwrap();
    }

    fn freeze(&self) {
        self.replica.freeze().unwrap();
    }

    /// Runs a call, and loses its first answer with the connection. The client then sends the call
    /// again on a new connection.
    async fn losing_the_answer<T>(&self, call: impl Future<Output = T>) -> T {
        let lost = self.proxy.trap("WAIT", CutPoint::AfterIt);
        let outcome = call.await;
        lost.await.expect("an answer was lost");
        outcome
    }

    /// The writer's record of the lock `a` at the master.
    async fn record(&self) -> Holder {
        lock_hash(&self.master, "rwlease:a").await.unwrap().writer.expect("it is written")
    }

    /// Takes a lock, at first and after a lost answer, while the replica is stopped, and after it
    /// goes on.
    async fn take_repeatedly<G: Deref<Target = Lease> + Debug>(
        &self,
        take: impl AsyncFn() -> Result<G, Error>,
        is_locked: impl AsyncFn() -> Result<bool, Error>,
    ) {
        let free = async || eventually("it is free", async || !is_locked().await.unwrap()).await;
        drop(confirmed(&take).await); // the server knows the scripts from here on
        free().await;
        self.freeze();
        must_be_unconfirmed(self.losing_the_answer(take()).await);
        free().await;
        self.replica.thaw().unwrap();
        self.in_step().await;
        let held = confirmed(async || self.losing_the_answer(take()).await).await;
        assert!(held.is_held(), "with the replica in step it is");
        drop(held);
        free().await;
    }
}

/// Repeats a request until the replica confirms it: on a busy machine a replica that works can be
/// later than `WAIT` waits.
async fn confirmed<T>(request: impl AsyncFn() -> Result<T, Error>) -> T {
    let wait_limit = PollLimit::new("a confirmed request");
    loop {
        match request().await {
            Ok(done) => return done,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                wait_limit.pause("it is not confirmed").await.unwrap();
            }
        }
    }
}

fn must_be_unconfirmed<T: Debug>(outcome: Result<T, Error>) {
    let error = outcome.expect_err("no replica has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("0 of the 1 requested replicas"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_fenced_set_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a{1}").unwrap();
    let guard = lock.write().lease(LONG).await.unwrap();
    let value = lock.fenced_value("v{1}").unwrap().min_replicas(1);
    let writer = value.writer(&guard).unwrap();
    confirmed(async || writer.set("0").await).await; // the server knows the scripts from here on
    confirmed(async || writer.get().await).await;
    stage.freeze();
    must_be_unconfirmed(stage.losing_the_answer(writer.set("1")).await);
    must_be_unconfirmed(stage.losing_the_answer(writer.get()).await);
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    stage.losing_the_answer(writer.set("2")).await.unwrap();
    assert_eq!(stage.losing_the_answer(writer.get()).await.unwrap(), Some(b"2".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_acquire_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let (lock, mutex) = (stage.locks.rwlock("a").unwrap(), stage.locks.set_nx_mutex("m").unwrap());
    let write = async || lock.write().lease(LONG).min_replicas(1).await;
    stage.take_repeatedly(write, async || lock.is_locked().await).await;
    let read = async || lock.read().lease(LONG).min_replicas(1).await;
    stage.take_repeatedly(read, async || lock.is_locked().await).await;
    let locked = async || mutex.lock().lease(LONG).min_replicas(1).await;
    stage.take_repeatedly(locked, async || mutex.is_locked().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_upgrade_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let read = || lock.read().lease(LONG).min_replicas(1).into_future();
    // The server knows the scripts from here on.
    let upgraded = confirmed(async || read().await?.upgrade().await.map_err(Error::from)).await;
    let _ = upgraded.release().await.unwrap();
    let reading = confirmed(async || read().await).await;
    stage.freeze();
    let refused = stage.losing_the_answer(reading.upgrade().into_future()).await;
    let (error, reading) = refused.expect_err("no replica has it").into_parts();
    must_be_unconfirmed::<()>(Err(error));
    let reads = async || !Record::of(&stage.master, "a").await.is_written();
    eventually("it reads again", reads).await;
    assert!(reading.is_held());
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    let writing = stage.losing_the_answer(reading.upgrade().into_future()).await;
    assert!(writing.unwrap().is_held(), "with the replica in step it is");
}

/// Each renewal requests the end of the longest hold. A renewal that takes longer on its way makes
/// the lease a little longer than the next renewal requests, so the next one changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn renew_without_a_change_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let request = || lock.write().lease(LONG).max_hold(LONG).renewal(RenewalPolicy::Manual);
    let written = confirmed(async || request().min_replicas(1).await).await;
    let mutex = stage.locks.set_nx_mutex("m").unwrap();
    let request = || mutex.lock().lease(LONG).max_hold(LONG).renewal(RenewalPolicy::Manual);
    let locked = confirmed(async || request().min_replicas(1).await).await;
    let leases: [&Lease; 2] = [&written, &locked];
    for lease in leases {
        confirmed(async || lease.renew().await).await;
    }
    stage.freeze();
    for lease in leases {
        stage.proxy.requests(ProxyFlow::Slow(SLOW));
        must_be_unconfirmed(lease.renew().await);
        stage.proxy.requests(ProxyFlow::Open);
        let record = stage.record().await;
        stage.proxy.cut();
        must_be_unconfirmed(lease.renew().await);
        assert_eq!(stage.record().await, record, "it changed nothing");
    }
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    for lease in leases {
        confirmed(async || lease.renew().await).await;
        assert_eq!(lease.state(), LeaseState::Held);
    }
}

const LEASE: Duration = Duration::from_secs(3);

/// A cluster whose replicas do not take over, and the shard of the lock `a`.
struct Shard {
    cluster: Cluster,
    locks: Client,
    master: usize,
    replica: usize,
}

impl Shard {
    async fn new() -> Shard {
        let shape = ClusterConfig::of(3, 1).line("cluster-replica-no-failover yes");
        let cluster = Cluster::start_with(shape).await.unwrap();
        let locks = connect(&cluster.urls()).await.unwrap();
        let slot = locks.rwlock("a").unwrap().slot().get();
        let master = cluster.master_of(slot).await.unwrap();
        let replica = cluster.replicas_of(master).await.unwrap()[0];
        Shard { cluster, locks, master, replica }
    }

    async fn record(&self) -> Record {
        Record::of(self.cluster.node(self.master), "a").await
    }

    /// Locks of this shard.
    fn all(&self, count: usize) -> Vec<RwLock> {
        (0..count).map(|number| self.locks.rwlock(format!("{{a}}{number}")).unwrap()).collect()
    }
}

/// Takes all of them at once, in one group or a few.
async fn take(locks: &[RwLock]) -> Vec<WriteGuard> {
    let requests = locks.iter().map(|lock| lock.write().lease(LEASE).min_replicas(1).into_future());
    try_join_all(requests).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_replicas_is_stored_at_the_replica() {
    let stage = Shard::new().await;
    let locks = stage.all(100);
    let replica = stage.cluster.node(stage.replica);
    let mut connection = replica.connect().await.unwrap();
    let _: String = redis::cmd("READONLY").query_async(&mut connection).await.unwrap();
    let guards = take(&locks).await;
    for guard in &guards {
        let key = format!("rwlease:{}", guard.name());
        let read = redis::cmd("HGETALL").arg(key).query_async(&mut connection).await.unwrap();
        assert_eq!(decode_lock(read).number("fence"), guard.fencing_token().get());
    }
    // Replicas confirm renewals too.
    try_join_all(guards.iter().map(|guard| wait_renewed(guard, 4))).await.unwrap();
    let writing = guards.into_iter().next().unwrap();
    let reading = writing.downgrade().await.unwrap();
    let writing = reading.upgrade().await.unwrap();
    let _ = writing.release().await.unwrap();
    let tried = locks[0].try_read().min_replicas(1).await.unwrap();
    assert!(tried.is_some_and(|guard| guard.is_held()));
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_too_few_replicas_is_unavailable_and_released() {
    let stage = Shard::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let refused = lock.write().min_replicas(2).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(
        refused.to_string(),
        format!(
            "lock `a` (slot {}): 1 of the 2 requested replicas confirmed the write in time",
            lock.slot()
        )
    );
    eventually("it is released", || async { stage.record().await.is_free() }).await;
    stage.cluster.node(stage.replica).freeze().unwrap();
    // A plain request completes while the other one waits for the replica.
    let plain = stage.locks.rwlock("{a}plain").unwrap();
    let confirmed = in_task(&lock, |lock| async move { lock.write().min_replicas(1).await });
    eventually("it is at the master", || async { stage.record().await.is_written() }).await;
    let served = soon("the plain one", plain.write().into_future()).await.unwrap();
    let _ = served.release().await.unwrap();
    assert!(!confirmed.is_finished(), "the plain one was not held up");
    assert_eq!(
        soon("the refusal", confirmed).await.unwrap().unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    eventually("it is released", || async { stage.record().await.is_free() }).await;
    stage.cluster.node(stage.replica).thaw().unwrap();
    eventually("it works again", || async { lock.write().min_replicas(1).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_counts_only_when_replicas_confirm_it() {
    let stage = Shard::new().await;
    let guard = stage.locks.rwlock("a").unwrap();
    let guard = guard.write().lease(LEASE).min_replicas(1).await.unwrap();
    stage.cluster.node(stage.replica).freeze().unwrap();
    eventually("renewals fail", || async { guard.state() == LeaseState::Uncertain }).await;
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    soon("the loss", guard.ended()).await;
    assert!(stage.record().await.is_written(), "at the master the lease is longer");
    stage.cluster.node(stage.replica).thaw().unwrap();
    drop(guard);
    let lock = stage.locks.rwlock("a").unwrap();
    let mut guard = None;
    while guard.is_none() {
        guard = lock.write().lease(LEASE).min_replicas(1).await.ok(); // the replica needs a moment
    }
    let guard = guard.unwrap();
    stage.cluster.node(stage.replica).freeze().unwrap();
    eventually("renewals fail", || async { guard.state() == LeaseState::Uncertain }).await;
    stage.cluster.node(stage.replica).thaw().unwrap();
    eventually("they succeed again", || async { guard.state() == LeaseState::Held }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_replicas_follow_ask_and_moved_redirects() {
    let stage = Shard::new().await;
    let target = (stage.master + 1) % 3;
    let stays = stage.locks.rwlock("stays{a2}").unwrap();
    let locks = stage.all(20);
    let guards = take(&locks).await;
    let step = stage.cluster.begin_migration(locks[0].slot().get(), target).await.unwrap();
    for number in 0..10 {
        let key = format!("rwlease:{{a}}{number}");
        // From here on the source answers ASK for these.
        stage.cluster.move_key(step, key).await.unwrap();
    }
    for guard in &guards {
        guard.renew().await.unwrap();
    }
    drop(stays.write().min_replicas(1).await.unwrap());
    stage.cluster.move_keys(step).await.unwrap();
    stage.cluster.finish_migration(step).await.unwrap(); // and MOVED for all
    for guard in guards {
        guard.renew().await.unwrap();
        let _ = guard.release().await.unwrap();
    }
    assert!(take(&locks).await.iter().all(|guard| guard.is_held()));
}

#[cfg(feature = "embedded")]
mod embedded {
    use rwlease::embedded::{EmbeddedCluster, WaitSemantics};
    use rwlease::{Client, RenewalPolicy, Slot};

    /// A slot takes its locks to a master whose replicas have confirmed nothing of them. There the
    /// next renewal decides.
    #[tokio::test(start_paused = true)]
    async fn lease_moved_with_its_slot_is_confirmed_again_by_the_next_renewal() {
        for covers in [WaitSemantics::AllWrites, WaitSemantics::OwnWrites] {
            for renews in [false, true] {
                let engine = EmbeddedCluster::builder().wait_semantics(covers).build();
                let holder = Client::builder().connect_embedded(&engine).await.unwrap();
                let other = Client::builder().connect_embedded(&engine).await.unwrap();
                let lock = holder.rwlock("a").unwrap();
                let request = lock.write().renewal(RenewalPolicy::Manual);
                let held = request.min_replicas(1).await.unwrap();
                let (faults, slot) = (engine.faults(), Slot::of(b"rwlease:a"));
                let from = faults.master_of(slot);
                let to = (0..3).find(|master| *master != from).unwrap();
                assert!(faults.begin_move(slot, to) && faults.finish_move(slot));
                if renews {
                    held.renew().await.unwrap();
                }
                faults.promote(to, 1_000).unwrap();
                let second = other.rwlock("a").unwrap().try_write().await.unwrap();
                assert!(held.is_held());
                assert_eq!(second.is_none(), renews, "{covers:?}");
            }
        }
    }
}
