//! Waiters whose process is gone, or stopped.

use rwlease::{Client, ReleaseOutcome};
use tokio::task::JoinSet;

use super::child_process::{self, Child};
use super::queue::{Queue, until, until_listening};
use super::{by_push, hearing, soon};
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, FailoverMode, Result, scripts_run, spawn_write,
};

const DEAD: usize = 3;

/// Waits in the queue with several requests, one after the other, and reports the tokens of their
/// grants.
async fn wait_in_the_child(name: &str, count: usize) -> Result {
    let locks: Client = by_push().connect_to(&child_process::urls()?).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let lock = locks.rwlock(name)?;
        tasks.spawn(async move {
            let guard = lock.write().await?;
            child_process::tell(&guard.fencing_token().to_string());
            guard.release().await
        });
    }
    while let Some(done) = tasks.join_next().await {
        let _ = done??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn release_skips_waiters_of_a_killed_process() -> Result {
    const TEST: &str = "waiting::dead_waiters::release_skips_waiters_of_a_killed_process";
    if child_process::is(TEST) {
        return wait_in_the_child("passed over", DEAD).await;
    }
    let cluster = Cluster::start_with(ClusterConfig::of(1, 0)).await?;
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let lock = hearing(&cluster).await?.rwlock("passed over")?;
    let held = lock.write().await?;
    let mut child = Child::start(TEST, &cluster)?;
    until_listening(&cluster, &lock, DEAD).await?;
    let alive = hearing(&cluster).await?.rwlock("passed over")?;
    let alive = spawn_write(&alive);
    let queue = until_listening(&cluster, &lock, DEAD + 1).await?;
    let last = queue.waiters()[DEAD].id.clone();

    child.kill().await?;
    let server = cluster.node(0);
    server.reset_stats().await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    let (after, stats) = (Queue::of(&cluster, &lock).await?, server.command_stats().await?);
    assert_eq!(after.writer(), Some(last.as_str()), "{after:?}");
    assert!(after.waiters().is_empty(), "{after:?}");
    let calls = |name: &str| stats.get(name).map_or(0, |stat| stat.calls);
    assert_eq!(calls("spublish") as usize, DEAD + 1, "one for each, heard or not");
    // The release, and the claim of the granted waiter.
    let scripts = scripts_run(&stats);
    assert!((1..=2).contains(&scripts), "{scripts} scripts");
    let _ = soon(alive).await???.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_waiters_keep_their_queue_position_after_a_failover() -> Result {
    const TEST: &str =
        "waiting::dead_waiters::stopped_waiters_keep_their_queue_position_after_a_failover";
    const STOPPED: usize = 2;
    if child_process::is(TEST) {
        return wait_in_the_child("stopped", STOPPED).await;
    }
    let cluster = Cluster::start_with(ClusterConfig::of(1, 1)).await?;
    let lock = hearing(&cluster).await?.rwlock("stopped")?;
    let held = lock.write().await?;
    let mut child = Child::start(TEST, &cluster)?;
    until_listening(&cluster, &lock, STOPPED).await?;
    let behind = hearing(&cluster).await?.rwlock("stopped")?;
    let behind = spawn_write(&behind);
    let queue = until_listening(&cluster, &lock, STOPPED + 1).await?;
    let first = queue.waiters()[0].id.clone();

    // The child cannot subscribe at the new master, so it does not receive the grant. The server
    // must not consider it gone.
    child.freeze()?;
    cluster.fail_over(1, FailoverMode::Orderly).await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    let after = until(&cluster, &lock, "it is granted", |queue| queue.writer().is_some()).await?;
    assert_eq!(after.writer(), Some(first.as_str()), "{after:?}");
    assert_eq!(after.waiters().len(), STOPPED, "{after:?}");
    child.thaw()?;
    let (one, two): (u64, u64) = (child.told().await?.parse()?, child.told().await?.parse()?);
    let last = soon(behind).await???;
    assert!(
        one < two && two < last.fencing_token().get(),
        "{one}, {two}, {}",
        last.fencing_token().get()
    );
    let _ = last.release().await?;
    let (well, said) = child.end().await?;
    assert!(well, "{said}");
    Ok(())
}
