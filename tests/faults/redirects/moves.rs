//! Slot moves, in steps.

use rwlease::{Client, ReleaseOutcome};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{PATIENCE, client, key, raw};
use testkit::{Cluster, Error, PollLimit, Result, SlotMigration, lock_hash_asking};

/// How far the move of a slot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    KeyMoved,
    Finished,
}

const STAGES: [Stage; 3] = [Stage::Begun, Stage::KeyMoved, Stage::Finished];

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_keeps_its_order_over_a_move() -> Result {
    let cluster = Cluster::start().await?;
    for stage in STAGES {
        let name = format!("queue:{stage:?}");
        let clients = [client(&cluster).await?, client(&cluster).await?];
        let held = clients[0].rwlock(&name)?.write().await?;
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut tasks = Vec::new();
        for (at, mode) in "wwrwr".char_indices() {
            tasks.push(wait_in_line(&clients[at % 2], &name, at, mode, &tell));
            queued(&cluster, &name, at + 1).await?;
        }
        let before = raw::queue(&raw::state(&cluster, &name).await?);
        let step = to_stage(&cluster, &name, stage).await?;
        let at = if stage == Stage::Begun { step.from } else { step.to };
        let after = raw::queue(&lock_hash_asking(cluster.node(at), &key(&name)).await?);
        assert_eq!(before, after, "{stage:?}");

        let mut last = held.fencing_token().get();
        assert_eq!(held.release().await?, ReleaseOutcome::Released);
        let mut order = Vec::new();
        for turn in 0..tasks.len() {
            let (at, token) =
                told.recv().await.ok_or_else(|| Error::new("the waiters are gone"))?;
            // The two readers are granted together.
            assert!(token > last || turn == 1, "{stage:?}: {token} after {last}");
            last = last.max(token);
            order.push(at);
            if turn == 2 {
                finish(&cluster, step, stage).await?;
            }
        }
        order[..2].sort_unstable();
        assert_eq!(order, [2, 4, 0, 1, 3], "{stage:?}");
        for task in tasks {
            task.await??;
        }
        raw::vacant(&cluster, &name).await?;
    }
    Ok(())
}

/// Brings the move of a lock's slot to this stage. The target has no scripts loaded.
async fn to_stage(cluster: &Cluster, name: &str, stage: Stage) -> Result<SlotMigration> {
    let slot = cluster.slot_of(key(name)).await?;
    let step = cluster.begin_migration(slot, another(cluster, slot).await?).await?;
    cluster.node(step.to).run_words::<()>("SCRIPT FLUSH").await?;
    if stage != Stage::Begun {
        cluster.move_key(step, key(name)).await?;
    }
    if stage == Stage::Finished {
        cluster.move_keys(step).await?;
        cluster.finish_migration(step).await?;
    }
    Ok(step)
}

/// Completes the move.
async fn finish(cluster: &Cluster, step: SlotMigration, stage: Stage) -> Result {
    if stage == Stage::Finished {
        return Ok(());
    }
    cluster.move_keys(step).await?;
    cluster.finish_migration(step).await
}

/// A master that does not serve the slot.
async fn another(cluster: &Cluster, slot: u16) -> Result<usize> {
    let master = cluster.master_of(slot).await?;
    let mut others = cluster.masters().await?;
    others.retain(|&other| other != master);
    fastrand::choice(others).ok_or_else(|| Error::new("there is one master only"))
}

/// Waits for the lock in a task, sends its number and token once it is granted, and releases it.
fn wait_in_line(
    locks: &Client,
    name: &str,
    at: usize,
    mode: char,
    tell: &mpsc::UnboundedSender<(usize, u64)>,
) -> JoinHandle<Result> {
    let (locks, name, tell) = (locks.clone(), name.to_owned(), tell.clone());
    tokio::spawn(async move {
        let lock = locks.rwlock(name)?;
        let released = if mode == 'w' {
            let guard = lock.write().timeout(PATIENCE).await?;
            tell.send((at, guard.fencing_token().get()))?;
            guard.release().await?
        } else {
            let guard = lock.read().timeout(PATIENCE).await?;
            tell.send((at, guard.fencing_token().get()))?;
            guard.release().await?
        };
        assert_eq!(released, ReleaseOutcome::Released, "{mode} {at}");
        Ok(())
    })
}

/// Waits until the queue has `waiters` waiters.
async fn queued(cluster: &Cluster, name: &str, waiters: usize) -> Result {
    let wait_limit = PollLimit::new(format!("{waiters} waiters"));
    let is_queued = || async { Ok(raw::state(cluster, name).await?.waiters.len() == waiters) };
    wait_limit.until(is_queued).await
}
