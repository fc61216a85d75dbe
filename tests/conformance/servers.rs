//! What needs real servers: slots that move, masters that die, keys of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::cmd;
use rwlease::{ErrorKind, Locks, Released, RwLock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Inside, LONG};
use crate::support::{Backend, Cluster, Failover, Result, ServerSettings, Shape, Single};

/// What a lock's key begins with.
const PREFIX: &str = "rwlease:";

async fn connect(backend: Backend, cluster: &Cluster) -> Locks {
    let patient = Locks::builder().call_timeout(LONG);
    let url = cluster.node(cluster.running()[0]).url();
    backend.connect(patient, &[url]).await.expect("connected")
}

/// A lock whose key some other node can be asked for, and who has it.
async fn lock_in(locks: &Locks, cluster: &Cluster, name: &str) -> Result<(RwLock, usize)> {
    let lock = locks.rwlock(name)?;
    let owner = cluster.owner(lock.slot().get()).await?;
    Ok((lock, owner))
}

/// The next master that has slots.
async fn another(cluster: &Cluster, owner: usize) -> Result<usize> {
    let masters = cluster.masters().await?;
    let next = masters.iter().copied().find(|&master| master > owner);
    Ok(next.unwrap_or(masters[0]))
}

pub async fn locks_follow_their_slot(backend: Backend, cluster: &Cluster) -> Result {
    let (locks, other) = (connect(backend, cluster).await, connect(backend, cluster).await);
    let (lock, mut owner) = lock_in(&locks, cluster, "followed").await?;
    let mut last = 0;
    for turn in 0..6 {
        let writing = lock.write().lease(Duration::from_secs(2)).await?;
        assert!(writing.token() > last);
        last = writing.token();
        owner = another(cluster, owner).await?;
        cluster.move_slot(lock.slot().get(), owner).await?;
        assert!(other.rwlock("followed")?.try_read().await?.is_none());
        if turn == 0 {
            sleep(Duration::from_secs(4)).await;
            assert!(writing.is_held(), "renewed where it is now");
        }
        assert_eq!(writing.release().await?, Released::Released);
    }
    Ok(())
}

pub async fn locks_are_taken_while_their_slot_migrates(backend: Backend, cluster: &Cluster) -> Result {
    let (locks, other) = (connect(backend, cluster).await, connect(backend, cluster).await);
    let (stays, owner) = lock_in(&locks, cluster, "{tag}stays").await?;
    let at_source = stays.write().await?;
    let step = cluster
        .begin_move(stays.slot().get(), another(cluster, owner).await?)
        .await?;
    // A key that is not at the source is served at the target, the one that is there is served there.
    let (new, _) = lock_in(&locks, cluster, "{tag}new").await?;
    let at_target = new.write().await?;
    for name in ["{tag}stays", "{tag}new"] {
        assert!(other.rwlock(name)?.try_read().await?.is_none(), "{name}");
    }
    let exists = async |node: usize, name: &str| -> Result<bool> {
        let mut ask = redis::pipe();
        ask.cmd("ASKING").ignore().cmd("EXISTS").arg(format!("{PREFIX}{name}"));
        let mut connection = cluster.node(node).connect().await?;
        let (there,): (bool,) = ask.query_async(&mut connection).await?;
        Ok(there)
    };
    assert!(exists(step.to, "{tag}new").await? && !exists(step.to, "{tag}stays").await?);
    assert_eq!(at_target.release().await?, Released::Released);
    let waiting = tokio::spawn({
        let lock = other.rwlock("{tag}stays")?;
        async move { lock.write().await }
    });
    sleep(Duration::from_millis(300)).await;
    cluster.move_keys(step).await?;
    assert_eq!(at_source.release().await?, Released::Released);
    let next = timeout(LONG, waiting).await???;
    cluster.finish_move(step).await?;
    assert_eq!(next.release().await?, Released::Released);
    Ok(())
}

/// Tasks that take locks until they are told to stop, and say how often they did.
type Load = (Arc<AtomicBool>, Vec<JoinHandle<rwlease::Result<usize>>>);

fn load(locks: &[&Locks], name: &str) -> Result<Load> {
    let (stop, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(Inside::default()));
    let mut tasks = Vec::new();
    for (number, locks) in locks.iter().cycle().take(6).enumerate() {
        let (lock, stop, inside) = (locks.rwlock(name)?, stop.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) {
                if (number + turns) % 3 == 0 {
                    let guard = lock.write().await?;
                    inside.writes().await;
                    guard.release().await?;
                } else {
                    let guard = lock.read().await?;
                    inside.reads().await;
                    guard.release().await?;
                }
                turns += 1;
            }
            Ok(turns)
        }));
    }
    Ok((stop, tasks))
}

async fn stop((stop, tasks): (Arc<AtomicBool>, Vec<JoinHandle<rwlease::Result<usize>>>)) -> Result<usize> {
    stop.store(true, Ordering::Relaxed);
    let mut turns = 0;
    for task in tasks {
        turns += timeout(LONG, task).await???;
    }
    Ok(turns)
}

pub async fn exclusion_holds_while_slots_move(backend: Backend, cluster: &Cluster) -> Result {
    let (locks, other) = (connect(backend, cluster).await, connect(backend, cluster).await);
    let (lock, mut owner) = lock_in(&locks, cluster, "moving").await?;
    let load = load(&[&locks, &other], "moving")?;
    let begun = Instant::now();
    for turn in 0..20 {
        // With replicas, which hear of a move by gossip alone, each takes seconds.
        if turn >= 6 && begun.elapsed() > LONG / 3 {
            break;
        }
        owner = another(cluster, owner).await?;
        cluster.move_slot(lock.slot().get(), owner).await?;
        sleep(Duration::from_millis(50)).await;
    }
    assert!(stop(load).await? > 0);
    Ok(())
}

pub async fn one_who_waits_follows_the_slot(backend: Backend, cluster: &Cluster) -> Result {
    let (locks, other) = (connect(backend, cluster).await, connect(backend, cluster).await);
    let (lock, owner) = lock_in(&locks, cluster, "waited").await?;
    let held = lock.write().await?;
    let waiting = tokio::spawn({
        let lock = other.rwlock("waited")?;
        async move { lock.write().await }
    });
    sleep(Duration::from_millis(500)).await;
    cluster
        .move_slot(lock.slot().get(), another(cluster, owner).await?)
        .await?;
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    let token = held.token();
    assert_eq!(held.release().await?, Released::Released);
    let next = timeout(LONG, waiting).await???;
    assert!(next.token() > token);
    Ok(())
}

/// With looks so rare, only a push can tell in time.
pub async fn a_hand_off_needs_no_poll(backend: Backend, cluster: &Cluster) -> Result {
    if !cluster.version().has_sharded_pubsub() {
        return Ok(());
    }
    let settings = || {
        Locks::builder()
            .poll_interval(LONG)
            .waiter_liveness(LONG * 10)
            .lease(LONG * 10)
    };
    let locks = backend.connect(settings(), &cluster.urls()).await?;
    let other = backend.connect(settings(), &cluster.urls()).await?;
    // The first one to wait subscribes, and looks once more when it has.
    let held = locks.rwlock("pushed")?.write().await?;
    let mut waiting = tokio::spawn({
        let lock = other.rwlock("pushed")?;
        async move { lock.write().await }
    });
    sleep(Duration::from_secs(1)).await;
    held.release().await?;
    let held = timeout(LONG / 2, &mut waiting).await???;
    held.release().await?;
    Ok(())
}

pub async fn scripts_are_sent_where_they_are_unknown(backend: Backend) -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let locks = connect(backend, &cluster).await;
    for flush in 0..2 {
        for number in 0..8 {
            let lock = locks.rwlock(format!("script{number}"))?;
            assert_eq!(lock.write().await?.release().await?, Released::Released);
        }
        if flush == 0 {
            for node in cluster.nodes() {
                node.say::<()>("SCRIPT FLUSH").await?;
                node.reset_stats().await?;
            }
        }
    }
    for node in cluster.nodes() {
        let texts = node.calls("eval").await?;
        assert!((1..=4).contains(&texts), "{texts} times a script's text");
    }
    Ok(())
}

pub async fn keys_of_others_are_left_alone(backend: Backend) -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let locks = connect(backend, &cluster).await;
    let (text, owner) = lock_in(&locks, &cluster, "text").await?;
    let key = format!("{PREFIX}text");
    let _: () = cluster.node(owner).run(cmd("SET").arg(&key).arg("mine")).await?;
    assert_eq!(text.try_write().await.unwrap_err().kind(), ErrorKind::Foreign);
    let error = text.read().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::Foreign, Some("text")));
    let value: String = cluster.node(owner).run(cmd("GET").arg(&key)).await?;
    assert_eq!(value, "mine");

    let (hash, owner) = lock_in(&locks, &cluster, "hash").await?;
    let key = format!("{PREFIX}hash");
    let _: () = cluster
        .node(owner)
        .run(cmd("HSET").arg(&key).arg("read").arg("1"))
        .await?;
    assert_eq!(hash.write().await.unwrap_err().kind(), ErrorKind::Foreign);
    let fields: Vec<String> = cluster.node(owner).run(cmd("HGETALL").arg(&key)).await?;
    assert_eq!(fields, ["read", "1"]);
    Ok(())
}

pub async fn connections_that_are_cut_cost_nothing(backend: Backend) -> Result {
    let cluster = Cluster::start_with(Shape::of(2, 0)).await?;
    let (locks, other) = (connect(backend, &cluster).await, connect(backend, &cluster).await);
    let load = load(&[&locks, &other], "cut")?;
    assert!(cluster.storm(20, Duration::from_millis(50)).await? > 20);
    assert!(stop(load).await? > 20);
    Ok(())
}

pub async fn a_failover_by_order_loses_no_lock(backend: Backend, cluster: &Cluster) -> Result {
    let (locks, other) = (connect(backend, cluster).await, connect(backend, cluster).await);
    let (lock, owner) = lock_in(&locks, cluster, "ordered").await?;
    let held = lock.write().await?;
    let waiting = tokio::spawn({
        let lock = other.rwlock("ordered")?;
        async move { lock.write().await }
    });
    sleep(Duration::from_millis(300)).await;
    cluster
        .fail_over(cluster.replicas_of(owner).await?[0], Failover::Orderly)
        .await?;
    assert!(other.rwlock("ordered")?.try_read().await?.is_none());
    assert!(held.is_held());
    let token = held.token();
    assert_eq!(held.release().await?, Released::Released);
    assert!(timeout(LONG, waiting).await???.token() > token);
    Ok(())
}

pub async fn a_dead_master_is_replaced(backend: Backend, cluster: &Cluster) -> Result {
    let locks = connect(backend, cluster).await;
    let (lock, owner) = lock_in(&locks, cluster, "dead").await?;
    let token = lock.write().await?.token();
    cluster.node(owner).kill()?;
    let next = timeout(LONG, lock.write()).await??;
    assert!(next.token() > token);
    Ok(())
}

pub async fn a_frozen_master_is_left(backend: Backend, cluster: &Cluster) -> Result {
    let locks = connect(backend, cluster).await;
    let (lock, owner) = lock_in(&locks, cluster, "frozen").await?;
    let token = lock.write().await?.token();
    cluster.node(owner).freeze()?;
    let next = timeout(LONG, lock.write()).await??;
    assert!(next.token() > token);
    cluster.node(owner).thaw()?;
    Ok(())
}

pub async fn failures_to_connect_are_told_apart(backend: Backend) -> Result {
    let server = Single::start_with(ServerSettings::default().password("secret")).await?;
    let right = server.url();
    assert!(backend.connect(Locks::builder(), &[&right]).await.is_ok());
    let wrong = right.replace("secret", "wrong");
    assert_ne!(right, wrong);
    let error = backend.connect(Locks::builder(), &[wrong]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    server.kill()?;
    let error = backend.connect(Locks::builder(), &[&right]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    Ok(())
}

pub async fn a_single_server_will_do(backend: Backend) -> Result {
    let server = Single::start().await?;
    let locks = backend.connect(Locks::builder(), &[server.url()]).await?;
    let held = locks.rwlock("alone")?.write().await?;
    assert!(locks.rwlock("alone")?.try_read().await?.is_none());
    assert_eq!(held.release().await?, Released::Released);
    Ok(())
}
