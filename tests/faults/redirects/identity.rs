//! Two histories of one cluster, and a node with an old slot map.

use rwlease::Slot;

use super::bus::Bus;
use super::{LONG, key, on_each_master, raw, serves};
use testkit::{ClusterConfig, ClusterNodes, PollLimit, Result, connect};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_takeover_nobody_locks_at_the_old_master_of_a_partition() -> Result {
    let shape = ClusterConfig { node_timeout: 60_000, ..ClusterConfig::of(3, 1) };
    let (bus, cluster) = Bus::cluster(shape).await?;
    let names = on_each_master(&cluster, "history", 3).await?;
    let (old, lock) = (1, &names[1]);
    let slot = Slot::of(key(&lock[0])).get();
    let replica = cluster.replicas_of(old).await?[0];
    bus.cut_off(cluster.id(old));
    cluster.node(replica).run_words::<()>("CLUSTER FAILOVER TAKEOVER").await?;
    let wait_limit = PollLimit::new("all others to know the new master");
    for number in (0..6).filter(|&number| number != old) {
        while ClusterNodes::of(cluster.node(number)).await?.master_of(slot)
            != Some(cluster.id(replica))
        {
            wait_limit.pause(number).await?;
        }
    }
    // Each side serves, and claims the slot.
    for number in [old, replica] {
        serves(cluster.node(number)).await?;
        let view = ClusterNodes::of(cluster.node(number)).await?;
        assert_eq!(view.master_of(slot), Some(cluster.id(number)));
    }

    // The result does not depend on the node that a client queries first.
    let at_old = connect(&[cluster.node(old).url()]).await?;
    let at_new = connect(&[cluster.node(0).url()]).await?;
    for name in lock {
        let held = at_old.rwlock(name)?.write().lease(LONG).await?;
        assert!(at_new.rwlock(name)?.try_write().await?.is_none(), "{name} is held twice");
        let _ = held.release().await?;
    }
    let keys: Vec<String> = cluster.node(old).run_words("KEYS *").await?;
    assert!(keys.is_empty(), "{keys:?} at the old master");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lags_misleads_nobody() -> Result {
    let shape = ClusterConfig { node_timeout: 60_000, ..ClusterConfig::of(3, 0) };
    let (bus, cluster) = Bus::cluster(shape).await?;
    let names = on_each_master(&cluster, "lagging", 1).await?;
    let slot = Slot::of(key(&names[0][0])).get();
    bus.cut_off(cluster.id(2));
    for number in [1, 0] {
        let assign = format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(1));
        cluster.node(number).run_words::<()>(&assign).await?;
    }
    assert_eq!(
        ClusterNodes::of(cluster.node(2)).await?.master_of(slot),
        Some(cluster.id(0)),
        "it lags"
    );
    raw::reset_errors(&cluster).await?;
    for _ in 0..10 {
        let locks = connect(&[cluster.node(2).url()]).await?;
        let _ = locks.rwlock(&names[0][0])?.write().await?.release().await?;
    }
    assert_eq!(raw::errors(&cluster, "MOVED").await?, 0, "it was believed");
    Ok(())
}
