//! What `replicas(n)` confirms is at n replicas, on every server, even when an answer was lost and
//! the call is sent again.

use std::time::Duration;

use crate::support::{
    ConnectBuilder, CutPoint, PollLimit, Proxy, ProxyFlow, StandaloneServer, fields,
};
use rwlease::{Error, ErrorKind, Lease, LeaseState, Locks, RenewalPolicy};

/// Longer than a test, so that the client sends nothing by itself.
const LONG: Duration = Duration::from_secs(60);

/// How much later a slow request arrives than others.
const SLOW: Duration = Duration::from_secs(1);

/// A master with one replica, and a client of the master whose connections can be cut.
struct Stage {
    master: StandaloneServer,
    replica: StandaloneServer,
    proxy: Proxy,
    locks: Locks,
}

impl Stage {
    async fn new() -> Stage {
        let master = StandaloneServer::start().await.unwrap();
        let replica = master.start_replica().await.unwrap();
        let proxy = Proxy::start(&master).await.unwrap();
        let settings = Locks::builder().response_timeout(10 * SLOW);
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
    async fn record(&self) -> String {
        fields(&self.master, "rwlease:a").await.unwrap()["writer"].clone()
    }

    async fn is_gone(&self, key: &str, field: &str) {
        let wait_limit = PollLimit::new("what was refused to be released");
        while fields(&self.master, key).await.unwrap().contains_key(field) {
            wait_limit.pause("it is held").await.unwrap();
        }
    }
}

fn must_be_unconfirmed<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    let error = outcome.expect_err("no replica has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("0 of the 1 requested replicas"), "{error}");
}

/// A replica receives two commands for a pair, without a transaction around them. (Redis 6.2 wraps
/// all that a script writes in a transaction.)
#[tokio::test(flavor = "multi_thread")]
async fn acquire_and_release_send_few_bytes_to_a_replica() {
    const PAIRS: u64 = 100;
    let stage = Stage::new().await;
    let wraps = stage.master.version().major < 7;
    let most = if wraps { 300 } else { 200 };
    let sent = async || -> u64 {
        let info = stage.master.info("replication").await.unwrap();
        info["master_repl_offset"].parse().unwrap()
    };
    let lock = stage.locks.rwlock("a").unwrap();
    for _ in 0..2 {
        // The first pair sets the key's life, and the second one extends it, for ten seconds.
        let _ = lock.write().await.unwrap().release().await.unwrap();
    }
    stage.in_step().await;
    stage.replica.reset_stats().await.unwrap();
    for reads in [false, true] {
        let before = sent().await;
        for _ in 0..PAIRS {
            if reads {
                let _ = lock.read().await.unwrap().release().await.unwrap();
            } else {
                let _ = lock.write().await.unwrap().release().await.unwrap();
            }
        }
        let each = (sent().await - before) / PAIRS;
        assert!(each <= most, "{each} bytes, reads: {reads}");
    }
    stage.in_step().await;
    let transactions = stage.replica.calls("multi").await.unwrap();
    // Every ten seconds a second command extends the key's life.
    assert!(if wraps { transactions >= 4 * PAIRS } else { transactions <= 4 }, "{transactions}");
    let written = stage.replica.calls("hset").await.unwrap();
    assert_eq!(written, 4 * PAIRS, "one to take it, one to release it");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_write_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let write = || lock.write().lease(LONG).replicas(1).into_future();
    let _ = write().await.unwrap().release().await.unwrap();
    stage.freeze();
    must_be_unconfirmed(stage.losing_the_answer(write()).await);
    stage.is_gone("rwlease:a", "writer").await;
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    let held = stage.losing_the_answer(write()).await;
    assert!(held.unwrap().is_held(), "with the replica in step it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_read_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let read = || lock.read().lease(LONG).replicas(1).into_future();
    let _ = read().await.unwrap().release().await.unwrap();
    stage.freeze();
    must_be_unconfirmed(stage.losing_the_answer(read()).await);
    stage.is_gone("rwlease:a", "readers").await;
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    assert!(stage.losing_the_answer(read()).await.unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_upgrade_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let read = || lock.read().lease(LONG).replicas(1).into_future();
    let _ = read().await.unwrap().upgrade().await.unwrap().release().await.unwrap();
    let reading = read().await.unwrap();
    stage.freeze();
    let refused = stage.losing_the_answer(reading.upgrade().into_future()).await;
    let (error, reading) = refused.expect_err("no replica has it").into_parts();
    must_be_unconfirmed::<()>(Err(error));
    stage.is_gone("rwlease:a", "writer").await;
    assert!(reading.is_held());
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    let writing = stage.losing_the_answer(reading.upgrade().into_future()).await;
    assert!(writing.unwrap().is_held(), "with the replica in step it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_mutex_lock_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let mutex = stage.locks.mutex("m").unwrap();
    let lock = || mutex.lock().lease(LONG).replicas(1).into_future();
    let _ = lock().await.unwrap().release().await.unwrap();
    stage.freeze();
    must_be_unconfirmed(stage.losing_the_answer(lock()).await);
    stage.replica.thaw().unwrap();
    stage.in_step().await;
    assert!(stage.losing_the_answer(lock()).await.unwrap().is_held());
}

/// Each renewal requests the end of the longest hold. A renewal that takes longer on its way makes
/// the lease a little longer than the next renewal requests, so the next one changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn renew_without_a_change_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let request = lock.write().lease(LONG).max_hold(LONG).renewal(RenewalPolicy::Manual);
    let written = request.replicas(1).await.unwrap();
    let mutex = stage.locks.mutex("m").unwrap();
    let request = mutex.lock().lease(LONG).max_hold(LONG).renewal(RenewalPolicy::Manual);
    let locked = request.replicas(1).await.unwrap();
    let leases: [&Lease; 2] = [&written, &locked];
    for lease in leases {
        lease.renew().await.unwrap();
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
        lease.renew().await.unwrap();
        assert_eq!(lease.state(), LeaseState::Held);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_renewal_without_a_change_is_not_confirmed_by_a_stopped_replica() {
    let stage = Stage::new().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let lease = Duration::from_secs(12);
    // The first renewal, at a third of the lease, requests the end of the hold.
    let request = lock.write().lease(lease).max_hold(lease + lease / 4);
    let guard = request.replicas(1).await.unwrap();
    guard.renew().await.unwrap(); // the server knows the script from here on
    stage.freeze();
    let first = stage.record().await;
    stage.proxy.requests(ProxyFlow::Slow(SLOW));
    let wait_limit = PollLimit::new("a renewal at the master");
    while stage.record().await == first {
        wait_limit.pause("there is none").await.unwrap();
    }
    let wait_limit = PollLimit::new("its failure");
    while guard.state() != LeaseState::Uncertain {
        wait_limit.pause("it has not failed").await.unwrap();
    }
    // The next renewal comes after a pause.
    stage.proxy.requests(ProxyFlow::Open);
    stage.proxy.cut();
    let wait_limit = PollLimit::new("the loss");
    loop {
        match guard.state() {
            LeaseState::Lost => return,
            state => assert_eq!(state, LeaseState::Uncertain, "no replica has confirmed it since"),
        }
        wait_limit.pause("it is not lost").await.unwrap();
    }
}

#[cfg(feature = "embedded")]
mod embedded {
    use rwlease::embedded::{EmbeddedCluster, WaitSemantics};
    use rwlease::{Locks, RenewalPolicy, Slot};

    /// A slot takes its locks to a master whose replicas have confirmed nothing of them. There the
    /// next renewal decides.
    #[tokio::test(start_paused = true)]
    async fn lease_moved_with_its_slot_is_confirmed_again_by_the_next_renewal() {
        for covers in [WaitSemantics::AllWrites, WaitSemantics::OwnWrites] {
            for renews in [false, true] {
                let engine = EmbeddedCluster::builder().wait_semantics(covers).build();
                let holder = Locks::builder().connect_embedded(&engine).await.unwrap();
                let other = Locks::builder().connect_embedded(&engine).await.unwrap();
                let lock = holder.rwlock("a").unwrap();
                let request = lock.write().renewal(RenewalPolicy::Manual);
                let held = request.replicas(1).await.unwrap();
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
