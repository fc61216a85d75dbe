//! One shard in trouble, and the guards on the others.

use std::time::Duration;

use futures::future::join_all;
use rwlease::{Client, LeaseState, RwLock, WriteGuard};
use tokio::time::Instant;

use crate::fixture::{eventually, soon};
use testkit::{Cluster, ClusterConfig, connect};

const LEASE: Duration = Duration::from_secs(3);

/// Three masters that keep serving their own slots when another one is down.
async fn cluster() -> Cluster {
    let shape = ClusterConfig::of(3, 0).line("cluster-require-full-coverage no");
    Cluster::start_with(shape).await.unwrap()
}

/// Guards by the numbers of their masters. They are taken at the same time, so that the client
/// renews them together.
async fn guards(cluster: &Cluster, locks: &Client, count: usize) -> [Vec<WriteGuard>; 3] {
    let view = cluster.view().await.unwrap();
    let locks: Vec<RwLock> =
        (0..count).map(|number| locks.rwlock(format!("l{number}")).unwrap()).collect();
    let taking = locks.iter().map(|lock| async { lock.write().lease(LEASE).await.unwrap() });
    let mut guards = [const { Vec::new() }; 3];
    for guard in join_all(taking).await {
        let master = view.master_of(guard.slot().to_string().parse().unwrap()).unwrap();
        let number = (0..3).find(|&number| cluster.id(number) == master).unwrap();
        guards[number].push(guard);
    }
    guards
}

/// Checks the guards for a while: each of them must stay held.
async fn stay_held<'a>(guards: impl Iterator<Item = &'a WriteGuard> + Clone, during: Duration) {
    let start = Instant::now();
    while start.elapsed() < during {
        for guard in guards.clone() {
            assert_eq!(
                guard.state(),
                LeaseState::Held,
                "{} after {:?}",
                guard.name(),
                start.elapsed()
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_shard_leaves_leases_of_other_shards_held() {
    let cluster = cluster().await;
    let locks = connect(&cluster.urls()).await.unwrap();
    let [sick, well, also_well] = guards(&cluster, &locks, 150).await;
    cluster.node(0).freeze().unwrap();
    stay_held(well.iter().chain(&also_well), 3 * LEASE).await;
    for guard in &sick {
        assert_eq!(guard.state(), LeaseState::Lost);
        soon("the loss", guard.ended()).await;
    }
    cluster.node(0).thaw().unwrap();
    stay_held(well.iter().chain(&also_well), LEASE).await;
}

/// The renewal of one lock is redirected to a blocked shard. It goes out with the renewals of its
/// neighbours, and must not delay them.
#[tokio::test(flavor = "multi_thread")]
async fn slot_moving_to_a_blocked_shard_leaves_neighbouring_leases_held() {
    let cluster = cluster().await;
    let locks = connect(&cluster.urls()).await.unwrap();
    let [_sick, mut well, _] = guards(&cluster, &locks, 150).await;
    let moving = well.pop().unwrap();
    let slot = moving.slot().to_string().parse().unwrap();
    let step = cluster.begin_migration(slot, 0).await.unwrap();
    cluster.move_key(step, format!("rwlease:{}", moving.name())).await.unwrap();
    let before = moving.remaining();
    eventually("a renewal follows it", || async { moving.remaining() > before }).await;
    cluster.node(0).freeze().unwrap();
    stay_held(well.iter().filter(|guard| guard.slot() != moving.slot()), 3 * LEASE).await;
    assert_eq!(moving.state(), LeaseState::Lost);
    cluster.node(0).thaw().unwrap();
}
