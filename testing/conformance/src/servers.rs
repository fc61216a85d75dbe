//! Tests that change the servers: slots that move, masters that die, foreign keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rwlease::status::UncachedReason;
use rwlease::{Client, ErrorKind, ReleaseOutcome, RwLock, Slot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::LONG;
use super::site::Servers;
use testkit::{
    ExclusionCheck, PollLimit, Result, is_subscribed_waiter, spawn_write, wait_for_waiters,
    wait_renewed,
};

/// The beginning of a lock's key.
const PREFIX: &str = "rwlease:";

/// A client with long limits, because one server may be its only seed and the machine may be busy.
async fn patient(servers: &impl Servers) -> Client {
    let wait_limit = PollLimit::new("a server to let a client in");
    let connect = || async { Ok(servers.connect(Client::builder().call_timeout(LONG)).await?) };
    wait_limit.until_ok(connect).await.expect("connected")
}

/// A lock, and the master that has its key.
async fn lock_in(locks: &Client, servers: &impl Servers, name: &str) -> Result<(RwLock, usize)> {
    let lock = locks.rwlock(name)?;
    let master = servers.master_of(lock.slot()).await?;
    Ok((lock, master))
}

/// A waiter's entry, as the server has it.
async fn waiter(servers: &impl Servers, name: &str) -> Result<Option<String>> {
    let key = format!("{PREFIX}{name}");
    let master = servers.master_of(Slot::of(&key)).await?;
    let fields = servers.say(master, &["HGETALL", &key]).await?;
    let place = fields.iter().position(|field| field.starts_with("q:"));
    Ok(place.map(|place| fields[place + 1].clone()))
}

/// The next master that has slots.
async fn another(servers: &impl Servers, of: usize) -> Result<usize> {
    let masters = servers.masters().await?;
    let next = masters.iter().copied().find(|&master| master > of);
    Ok(next.unwrap_or(masters[0]))
}

pub async fn locks_follow_their_slot(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let (lock, mut master) = lock_in(&locks, servers, "followed").await?;
    let mut last = 0;
    for turn in 0..6 {
        let writing = lock.write().lease(Duration::from_secs(5)).await?;
        assert!(writing.fencing_token().get() > last);
        last = writing.fencing_token().get();
        master = another(servers, master).await?;
        servers.move_slot(lock.slot(), master).await?;
        assert!(other.rwlock("followed")?.try_read().await?.is_none());
        if turn == 0 {
            wait_renewed(&writing, 4).await?; // at its new master
        }
        assert_eq!(writing.release().await?, ReleaseOutcome::Released);
    }
    Ok(())
}

pub async fn locks_are_taken_while_their_slot_migrates(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let (stays, master) = lock_in(&locks, servers, "{tag}stays").await?;
    let at_source = stays.write().await?;
    let step = servers.begin_move(stays.slot(), another(servers, master).await?).await?;
    // A key that is not at the source is served by the target; a key that is at the source is
    // served there.
    let (new, _) = lock_in(&locks, servers, "{tag}new").await?;
    let at_target = new.write().await?;
    for name in ["{tag}stays", "{tag}new"] {
        assert!(other.rwlock(name)?.try_read().await?.is_none(), "{name}");
    }
    let key = |name: &str| format!("{PREFIX}{name}");
    assert!(
        servers.has_moved(step, &key("{tag}new")).await?
            && !servers.has_moved(step, &key("{tag}stays")).await?
    );
    assert_eq!(at_target.release().await?, ReleaseOutcome::Released);
    let waiting = spawn_write(&other.rwlock("{tag}stays")?);
    wait_for_waiters(&stays, 1).await?;
    servers.move_keys(step).await?;
    assert_eq!(at_source.release().await?, ReleaseOutcome::Released);
    let next = timeout(LONG, waiting).await???;
    servers.finish_move(step).await?;
    assert_eq!(next.release().await?, ReleaseOutcome::Released);
    Ok(())
}

/// Tasks that take locks until they are told to stop, and report how often they did.
type Load = (Arc<AtomicBool>, Vec<JoinHandle<rwlease::Result<usize>>>);

fn load(locks: &[&Client], name: &str) -> Result<Load> {
    let (stop, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(ExclusionCheck::default()));
    let mut tasks = Vec::new();
    for (number, locks) in locks.iter().cycle().take(6).enumerate() {
        let (lock, stop, inside) = (locks.rwlock(name)?, stop.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) {
                let _ = inside.takes(&lock, (number + turns) % 3 == 0).await?;
                turns += 1;
            }
            Ok(turns)
        }));
    }
    Ok((stop, tasks))
}

async fn stop((stop, tasks): Load) -> Result<usize> {
    stop.store(true, Ordering::Relaxed);
    let mut turns = 0;
    for task in tasks {
        turns += timeout(LONG, task).await???;
    }
    Ok(turns)
}

pub async fn exclusion_holds_while_slots_move(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let (lock, mut master) = lock_in(&locks, servers, "moving").await?;
    let load = load(&[&locks, &other], "moving")?;
    let begun = Instant::now();
    for turn in 0..20 {
        // With replicas, which learn of a move only by gossip, each move takes seconds.
        if turn >= 6 && begun.elapsed() > LONG / 3 {
            break;
        }
        master = another(servers, master).await?;
        servers.move_slot(lock.slot(), master).await?;
        sleep(Duration::from_millis(50)).await;
    }
    assert!(stop(load).await? > 0);
    Ok(())
}

/// Leases in many slots, which are renewed wherever the slots move, while others request one of the
/// locks.
pub async fn held_leases_survive_slot_moves_under_load(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let load = load(&[&locks, &other], "{loaded}wanted")?;
    let mut held = Vec::new();
    for number in 0..20 {
        let name = format!("{{loaded{}}}held{number}", number % 4);
        held.push((locks.rwlock(&name)?.write().lease(Duration::from_secs(3)).await?, name));
    }
    let (wanted, _) = lock_in(&locks, servers, "{loaded}wanted").await?;
    for (guard, _) in held.iter().take(4) {
        for slot in [guard.slot(), wanted.slot()] {
            let master = servers.master_of(slot).await?;
            servers.move_slot(slot, another(servers, master).await?).await?;
        }
        for (guard, name) in &held {
            assert!(guard.is_held(), "{name}");
            assert!(other.rwlock(name)?.try_read().await?.is_none(), "{name}");
        }
    }
    assert!(stop(load).await? > 0);
    for (guard, name) in held {
        assert_eq!(guard.release().await?, ReleaseOutcome::Released, "{name}");
    }
    Ok(())
}

pub async fn waiter_whose_slot_moves_is_granted_at_the_new_master(
    servers: &impl Servers,
) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let (lock, master) = lock_in(&locks, servers, "waited").await?;
    let held = lock.write().await?;
    let waiting = spawn_write(&other.rwlock("waited")?);
    wait_for_waiters(&lock, 1).await?;
    servers.move_slot(lock.slot(), another(servers, master).await?).await?;
    let before = waiter(servers, "waited").await?;
    let wait_limit = PollLimit::new("the waiter to poll at the new master");
    while waiter(servers, "waited").await? == before {
        wait_limit.pause(format!("{before:?}")).await?;
    }
    assert!(!waiting.is_finished());
    let token = held.fencing_token().get();
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    let next = timeout(LONG, waiting).await???;
    assert!(next.fencing_token().get() > token);
    Ok(())
}

/// Polls are so rare that only a push can notify in time.
pub async fn a_hand_off_needs_no_poll(servers: &impl Servers) -> Result {
    if !servers.push() {
        return Ok(());
    }
    let settings = || Client::builder().poll_interval(LONG).waiter_ttl(LONG * 10).lease(LONG * 10);
    let locks = servers.connect(settings()).await?;
    let other = servers.connect(settings()).await?;
    // The first waiter subscribes, and polls once more after that.
    let held = locks.rwlock("pushed")?.write().await?;
    let mut waiting = spawn_write(&other.rwlock("pushed")?);
    let wait_limit = PollLimit::new("the waiter to be pushed to");
    while !waiter(servers, "pushed").await?.is_some_and(|entry| is_subscribed_waiter(&entry)) {
        wait_limit.pause("it polls").await?;
    }
    let _ = held.release().await?;
    let held = timeout(LONG / 2, &mut waiting).await???;
    let _ = held.release().await?;
    Ok(())
}

/// Only a pushed recall can notify so soon: polls and contacts are rare.
pub async fn cached_lease_is_recalled_by_push_without_a_poll(servers: &impl Servers) -> Result {
    let locks = servers.connect(Client::builder()).await?;
    let lock = locks.rwlock("recalled")?.cached()?;
    let wait_limit = PollLimit::new("the lock to be cached");
    while lock.cache_status().hold.is_none() {
        drop(lock.write().await?);
        let why = lock.cache_status().uncached_reason;
        if !servers.push() && why == Some(UncachedReason::NotSubscribed) {
            return Ok(());
        }
        wait_limit.pause("it is plain").await?;
    }
    let other =
        servers.connect(Client::builder().poll_interval(LONG).waiter_ttl(LONG * 10)).await?;
    let held = lock.read().await?;
    let waiting = spawn_write(&other.rwlock("recalled")?);
    wait_for_waiters(&other.rwlock("recalled")?, 1).await?;
    assert!(lock.read().await?.is_held(), "the guards of a minimum hold");
    drop(held);
    let _ = timeout(LONG / 2, waiting).await???.release().await?;
    Ok(())
}

pub async fn scripts_are_sent_where_they_are_unknown(servers: &impl Servers) -> Result {
    let locks = patient(servers).await;
    for flush in 0..2 {
        for number in 0..24 {
            let lock = locks.rwlock(format!("script{number}"))?;
            assert_eq!(lock.write().await?.release().await?, ReleaseOutcome::Released);
        }
        if flush == 0 {
            servers.flush_scripts().await?;
        }
    }
    for texts in servers.texts_since().await? {
        assert!((1..=4).contains(&texts), "{texts} times a script's text");
    }
    Ok(())
}

pub async fn keys_of_others_are_left_alone(servers: &impl Servers) -> Result {
    let locks = patient(servers).await;
    let (text, master) = lock_in(&locks, servers, "text").await?;
    let key = format!("{PREFIX}text");
    servers.say(master, &["SET", &key, "mine"]).await?;
    assert_eq!(text.try_write().await.unwrap_err().kind(), ErrorKind::WrongType);
    let error = text.read().await.unwrap_err();
    assert_eq!((error.kind(), error.lock()), (ErrorKind::WrongType, Some("text")));
    assert_eq!(text.is_locked().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(text.is_held_by("other0000000").await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(servers.say(master, &["GET", &key]).await?, ["mine"]);

    let (hash, master) = lock_in(&locks, servers, "hash").await?;
    let key = format!("{PREFIX}hash");
    servers.say(master, &["HSET", &key, "read", "1"]).await?;
    assert_eq!(hash.write().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(hash.status().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(servers.say(master, &["HGETALL", &key]).await?, ["read", "1"]);

    let (lock, permits) = (locks.rwlock("one name")?, locks.semaphore("one name", 3)?);
    let held = lock.write().await?;
    for error in [
        permits.acquire(1).await.unwrap_err(),
        permits.set_limit(3, 4).await.unwrap_err(),
        permits.status().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }
    held.renew().await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);

    let (lock, permits) = (locks.rwlock("of permits")?, locks.semaphore("of permits", 3)?);
    let held = permits.acquire(1).await?;
    for error in [
        lock.read().await.unwrap_err(),
        lock.try_write().await.unwrap_err(),
        lock.status().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }
    held.renew().await?;
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    Ok(())
}

pub async fn connections_that_are_cut_cost_nothing(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let load = load(&[&locks, &other], "cut")?;
    servers.storm(20, Duration::from_millis(50)).await?;
    assert!(stop(load).await? > 20);
    Ok(())
}

pub async fn a_failover_by_order_loses_no_lock(servers: &impl Servers) -> Result {
    let (locks, other) = (patient(servers).await, patient(servers).await);
    let (lock, master) = lock_in(&locks, servers, "ordered").await?;
    let held = lock.write().await?;
    let waiting = spawn_write(&other.rwlock("ordered")?);
    wait_for_waiters(&lock, 1).await?;
    servers.fail_over(master).await?;
    assert!(other.rwlock("ordered")?.try_read().await?.is_none());
    assert!(held.is_held());
    let token = held.fencing_token().get();
    assert_eq!(held.release().await?, ReleaseOutcome::Released);
    assert!(timeout(LONG, waiting).await???.fencing_token().get() > token);
    Ok(())
}

pub async fn a_dead_master_is_replaced(servers: &impl Servers) -> Result {
    let locks = patient(servers).await;
    let (lock, master) = lock_in(&locks, servers, "dead").await?;
    let token = lock.write().await?.fencing_token().get();
    servers.kill(master).await?;
    let next = timeout(LONG, lock.write()).await??;
    assert!(next.fencing_token().get() > token);
    Ok(())
}

pub async fn a_frozen_master_is_left(servers: &impl Servers) -> Result {
    let locks = patient(servers).await;
    let (lock, master) = lock_in(&locks, servers, "frozen").await?;
    let token = lock.write().await?.fencing_token().get();
    servers.freeze(master).await?;
    let next = timeout(LONG, lock.write()).await??;
    assert!(next.fencing_token().get() > token);
    servers.thaw(master).await?;
    Ok(())
}
