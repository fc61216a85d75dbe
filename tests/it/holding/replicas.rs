//! Leases that replicas have confirmed.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use rwlease::{ErrorKind, LeaseState, Locks, RwLock};

use super::bench::{Record, eventually, soon};
use crate::support::{Cluster, connect, expand_fields, wait_renewed};

const LEASE: Duration = Duration::from_secs(3);

struct Stage {
    cluster: Cluster,
    locks: Locks,
    master: usize,
    replica: usize,
}

/// A cluster whose replicas do not take over, and the shard of the lock `a`.
async fn stage() -> Stage {
    let shape = crate::support::ClusterConfig::of(3, 1).line("cluster-replica-no-failover yes");
    let cluster = Cluster::start_with(shape).await.unwrap();
    let locks = connect(&cluster.urls()).await.unwrap();
    let slot = slot(&locks.rwlock("a").unwrap());
    let master = cluster.master_of(slot).await.unwrap();
    let replica = cluster.replicas_of(master).await.unwrap()[0];
    Stage { cluster, locks, master, replica }
}

fn slot(lock: &RwLock) -> u16 {
    lock.slot().to_string().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_replicas_is_stored_at_the_replica() {
    let stage = stage().await;
    let locks: Vec<RwLock> =
        (0..100).map(|number| stage.locks.rwlock(format!("{{a}}{number}")).unwrap()).collect();
    let replica = stage.cluster.node(stage.replica);
    let mut connection = replica.connect().await.unwrap();
    let _: String = redis::cmd("READONLY").query_async(&mut connection).await.unwrap();
    // Many requests at once, which go out as one group or a few.
    let guards = join_all(
        locks
            .iter()
            .map(|lock| async move { lock.write().lease(LEASE).replicas(1).await.unwrap() }),
    )
    .await;
    for guard in &guards {
        let key = format!("rwlease:{}", guard.name());
        let read = redis::cmd("HGETALL").arg(key).query_async(&mut connection).await.unwrap();
        assert_eq!(expand_fields(&read).unwrap()["fence"].parse(), Ok(guard.token()));
    }
    // Replicas confirm renewals too.
    try_join_all(guards.iter().map(|guard| wait_renewed(guard, 4))).await.unwrap();
    let writing = guards.into_iter().next().unwrap();
    let reading = writing.downgrade().await.unwrap();
    let writing = reading.upgrade().await.unwrap();
    let _ = writing.release().await.unwrap();
    let tried = locks[0].try_read().replicas(1).await.unwrap();
    assert!(tried.is_some_and(|guard| guard.is_held()));
}

#[tokio::test(flavor = "multi_thread")]
async fn write_with_too_few_replicas_is_unavailable_and_released() {
    let stage = stage().await;
    let lock = stage.locks.rwlock("a").unwrap();
    let refused = lock.write().replicas(2).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(
        refused.to_string(),
        format!(
            "lock `a` (slot {}): 1 of the 2 requested replicas confirmed it in time",
            lock.slot()
        )
    );
    eventually("it is released", || async { stage.record().await.is_free() }).await;
    stage.cluster.node(stage.replica).freeze().unwrap();
    // A plain request completes while the other one waits for the replica.
    let plain = stage.locks.rwlock("{a}plain").unwrap();
    let confirmed = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().replicas(1).await }
    });
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
    eventually("it works again", || async { lock.write().replicas(1).await.is_ok() }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_counts_only_when_replicas_confirm_it() {
    let stage = stage().await;
    let guard = stage.locks.rwlock("a").unwrap();
    let guard = guard.write().lease(LEASE).replicas(1).await.unwrap();
    stage.cluster.node(stage.replica).freeze().unwrap();
    eventually("renewals fail", || async { guard.state() == LeaseState::Uncertain }).await;
    let error = guard.renew().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    soon("the loss", guard.lost()).await;
    assert!(stage.record().await.is_written(), "at the master the lease is longer");
    stage.cluster.node(stage.replica).thaw().unwrap();
    drop(guard);
    let lock = stage.locks.rwlock("a").unwrap();
    let mut guard = None;
    while guard.is_none() {
        guard = lock.write().lease(LEASE).replicas(1).await.ok(); // the replica needs a moment
    }
    let guard = guard.unwrap();
    stage.cluster.node(stage.replica).freeze().unwrap();
    eventually("renewals fail", || async { guard.state() == LeaseState::Uncertain }).await;
    stage.cluster.node(stage.replica).thaw().unwrap();
    eventually("they succeed again", || async { guard.state() == LeaseState::Held }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_replicas_follow_ask_and_moved_redirects() {
    let stage = stage().await;
    let target = (stage.master + 1) % 3;
    let stays = stage.locks.rwlock("stays{a2}").unwrap();
    let locks: Vec<RwLock> =
        (0..20).map(|number| stage.locks.rwlock(format!("{{a}}{number}")).unwrap()).collect();
    let take = || {
        join_all(
            locks
                .iter()
                .map(|lock| async move { lock.write().lease(LEASE).replicas(1).await.unwrap() }),
        )
    };
    let guards = take().await;
    let step = stage.cluster.begin_migration(slot(&locks[0]), target).await.unwrap();
    for number in 0..10 {
        let key = format!("rwlease:{{a}}{number}");
        // From here on the source answers ASK for these.
        stage.cluster.move_key(step, key).await.unwrap();
    }
    for guard in &guards {
        guard.renew().await.unwrap();
    }
    drop(stays.write().replicas(1).await.unwrap());
    stage.cluster.move_keys(step).await.unwrap();
    stage.cluster.finish_migration(step).await.unwrap(); // and MOVED for all
    for guard in guards {
        guard.renew().await.unwrap();
        let _ = guard.release().await.unwrap();
    }
    for guard in take().await {
        assert!(guard.is_held());
    }
}

impl Stage {
    async fn record(&self) -> Record {
        Record::of(self.cluster.node(self.master), "a").await
    }
}
