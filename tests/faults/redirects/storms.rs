//! Connections that are cut, and scripts that are flushed, repeatedly and under load.

use std::sync::Arc;
use std::time::Duration;

use rwlease::{ErrorKind, Locks};

use super::book::{Book, Overlaps};
use super::load::Load;
use super::raw::{self, Witness};
use super::{LONG, PATIENCE, client, key, on_cluster};
use crate::support::{
    Cluster, ConnectBuilder, Error, PollLimit, Proxy, ProxyFlow, Result, StandaloneServer, fields,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_cut_connections_mixes_no_replies_and_leaves_nothing() -> Result {
    const ROUNDS: usize = 100;
    on_cluster(async |cluster: Arc<Cluster>| {
        let clients = [client(&cluster).await?, client(&cluster).await?];
        let names: Vec<String> = (0..9).map(|number| format!("storm:{number}")).collect();
        let book = Book::new(Overlaps::Never);
        let mut load = Load::start(&clients, 8, &names, &book, Some(Witness::new(cluster.clone())));
        load.advance(50).await?;
        let mut killed = 0;
        for _ in 0..ROUNDS {
            killed += cluster.kill_clients_repeatedly(1, Duration::from_millis(20)).await?;
            load.advance(1).await?;
        }
        // The witness has connections too. Each of the six nodes has at most three of them.
        assert!(killed > ROUNDS as u64, "{killed} connections were killed");
        load.advance(50).await?;
        let rounds = load.finish().await?;
        assert_eq!(book.grants() as u64, rounds);
        raw::vacant(&cluster, &names).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_may_be_forgotten_at_any_time() -> Result {
    const ROUNDS: usize = 100;
    on_cluster(async |cluster: Arc<Cluster>| {
        let clients = [client(&cluster).await?, client(&cluster).await?];
        let names: Vec<String> = (0..9).map(|number| format!("flush:{number}")).collect();
        raw::reset_errors(&cluster).await?;
        let book = Book::new(Overlaps::Never);
        let mut load = Load::start(&clients, 4, &names, &book, None);
        for _ in 0..ROUNDS {
            for number in cluster.masters().await? {
                cluster.node(number).run_words::<()>("SCRIPT FLUSH").await?;
            }
            load.advance(2).await?;
        }
        let rounds = load.finish().await?;
        assert_eq!(book.grants() as u64, rounds);
        assert!(raw::errors(&cluster, "NOSCRIPT").await? > ROUNDS as u64);
        raw::vacant(&cluster, &names).await
    })
    .await
}

/// The silence is longer than a place in the queue lives, and the lease is longer than the silence.
/// The client knows only that it has requested a place.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_answer_was_lost_is_given_back_after_a_long_silence() -> Result {
    let server = StandaloneServer::start().await?;
    let proxy = Proxy::start(&server).await?;
    let locks = Locks::builder()
        .lease(LONG)
        .call_timeout(Duration::from_millis(500))
        .poll_interval(Duration::from_millis(100))
        .waiter_ttl(Duration::from_millis(300))
        .connect_to(&[proxy.url()])
        .await?;
    let lock = locks.rwlock("silence")?;
    // Loads the scripts into the server.
    let _ = lock.write().await?.release().await?;
    proxy.replies(ProxyFlow::Dropped);
    let waiting =
        tokio::spawn(async move { lock.write().timeout(Duration::from_secs(2)).await.map(drop) });
    written(&server, true).await?;
    proxy.drop_all();
    let error = waiting.await?.err().ok_or_else(|| Error::new("it was granted"))?;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    tokio::time::sleep(Duration::from_secs(8)).await;
    written(&server, true).await?;
    proxy.heal();
    written(&server, false).await
}

/// Waits until the lock has a writer, or has none.
async fn written(server: &StandaloneServer, is_written: bool) -> Result {
    let wait_limit = PollLimit::limited(format!("written: {is_written}"), PATIENCE / 2);
    while fields(server, &key("silence")).await?.contains_key("writer") != is_written {
        wait_limit.pause(!is_written).await?;
    }
    Ok(())
}
