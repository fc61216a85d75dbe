//! The lease ends at the client before it ends at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use rwlease::{Client, Lease};
use tokio::time::{Instant, sleep};

use testkit::{ConnectBuilder, Proxy, ProxyFlow, StandaloneServer, decode_lock};

const SAMPLES: usize = 10_000;
const LEASE: Duration = Duration::from_secs(1);

/// Small, so that inexact deadlines show.
const MARGIN: Duration = Duration::from_millis(3);

/// The delay of each answer, which is more than the margin.
const LATE: Duration = Duration::from_millis(8);

#[derive(Default)]
struct Count {
    /// The lease ended at the client first, whatever the time that the check took.
    good: AtomicUsize,
    /// The check took too long to decide.
    unclear: AtomicUsize,
    bad: AtomicUsize,
    /// Grants through the proxy.
    proxied: AtomicUsize,
    done: AtomicBool,
}

impl Count {
    fn is_done(&self) -> bool {
        self.good.load(Ordering::Relaxed) >= SAMPLES || self.done.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_ends_at_the_client_before_it_ends_at_the_server() {
    let server = StandaloneServer::start().await.unwrap();
    let proxy = Proxy::start(&server).await.unwrap();
    proxy.replies(ProxyFlow::Slow(LATE));
    let count = Arc::new(Count::default());
    let mut tasks = Vec::new();
    for client in 0..4 {
        let is_proxied = client % 2 == 0;
        let url = if is_proxied { proxy.url() } else { server.url() };
        let builder = Client::builder().lease(LEASE).safety_margin(MARGIN);
        let locks =
            builder.response_timeout(Duration::from_millis(60)).connect_to(&[url]).await.unwrap();
        for lock in 0..4 {
            let connection = server.connect().await.unwrap();
            tasks.push(tokio::spawn(contend(
                locks.clone(),
                format!("c{lock}"),
                connection,
                count.clone(),
                is_proxied,
            )));
        }
    }
    // Cut connections make the client retry its acquires.
    let (mut cuts, mut before) = (0, 0);
    let start = Instant::now();
    while !count.is_done() && start.elapsed() < Duration::from_secs(120) {
        sleep(Duration::from_millis(70)).await;
        // A busy machine connects slowly.
        let granted = count.proxied.load(Ordering::Relaxed);
        if granted > before {
            proxy.cut();
            (cuts, before) = (cuts + 1, granted);
        }
    }
    count.done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let pushes = server.calls("spublish").await.unwrap();
    let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
    let (good, unclear, bad) = (read(&count.good), read(&count.unclear), read(&count.bad));
    println!("{good} samples, {unclear} unclear, {bad} bad; {pushes} pushes, {cuts} cuts");
    assert_eq!(bad, 0);
    assert!(good >= SAMPLES && pushes > 100 && cuts > 10);
}

/// Takes a contended lock, and checks its lease several times, from its first moment on.
async fn contend(
    locks: Client,
    name: String,
    mut connection: MultiplexedConnection,
    count: Arc<Count>,
    is_proxied: bool,
) {
    let lock = locks.rwlock(&name).unwrap();
    while !count.is_done() {
        let guard = lock.write().timeout(Duration::from_secs(20)).await.unwrap();
        count.proxied.fetch_add(is_proxied.into(), Ordering::Relaxed);
        for _ in 0..8 {
            look(&name, &guard, &mut connection, &count).await;
        }
        let _ = guard.release().await.unwrap();
    }
}

async fn look(name: &str, lease: &Lease, connection: &mut MultiplexedConnection, count: &Count) {
    let key = format!("rwlease:{name}");
    let start = Instant::now();
    let here = lease.remaining();
    if here.is_zero() {
        return;
    }
    let mut both = redis::pipe();
    both.cmd("TIME").cmd("HGETALL").arg(key);
    let ((seconds, micros), read): ((u64, u64), _) = both.query_async(connection).await.unwrap();
    let took = start.elapsed();
    let writer = decode_lock(read).writer;
    let (deadline, token) = writer.map_or((0, 0), |writer| (writer.deadline, writer.token));
    let now = Duration::from_micros(seconds * 1_000_000 + micros);
    let there = if token == lease.fencing_token().map_or(0, u64::from) {
        Duration::from_millis(deadline).saturating_sub(now)
    } else {
        Duration::ZERO
    };
    let counter = if here <= there {
        &count.good
    } else if here <= there + took {
        &count.unclear
    } else {
        eprintln!("{name}: {here:?} here, {there:?} at the server, {took:?} to look");
        &count.bad
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
