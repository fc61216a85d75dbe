//! Slot moves, in steps and under load.

use std::sync::Arc;
use std::time::Duration;

use rwlease::{LeaseState, Locks, Released, WriteGuard};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::book::{Book, Overlaps};
use super::load::Load;
use super::raw::{self, Witness};
use super::{LONG, PATIENCE, client, key, on_cluster, settings};
use crate::support::{Cluster, ConnectBuilder, Error, PollLimit, Result, SlotMigration};

/// How far the move of a slot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    KeyMoved,
    Finished,
}

const STAGES: [Stage; 3] = [Stage::Begun, Stage::KeyMoved, Stage::Finished];

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_moves_with_its_slot() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
        for stage in STAGES {
            // New clients for each stage: the redirects of the last stage may still cause a fetch
            // of the slot map.
            let (locks, other) = (client(&cluster).await?, client(&cluster).await?);
            let name = format!("held:{stage:?}");
            let lock = locks.rwlock(&name)?;
            let held = lock.write().await?;
            raw::reset_errors(&cluster).await?;
            let step = to_stage(&cluster, &name, stage).await?;

            // The other client learns from this call alone where the lock is.
            let others = other.rwlock(&name)?;
            assert!(others.try_read().await?.is_none(), "{stage:?}");
            held.renew().await?;
            assert_eq!(held.state(), LeaseState::Held);
            let token = held.token();
            assert_eq!(held.release().await?, Released::Released, "{stage:?}");
            let next = others.try_write().await?.ok_or_else(|| refused(stage))?;
            assert!(next.token() > token, "{stage:?}");
            match stage {
                Stage::Begun => {}
                Stage::KeyMoved => {
                    assert!(raw::errors(&cluster, "ASK").await? >= 4);
                    assert!(
                        raw::errors(&cluster, "NOSCRIPT").await? >= 4,
                        "at the target, by ASKING"
                    );
                }
                Stage::Finished => assert!(raw::errors(&cluster, "MOVED").await? >= 2),
            }

            finish(&cluster, step, stage).await?;
            next.renew().await?;
            assert!(lock.try_read().await?.is_none(), "{stage:?}");
            assert_eq!(next.release().await?, Released::Released, "{stage:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_there_is_taken_at_the_target() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
        let (locks, other) = (client(&cluster).await?, client(&cluster).await?);
        // From here on, both have the slot in their maps.
        for locks in [&locks, &other] {
            let _ = locks.rwlock("{new}known")?.read().await?.release().await?;
        }
        let name = "{new}lock";
        let (lock, others) = (locks.rwlock(name)?, other.rwlock(name)?);
        let step = to_stage(&cluster, name, Stage::Begun).await?;
        raw::reset_errors(&cluster).await?;

        let first = lock.try_read().await?.ok_or_else(|| refused(Stage::Begun))?;
        let second = others.read().await?;
        assert!(second.token() > first.token());
        assert!(others.try_write().await?.is_none());
        assert!(raw::errors(&cluster, "ASK").await? >= 3);
        assert!(raw::errors(&cluster, "NOSCRIPT").await? >= 2);
        let at_source = raw::state_at(&cluster, step.from, name).await;
        assert!(at_source.is_err_and(|error| error.to_string().to_uppercase().contains("ASK")));
        let (there, _) = raw::state_at(&cluster, step.to, name).await?;
        assert_eq!(there["readers"], "2");

        assert_eq!(first.release().await?, Released::Released);
        cluster.move_keys(step).await?;
        cluster.finish_migration(step).await?;
        second.renew().await?;
        assert_eq!(raw::state(&cluster, name).await?["readers"], "1");
        assert!(lock.try_write().await?.is_none());
        assert_eq!(second.release().await?, Released::Released);
        assert!(lock.try_write().await?.is_some());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_fields_and_expiry_survive_a_slot_move() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
        let name = "whole";
        let locks = client(&cluster).await?;
        let lock = locks.rwlock(name)?;
        let reading = (lock.read().await?, lock.read().lease(LONG * 2).await?);
        let step = to_stage(&cluster, name, Stage::Begun).await?;
        let (before, lives) = raw::state_at(&cluster, step.from, name).await?;
        assert_eq!(raw::occupants(&before).len(), 2);
        cluster.move_keys(step).await?;
        let (after, still_lives) = raw::state_at(&cluster, step.to, name).await?;
        cluster.finish_migration(step).await?;
        assert_eq!(before, after);
        assert!(lives >= (LONG * 2).as_millis() as i64, "{lives}");
        assert!(
            still_lives <= lives && still_lives > lives - LONG.as_millis() as i64,
            "{lives} ms became {still_lives}"
        );
        assert!(reading.0.is_held() && reading.1.is_held());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_keeps_its_order_over_a_move() -> Result {
    on_cluster(async |cluster: Arc<Cluster>| {
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
            let after = raw::queue(&raw::state_at(&cluster, at, &name).await?.0);
            assert_eq!(before, after, "{stage:?}");

            let mut last = held.token();
            assert_eq!(held.release().await?, Released::Released);
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
            raw::vacant(&cluster, &[name]).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_moves_under_load_are_seen_by_nobody() -> Result {
    const MOVES: usize = 200;
    const AT_ONCE: usize = 20;
    on_cluster(async |cluster: Arc<Cluster>| {
        let clients = [client(&cluster).await?, client(&cluster).await?];
        let names: Vec<String> = (0..6).map(|number| format!("load:{number}")).collect();
        // Held and renewed all the time, in the slots that move.
        let mut held: Vec<(u64, WriteGuard)> = Vec::new();
        let quick = settings().lease(Duration::from_secs(6)).connect_to(&cluster.urls()).await?;
        for name in &names {
            let guard = quick.rwlock(format!("{{{}}}held", key(name)))?.write().await?;
            held.push((guard.token(), guard));
        }
        let slots: Vec<u16> = names.iter().map(|name| rwlease::Slot::of(key(name)).get()).collect();
        assert!(held.iter().zip(&slots).all(|((_, guard), slot)| guard.slot().get() == *slot));
        raw::reset_errors(&cluster).await?;

        let book = Book::new(Overlaps::Never);
        let witness = Witness::new(cluster.clone());
        let mut load = Load::start(&clients, 4, &names, &book, Some(witness));
        for turn in 0..MOVES {
            let slot = slots[turn % slots.len()];
            cluster.move_slot(slot, another(&cluster, slot).await?).await?;
            load.advance(1).await?;
        }
        for turn in 0..AT_ONCE {
            let slot = slots[turn % slots.len()];
            let to = another(&cluster, slot).await?;
            let moved = cluster.migrate_slots_atomically(slot, slot, to).await;
            if !cluster.version().has_atomic_moves() {
                let refused = moved.expect_err("it cannot").to_string().to_lowercase();
                assert!(refused.contains("unknown subcommand"), "{refused}");
                break;
            }
            moved?;
            load.advance(1).await?;
        }
        let rounds = load.finish().await?;
        assert!(rounds >= MOVES as u64);
        assert_eq!(book.grants() as u64, rounds);
        assert!(
            raw::errors(&cluster, "MOVED").await? > 0 && raw::errors(&cluster, "ASK").await? > 0
        );
        for (token, guard) in held {
            assert_eq!(guard.state(), LeaseState::Held);
            assert_eq!(guard.token(), token);
            assert_eq!(guard.release().await?, Released::Released);
        }
        raw::vacant(&cluster, &names).await
    })
    .await
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
    locks: &Locks,
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
            tell.send((at, guard.token()))?;
            guard.release().await?
        } else {
            let guard = lock.read().timeout(PATIENCE).await?;
            tell.send((at, guard.token()))?;
            guard.release().await?
        };
        assert_eq!(released, Released::Released, "{mode} {at}");
        Ok(())
    })
}

/// Waits until the queue has `waiters` waiters.
async fn queued(cluster: &Cluster, name: &str, waiters: usize) -> Result {
    let wait_limit = PollLimit::new(format!("{waiters} waiters"));
    loop {
        match raw::queue(&raw::state(cluster, name).await?).len() {
            seen if seen == waiters => return Ok(()),
            seen => wait_limit.pause(seen).await?,
        }
    }
}

fn refused(stage: Stage) -> Error {
    Error::new(format!("refused in {stage:?}"))
}
