//! Hand-offs use pushes again after any event that ends a subscription. The waiters here do not
//! poll by themselves.

use rwlease::{Client, RwLock};

use super::queue::{Queue, name_of, until, until_listening};
use super::{hearing, soon};
use testkit::{
    ClientKind, Cluster, FailoverMode, PollLimit, Result, Server, scripts_run, spawn_write,
};

/// A holder, and a client that waits.
struct Two {
    cluster: Cluster,
    holder: RwLock,
    waiter: RwLock,
    _clients: [Client; 2],
}

impl Two {
    /// `None` on servers without pushes.
    async fn start(name: &str) -> Result<Option<Two>> {
        let cluster = Cluster::start().await?;
        let clients = [hearing(&cluster).await?, hearing(&cluster).await?];
        let (holder, waiter) = (clients[0].rwlock(name)?, clients[1].rwlock(name)?);
        let has_push = cluster.version().has_sharded_pubsub();
        Ok(has_push.then_some(Two { holder, waiter, cluster, _clients: clients }))
    }

    async fn master(&self) -> Result<&Server> {
        let master = self.cluster.master_of(self.holder.slot().get()).await?;
        Ok(self.cluster.node(master))
    }

    /// Something happens while a request waits. Once the waiter is subscribed again (`seen` is its
    /// last poll before), the hand-off takes a release, a push and the claim, and no other call.
    async fn through(&self, happens: impl AsyncFnOnce() -> Result) -> Result {
        let held = self.holder.write().await?;
        let waiting = spawn_write(&self.waiter);
        let before = until_listening(&self.cluster, &self.holder, 1).await?.waiters()[0].last_seen;
        happens().await?;
        let server = self.master().await?;
        let name = name_of(server).await?;
        until(&self.cluster, &self.holder, "it listens again", |queue: &Queue| {
            let waiters = queue.waiters();
            waiters.iter().any(|one| one.last_seen > before) && queue.all_listen_at(&name)
        })
        .await?;

        server.reset_stats().await?;
        let _ = held.release().await?;
        let next = soon(waiting).await???;
        let stats = server.command_stats().await?;
        let calls = |name: &str| stats.get(name).map_or(0, |stat| stat.calls);
        assert_eq!(calls("spublish"), 1);
        // The release, and the claim.
        assert!(scripts_run(&stats) <= 2, "{stats:?}");
        let _ = next.release().await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_granted_by_push_after_a_slot_move() -> Result {
    let Some(two) = Two::start("moved").await? else { return Ok(()) };
    let slot = two.holder.slot().get();
    for _ in 0..2 {
        let to = (two.cluster.master_of(slot).await? + 1) % 3;
        two.through(async || two.cluster.move_slot(slot, to).await).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_granted_by_push_after_a_failover() -> Result {
    let Some(two) = Two::start("failed over").await? else { return Ok(()) };
    for _ in 0..2 {
        let master = two.cluster.master_of(two.holder.slot().get()).await?;
        let replica = two.cluster.replicas_of(master).await?[0];
        two.through(async || two.cluster.fail_over(replica, FailoverMode::Orderly).await).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_granted_by_push_after_a_connection_loss() -> Result {
    let Some(two) = Two::start("cut").await? else { return Ok(()) };
    for _ in 0..3 {
        let server = two.master().await?;
        two.through(async || {
            assert!(server.kill_clients(ClientKind::Subscribed).await? > 0);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// While the slot moves and the lock is already at the target, the source does not see changes of
/// the lock.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_is_granted_by_poll_after_a_release_during_a_slot_move() -> Result {
    let Some(two) = Two::start("moving").await? else { return Ok(()) };
    let slot = two.holder.slot().get();
    let to = (two.cluster.master_of(slot).await? + 1) % 3;
    let held = two.holder.write().await?;
    let waiting = spawn_write(&two.waiter);
    until_listening(&two.cluster, &two.holder, 1).await?;
    let step = two.cluster.begin_migration(slot, to).await?;
    two.cluster.move_keys(step).await?;
    // ASK redirects the release. The waiter has not polled since, and gets no push. It keeps its
    // grant, and polls after the slot has moved.
    let _ = held.release().await?;
    two.cluster.finish_migration(step).await?;
    let _ = soon(waiting).await???.release().await?;
    Ok(())
}

/// A waiter that comes while the slot moves is redirected with ASK, and then subscribes at the
/// target too.
#[tokio::test(flavor = "multi_thread")]
async fn waiter_queued_during_a_slot_move_subscribes_at_both_masters() -> Result {
    let Some(two) = Two::start("both sides").await? else { return Ok(()) };
    let slot = two.holder.slot().get();
    let from = two.cluster.master_of(slot).await?;
    let target = (from + 1) % 3;
    let held = two.holder.write().await?;
    let step = two.cluster.begin_migration(slot, target).await?;
    two.cluster.move_keys(step).await?;
    let waiting = spawn_write(&two.waiter);
    let (source, server) = (two.cluster.node(from), two.cluster.node(target));
    let wait_limit = PollLimit::new("it hears at both");
    loop {
        let here: Vec<String> = source.run_words("PUBSUB SHARDCHANNELS").await?;
        let there: Vec<String> = server.run_words("PUBSUB SHARDCHANNELS").await?;
        let queue = Queue::at_target(server, &two.waiter).await?;
        let says_so = queue.waiters().iter().any(|waiter| waiter.node != "-");
        if says_so && there.len() == 1 && here == there {
            break;
        }
        wait_limit
            .pause(format!("{here:?} at the source, {there:?} at the target, {queue:?}"))
            .await?;
    }
    server.reset_stats().await?;
    let _ = held.release().await?;
    let next = soon(waiting).await???;
    let stats = server.command_stats().await?;
    assert_eq!(stats.get("spublish").map_or(0, |stat| stat.calls), 1);
    assert_eq!(two.cluster.master_of(slot).await?, from, "the slot has not moved yet");
    two.cluster.finish_migration(step).await?;
    let _ = next.release().await?;
    Ok(())
}
