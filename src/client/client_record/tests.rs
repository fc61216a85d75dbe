#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use super::*;
use crate::embedded::EmbeddedCluster;
use crate::{Client, Slot};

const HOUR: Duration = Duration::from_secs(3600);

fn engine() -> EmbeddedCluster {
    EmbeddedCluster::builder().masters(3).replicas(0).manual_time().build()
}

async fn labelled(engine: &EmbeddedCluster, label: &str) -> Client {
    Client::builder().label(label).connect_embedded(engine).await.unwrap()
}

/// Lets the tasks of all clients run.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A command on the record of a client, at its master.
fn on_record(engine: &EmbeddedCluster, client: &str, words: &[&str]) -> String {
    let key = format!("rwlease:client:{client}");
    let master = engine.faults().master_of(Slot::of(&key));
    let words: Vec<&[u8]> = words
        .iter()
        .map(|word| if *word == "KEY" { key.as_bytes() } else { word.as_bytes() })
        .collect();
    engine.execute(master, &words).concat()
}

fn ttl_ms(engine: &EmbeddedCluster, client: &str) -> i64 {
    let reply = on_record(engine, client, &["PTTL", "KEY"]);
    reply.trim_start_matches(':').trim().parse().unwrap()
}

#[tokio::test]
async fn record_is_written_after_connecting_and_kept_for_two_hours() {
    let engine = engine();
    let client = labelled(&engine, "billing").await;
    settle().await;
    let record = on_record(&engine, &client.client_id(), &["GET", "KEY"]);
    let start = engine.now().as_millis();
    let (pid, host) = (std::process::id(), host_name());
    let text = format!("1 {start} {pid} {LIB_NAME}/{LIB_VERSION} {host} billing");
    assert!(record.contains(&text), "{record} {text}");
    assert_eq!(ttl_ms(&engine, &client.client_id()), 2 * 3_600_000);
}

#[tokio::test]
async fn record_is_renewed_within_an_hour_with_the_same_start_for_a_day() {
    let engine = engine();
    let client = labelled(&engine, "billing").await;
    settle().await;
    let before = on_record(&engine, &client.client_id(), &["GET", "KEY"]);
    engine.advance(HOUR / 2);
    settle().await;
    assert_eq!(ttl_ms(&engine, &client.client_id()), 2 * 3_600_000 - 1_800_000);
    engine.advance(HOUR / 2);
    settle().await;
    assert_eq!(ttl_ms(&engine, &client.client_id()), 24 * 3_600_000);
    assert_eq!(on_record(&engine, &client.client_id(), &["GET", "KEY"]), before);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn record_of_a_dead_holder_is_shown_until_it_expires() {
    let engine = engine();
    let dying = runtime();
    let (dead, guard) = dying.block_on(async {
        let client = labelled(&engine, "billing").await;
        settle().await;
        let lock = client.rwlock("a").unwrap();
        let guard = lock.write().lease(25 * HOUR).await.unwrap();
        (client, guard)
    });
    drop(dying); // nothing is released
    runtime().block_on(async {
        // Each observer is new, and knows nobody.
        let writer = async || {
            let observer = labelled(&engine, "").await;
            observer.rwlock("a").unwrap().status().await.unwrap().writer.unwrap()
        };
        let info = writer().await.client.unwrap();
        assert_eq!((&*info.label, info.pid), ("billing", std::process::id()));
        let start = info.started_at.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(start.as_millis(), engine.now().as_millis());
        engine.advance(2 * HOUR + Duration::from_millis(1));
        let writer = writer().await;
        assert!(writer.id.starts_with(&dead.client_id()) && writer.client.is_none(), "{writer:?}");
    });
    drop(guard);
}

#[tokio::test]
async fn status_shows_the_clients_of_readers_and_waiters() {
    let engine = engine();
    let (reader, waiter) = (labelled(&engine, "reader").await, labelled(&engine, "waiter").await);
    let observer = labelled(&engine, "").await;
    let guard = reader.rwlock("a").unwrap().read().await.unwrap();
    let lock = waiter.rwlock("a").unwrap();
    let waiting = tokio::spawn(async move { lock.write().await.unwrap().release().await });
    settle().await;
    let status = observer.rwlock("a").unwrap().status().await.unwrap();
    let label = |info: &Option<ClientInfo>| info.as_ref().map(|info| info.label.clone());
    assert_eq!(label(&status.readers[0].client).as_deref(), Some("reader"));
    assert_eq!(label(&status.waiters[0].client).as_deref(), Some("waiter"));
    let without = observer.rwlock("a").unwrap().status().clients(false).await.unwrap();
    assert_eq!(label(&without.readers[0].client), None);
    drop(guard);
    let _ = waiting.await.unwrap();
}

#[tokio::test]
async fn semaphore_status_shows_the_clients_of_holders_and_waiters() {
    let engine = engine();
    let (holder, waiter) = (labelled(&engine, "holder").await, labelled(&engine, "waiter").await);
    let observer = labelled(&engine, "").await;
    let permit = holder.semaphore("s", 1).unwrap().acquire(1).await.unwrap();
    let semaphore = waiter.semaphore("s", 1).unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire(1).await.unwrap().release().await });
    settle().await;
    let status = observer.semaphore("s", 1).unwrap().status().await.unwrap();
    assert_eq!(status.holders[0].client.as_ref().unwrap().label, "holder");
    assert_eq!(status.waiters[0].client.as_ref().unwrap().label, "waiter");
    drop(permit);
    let _ = waiting.await.unwrap();
}

#[tokio::test]
async fn client_without_a_label_has_no_record() {
    let engine = engine();
    let client = labelled(&engine, "").await;
    settle().await;
    let guard = client.rwlock("a").unwrap().write().await.unwrap();
    let status = client.rwlock("a").unwrap().status().await.unwrap();
    assert!(status.writer.unwrap().client.is_none());
    assert_eq!(on_record(&engine, &client.client_id(), &["EXISTS", "KEY"]).trim(), "0");
    drop(guard);
}

#[tokio::test]
async fn clients_with_one_label_have_records_of_their_own() {
    let engine = engine();
    let (one, other) = (labelled(&engine, "twin").await, labelled(&engine, "twin").await);
    settle().await;
    assert_ne!(one.client_id(), other.client_id());
    for client in [&one, &other] {
        assert_eq!(on_record(&engine, &client.client_id(), &["EXISTS", "KEY"]).trim(), "1");
    }
}

#[tokio::test]
async fn record_after_a_failed_write_is_written_within_a_minute() {
    let engine = engine();
    (0..3).for_each(|server| engine.faults().set_cluster_down(server, true));
    let client = labelled(&engine, "billing").await;
    settle().await;
    engine.advance(Duration::from_secs(11));
    settle().await;
    (0..3).for_each(|server| engine.faults().set_cluster_down(server, false));
    assert_eq!(on_record(&engine, &client.client_id(), &["EXISTS", "KEY"]).trim(), "0");
    engine.advance(Duration::from_secs(60));
    settle().await;
    assert_eq!(on_record(&engine, &client.client_id(), &["EXISTS", "KEY"]).trim(), "1");
}

#[tokio::test]
async fn status_while_the_records_are_away_shows_ids_after_a_second() {
    let engine = engine();
    let holder = labelled(&engine, "holder").await;
    settle().await;
    let record = Slot::of(format!("rwlease:client:{}", holder.client_id()));
    let away = engine.faults().master_of(record);
    let here =
        |name: &String| engine.faults().master_of(Slot::of(format!("rwlease:{name}"))) != away;
    let name = (0..).map(|n| format!("lock-{n}")).find(here).unwrap();
    let guard = holder.rwlock(&name).unwrap().write().await.unwrap();
    let observer = labelled(&engine, "").await;
    engine.faults().pause(away);
    let lock = observer.rwlock(&name).unwrap();
    let query = tokio::spawn(async move { lock.status().await });
    settle().await;
    assert!(!query.is_finished());
    engine.advance(Duration::from_secs(1));
    settle().await;
    let status = query.await.unwrap().unwrap();
    assert!(status.writer.unwrap().client.is_none());
    engine.faults().resume(away);
    drop(guard);
}

#[tokio::test]
async fn known_client_is_not_read_again() {
    let engine = engine();
    let holder = labelled(&engine, "holder").await;
    let guard = holder.rwlock("a").unwrap().write().await.unwrap();
    settle().await;
    let observer = labelled(&engine, "observer").await;
    settle().await;
    let lock = observer.rwlock("a").unwrap();
    for scripts in [2, 1, 1] {
        engine.reset_script_stats();
        let status = lock.status().await.unwrap();
        assert_eq!(status.writer.unwrap().client.unwrap().label, "holder");
        assert_eq!(engine.script_stats().scripts, scripts);
    }
    drop(guard);
}

#[tokio::test]
async fn client_that_has_ended_leaves_no_task() {
    let engine = engine();
    let client = labelled(&engine, "billing").await;
    settle().await;
    let inner = Arc::downgrade(&client.client.0);
    drop(client);
    settle().await;
    assert!(inner.upgrade().is_none(), "the task of the record holds the client");
}

#[test]
fn known_clients_are_limited() {
    let known = KnownClients::default();
    for number in 0..3 * MAX_KNOWN {
        let mut id = [0; 11];
        id[0] = (number % 64) as u8;
        id[1] = (number / 64) as u8;
        known.insert(ClientId::from_random(id), LocalInstant::default(), None);
        assert!(lock(&known.0).len() <= MAX_KNOWN);
    }
}

/// Makes the observer know as many clients as it can.
fn fill(observer: &Client) {
    let known = &observer.client.0.known_clients;
    for number in 0..MAX_KNOWN {
        let mut id = [0; 11];
        (id[0], id[1]) = ((number % 64) as u8, (number / 64) as u8);
        if lock(&known.0).len() < MAX_KNOWN {
            known.insert(ClientId::from_random(id), LocalInstant::default(), None);
        }
    }
}

#[tokio::test]
async fn status_with_as_many_known_clients_as_can_be_shows_all_clients() {
    let engine = engine();
    let clients = [labelled(&engine, "one").await, labelled(&engine, "other").await];
    settle().await;
    let observer = labelled(&engine, "").await;
    let lock = observer.rwlock("a").unwrap();
    let mut guards = Vec::new();
    for (client, labels) in clients.iter().zip([&["one"][..], &["one", "other"]]) {
        engine.advance(Duration::from_secs(1));
        fill(&observer);
        guards.push(client.rwlock("a").unwrap().read().await.unwrap());
        let status = lock.status().await.unwrap();
        let shown: Vec<_> =
            status.readers.iter().map(|reader| reader.client.clone().unwrap().label).collect();
        assert_eq!(shown, labels);
    }
    let known = &observer.client.0.known_clients;
    let now = observer.client.0.clock.now();
    assert!(known.get(&clients[0].client.0.id(), now).is_some(), "a client read later stays known");
}

#[tokio::test]
async fn record_whose_slot_moves_is_read_and_renewed_at_the_new_master() {
    let engine = engine();
    let holder = labelled(&engine, "holder").await;
    let guard = holder.rwlock("a").unwrap().write().await.unwrap();
    settle().await;
    let id = holder.client_id();
    let slot = Slot::of(format!("rwlease:client:{id}"));
    let (faults, from) = (engine.faults(), engine.faults().master_of(slot));
    let label = async || {
        let observer = labelled(&engine, "").await; // knows nobody
        let status = observer.rwlock("a").unwrap().status().await.unwrap();
        status.writer.unwrap().client.map(|info| info.label)
    };
    assert!(faults.begin_move(slot, (from + 1) % 3));
    while faults.move_key(slot) {}
    assert_eq!(label().await.as_deref(), Some("holder"), "by ASK");
    assert!(faults.finish_move(slot));
    assert_eq!(label().await.as_deref(), Some("holder"));
    engine.advance(HOUR);
    settle().await;
    assert_eq!(ttl_ms(&engine, &id), 24 * 3_600_000, "by MOVED");
    drop(guard);
}
