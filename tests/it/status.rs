//! Queries about locks on real servers: holders, waiters, whether a lock is locked, and which locks
//! exist.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use futures::StreamExt;
use redis::cmd;
use rwlease::{Client, ErrorKind, LockMode, RwLock, Slot};
use testkit::{
    Cluster, ClusterConfig, ConnectBuilder, PollLimit, StandaloneServer, connect, wait_for_waiters,
};
use tokio::task::JoinHandle;

use crate::fixture::{eventually, single};

#[tokio::test(flavor = "multi_thread")]
async fn status_of_an_unknown_lock_is_free() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("unknown").unwrap();
    let status = lock.status().await.unwrap();
    assert!(!status.is_locked() && status.is_last() && status.waiters.is_empty());
    assert_eq!((status.last_token, status.reader_count, status.waiter_count), (None, 0, 0));
    assert!(!lock.is_locked().await.unwrap());
}

/// A waiter that drops what it is granted.
fn wait_in(mode: LockMode, lock: &RwLock) -> JoinHandle<()> {
    let lock = lock.clone();
    tokio::spawn(async move {
        match mode {
            LockMode::Read => drop(lock.read().await.unwrap()),
            LockMode::Write => drop(lock.write().await.unwrap()),
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_holder_and_waiters_in_queue_order() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("order:{42}").unwrap();
    let writing = lock.write().lease(Duration::from_secs(60)).await.unwrap();
    let mut tasks = Vec::new();
    for (place, mode) in
        [LockMode::Read, LockMode::Write, LockMode::Write, LockMode::Read].into_iter().enumerate()
    {
        tasks.push(wait_in(mode, &lock));
        wait_for_waiters(&lock, place as u64 + 1).await.unwrap();
    }
    let status = lock.status().await.unwrap();
    let writer = status.writer.as_ref().expect("somebody writes");
    assert_eq!((writer.id.as_str(), writer.mode), (writing.id(), LockMode::Write));
    let token = writing.fencing_token();
    assert_eq!((writer.fencing_token, status.last_token), (token, Some(token)));
    let left = writer.lease_remaining;
    assert!(left <= Duration::from_secs(60) && left > Duration::from_secs(1), "{left:?}");
    assert!(writer.held_for < Duration::from_secs(60) && !writer.revoked);
    let modes: Vec<LockMode> = status.waiters.iter().map(|waiter| waiter.mode).collect();
    assert_eq!(modes, [LockMode::Read, LockMode::Write, LockMode::Write, LockMode::Read]);
    for pair in status.waiters.windows(2) {
        assert!(pair[0].waiting_for >= pair[1].waiting_for, "{pair:?}");
        assert!(!pair[0].ttl_remaining.is_zero());
    }
    assert!(lock.is_locked().await.unwrap());

    lock.revoke().await.unwrap();
    assert!(lock.status().await.unwrap().writer.unwrap().revoked);
    let _ = writing.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_the_upgrader_among_the_readers_too() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("a").unwrap();
    let (mine, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let id = mine.id().to_owned();
    assert!(lock.status().await.unwrap().upgrader.is_none());
    let upgrade = tokio::spawn(mine.upgrade().into_future());
    wait_for_waiters(&lock, 1).await.unwrap();
    let status = lock.status().await.unwrap();
    let upgrader = status.upgrader.expect("it waits");
    assert_eq!((upgrader.id.as_str(), upgrader.mode), (id.as_str(), LockMode::Write));
    assert!(!upgrader.ttl_remaining.is_zero(), "{upgrader:?}");
    assert!(status.readers.iter().any(|holder| holder.id == id) && status.waiters.is_empty());
    // The age rises while it waits.
    let age = async || lock.status().await.unwrap().upgrader.expect("it waits on").waiting_for;
    eventually("it is older", async || age().await > upgrader.waiting_for).await;
    let _ = other.release().await.unwrap();
    let _ = upgrade.await.unwrap().unwrap().release().await.unwrap();
    assert!(lock.status().await.unwrap().upgrader.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn status_pages_are_bounded_and_show_each_holder_and_waiter_once() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("pages").unwrap();
    let mut reading = Vec::new();
    for _ in 0..23 {
        reading.push(lock.read().await.unwrap());
    }
    let mut tasks = Vec::new();
    for place in 0..17u64 {
        // A writer first, so that the readers after it wait.
        let mode = if place % 3 == 0 { LockMode::Write } else { LockMode::Read };
        tasks.push(wait_in(mode, &lock));
        wait_for_waiters(&lock, place + 1).await.unwrap();
    }
    let (mut readers, mut waiting) = (BTreeSet::new(), Vec::new());
    let mut page = lock.status().page_size(5).await.unwrap();
    loop {
        assert!(page.readers.len() <= 5 && page.waiters.len() <= 5);
        assert_eq!((page.reader_count, page.waiter_count), (23, 17));
        readers.extend(page.readers.iter().map(|reader| reader.id.clone()));
        waiting.extend(page.waiters.iter().map(|waiter| (waiter.id.clone(), waiter.mode)));
        if page.is_last() {
            break;
        }
        page = lock.status().page_size(5).after(&page).await.unwrap();
    }
    let held: BTreeSet<String> = reading.iter().map(|guard| guard.id().to_owned()).collect();
    assert_eq!(readers, held);
    let modes: Vec<bool> = waiting.iter().map(|(_, mode)| *mode == LockMode::Write).collect();
    assert_eq!(modes, (0..17).map(|place| place % 3 == 0).collect::<Vec<_>>());
    let each: BTreeSet<_> = waiting.into_iter().map(|(id, _)| id).collect();
    assert_eq!(each.len(), 17, "each waiter once");
    let behind = lock.status().after(&page).await.unwrap();
    assert!(behind.is_last() && behind.readers.is_empty() && behind.waiters.is_empty());
    drop(reading);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn is_held_by_matches_one_acquisition() {
    let (_server, locks) = single().await;
    let lock = locks.rwlock("whose").unwrap();
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert!(lock.is_held_by(first.id()).await.unwrap());
    assert!(lock.is_held_by(second.id()).await.unwrap());
    let id = first.id().to_owned();
    let _ = first.release().await.unwrap();
    assert!(!lock.is_held_by(&id).await.unwrap());
    assert!(lock.is_locked().await.unwrap());
    for nobody in ["", "nobody", "somebody else's text, with spaces"] {
        assert!(!lock.is_held_by(nobody).await.unwrap());
    }
    let _ = second.release().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

/// Expired readers that no call has swept yet hold nothing, whatever their number.
#[tokio::test(flavor = "multi_thread")]
async fn is_locked_ignores_expired_readers() {
    let (server, locks) = single().await;
    let lock = locks.rwlock("dead").unwrap();
    // 120 readers whose lease is over, then one that lives.
    let seed = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)
        for i = 0, 120 do
            local id = string.format('other%013d', i)
            local ends = i == 120 and tonumber(ARGV[1]) > 0 and now + 60000 or now - 1000
            redis.call('HSET', KEYS[1], 'r:' .. id, string.format('h%013.0f%016.0f%d', ends, i + 1, i), 'i:' .. i, id)
        end
        redis.call('HSET', KEYS[1], 's', string.format('2S%013.0f%016d%013d0%d', now + 120000, 121, 1, 121))";
    for living in [1, 0] {
        let mut script = cmd("EVAL");
        script.arg(seed).arg(1).arg("rwlease:dead").arg(living);
        server.run::<()>(&script).await.unwrap();
        assert_eq!(lock.is_locked().await.unwrap(), living == 1);
        let page = lock.status().await.unwrap();
        assert_eq!((page.reader_count, page.readers.len(), page.is_last()), (121, 0, false));
        let next = lock.status().after(&page).await.unwrap();
        assert_eq!((next.readers.len(), next.is_last()), (living, true));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_finds_locks_on_all_masters() {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let locks = connect(&cluster.urls()).await.unwrap();
    let mut held = Vec::new();
    let mut names = BTreeSet::new();
    for number in 0..150 {
        let name = format!("order*[{number}]");
        held.push(locks.rwlock(&name).unwrap().read().await.unwrap());
        names.insert(name);
        held.push(locks.rwlock(format!("orders:{number}")).unwrap().read().await.unwrap());
    }
    // Keys that are not locks of this client.
    for words in ["HSET order*[x] a 1", "SET rwlease:order*[text] a"] {
        let slot = Slot::of(words.split(' ').nth(1).unwrap());
        let master = cluster.master_of(slot.get()).await.unwrap();
        cluster.node(master).run_words::<redis::Value>(words).await.unwrap();
    }

    let mut listed = Vec::new();
    let mut listing = locks.scan("order*[").scan_count(20);
    while let Some(page) = listing.next_page().await.unwrap() {
        assert!(!page.is_empty());
        listed.extend(page);
    }
    assert_eq!(listing.next_page().await.unwrap(), None, "it stays at its end");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);

    let all: BTreeSet<String> = locks.scan("").into_stream().map(Result::unwrap).collect().await;
    assert_eq!(all.len(), 300);
    assert_eq!(locks.scan("none").into_stream().count().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_with_a_silent_master_fails_and_resumes() {
    let server = StandaloneServer::start().await.unwrap();
    let settings = Client::builder().call_timeout(Duration::from_millis(300));
    let locks = settings.connect_to(&[server.url()]).await.unwrap();
    let _held = locks.rwlock("one").unwrap().read().await.unwrap();
    let mut listing = locks.scan("");
    server.freeze().unwrap();
    let failed = listing.next_page().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    server.thaw().unwrap();
    let wait_limit = PollLimit::new("the listing to go on");
    let page = loop {
        match listing.next_page().await {
            Ok(page) => break page,
            Err(error) => wait_limit.pause(error).await.unwrap(),
        }
    };
    assert_eq!(page, Some(vec!["one".to_string()]));
}
