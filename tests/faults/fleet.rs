//! Many clients, all of whose connections are cut at once, over TLS.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use redis::aio::MultiplexedConnection;
use rwlease::{Client, ReleaseOutcome};
use testkit::{ClientKind, PollLimit, Result, StandaloneServer};
use tokio::time::{Instant, sleep};

use crate::secure::{PASSWORD, RIGHTS, certificates, connect, settings};

const CLIENTS: usize = 200;
/// Half of the clients hold a lock, and the others wait for one.
const LOCKS: usize = CLIENTS / 2;
const LEASE: Duration = Duration::from_secs(10);
/// How many clients connect at a time in the beginning.
const AT_A_TIME: usize = 16;
/// The interval in which dials are counted.
const BUCKET: Duration = Duration::from_millis(50);

/// The connections that the server has accepted so far.
async fn dials(server: &mut MultiplexedConnection) -> Result<usize> {
    let stats: String = redis::cmd("INFO").arg("stats").query_async(server).await?;
    let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    Ok(count.unwrap_or_default().trim().parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_whose_connections_are_cut_keeps_its_leases() -> Result {
    let certificates = certificates();
    let server = StandaloneServer::start_with(settings(&certificates, RIGHTS)).await?;
    let dialed = stream::iter(0..CLIENTS)
        .map(|_| connect(&server, PASSWORD, &certificates.authority))
        .buffered(AT_A_TIME);
    let clients: Vec<Client> = dialed.try_collect().await?;
    let (mut held, mut waits) = (Vec::new(), Vec::new());
    for number in 0..LOCKS {
        let name = format!("fleet{number}");
        held.push(clients[number].rwlock(&name)?.write().lease(LEASE).await?);
        let lock = clients[LOCKS + number].rwlock(&name)?;
        waits.push(tokio::spawn(async move { lock.write().lease(LEASE).await?.release().await }));
    }
    let limit = PollLimit::new("all to be subscribed");
    while server.client_count(ClientKind::Subscribed).await? < LOCKS as u64 {
        limit.pause("not yet").await?;
    }

    let mut admin = server.connect().await?;
    let before = dials(&mut admin).await?;
    let cut = server.kill_clients(ClientKind::Subscribed).await?
        + server.kill_clients(ClientKind::Commands).await?;
    assert!(cut >= (CLIENTS + LOCKS) as u64, "{cut} connections");
    let began = Instant::now();
    // It closes the connection of the count as well.
    let mut admin = server.connect().await?;
    let (mut last, mut buckets) = (before, Vec::new());
    while began.elapsed() < LEASE / 2 {
        sleep(BUCKET).await;
        let count = dials(&mut admin).await?;
        buckets.push(count - last);
        last = count;
    }
    println!("{cut} connections cut; dials in each {BUCKET:?}: {buckets:?}");
    assert!(last - before <= 2 * cut as usize, "{} dials after {cut} cuts", last - before);

    for (number, guard) in held.into_iter().enumerate() {
        assert!(guard.is_held(), "lease {number}");
        assert_eq!(guard.release().await?, ReleaseOutcome::Released, "lease {number}");
    }
    for wait in waits {
        assert_eq!(wait.await??, ReleaseOutcome::Released);
    }
    Ok(())
}
