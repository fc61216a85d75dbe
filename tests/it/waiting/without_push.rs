//! Without pushes, waiters poll, and nothing else changes.

use std::time::Duration;

use rwlease::Client;
use tokio::task::JoinSet;

use super::queue::{Queue, until};
use super::{LONG, soon};
use testkit::{Cluster, ClusterConfig, ConnectBuilder, Result};

const WAITERS: usize = 5;

/// The clients' user may neither subscribe nor publish, as on a server without these commands.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_without_subscription_is_granted_by_polling() -> Result {
    let cluster = Cluster::start_with(ClusterConfig::of(2, 0)).await?;
    let mut urls = cluster.urls();
    if cluster.version().has_sharded_pubsub() {
        for node in cluster.nodes() {
            node.run_words::<()>("ACL SETUSER deaf on >secret ~* &* +@all -ssubscribe -spublish")
                .await?;
        }
        urls = urls.iter().map(|url| url.replace("redis://", "redis://deaf:secret@")).collect();
    }
    let settings = || Client::builder().lease(LONG).poll_interval(Duration::from_millis(30));
    let clients = [settings().connect_to(&urls).await?, settings().connect_to(&urls).await?];
    let first = clients[0].rwlock("deaf")?;
    let held = first.write().await?;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for at in 0..WAITERS {
        let (lock, tell) = (clients[at % 2].rwlock("deaf")?, tell.clone());
        tasks.spawn(async move {
            let guard = lock.write().await?;
            let _ = tell.send((guard.fencing_token().get(), at));
            guard.release().await
        });
        until(&cluster, &first, "one more waits", |queue| queue.waiters().len() == at + 1).await?;
    }
    let queue = Queue::of(&cluster, &first).await?;
    assert!(queue.waiters().iter().all(|waiter| waiter.node == "-"), "{queue:?}");
    for node in cluster.nodes() {
        node.reset_stats().await?;
    }
    let _ = held.release().await?;
    while let Some(done) = soon(tasks.join_next()).await? {
        let _ = done??;
    }
    drop(tell);
    let mut order = Vec::new();
    while let Some(one) = told.recv().await {
        order.push(one);
    }
    order.sort_unstable();
    assert_eq!(
        order.into_iter().map(|(_, at)| at).collect::<Vec<_>>(),
        (0..WAITERS).collect::<Vec<_>>()
    );
    for node in cluster.nodes() {
        assert_eq!(node.calls("spublish").await?, 0);
    }
    Ok(())
}
