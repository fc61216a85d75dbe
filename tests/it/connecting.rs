//! Clients that wait for servers that start later.

use std::time::{Duration, Instant};

use rwlease::{Client, ErrorKind, Result};
use tokio::time::sleep;

use testkit::{
    Cluster, ClusterConfig, SentinelDeployment, Server, ServerSettings, StandaloneServer,
};

const DELAY: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(40);

async fn connect(urls: &[String], wait: Option<Duration>) -> Result<Client> {
    let settings = Client::builder().urls(urls);
    wait.into_iter().fold(settings, rwlease::ClientBuilder::wait_for_servers).connect().await
}

/// All servers are down, and start after a delay. Only a client that waits is connected.
async fn waits_for(servers: &[&Server], urls: Vec<String>) {
    servers.iter().for_each(|server| server.kill().unwrap());
    let began = Instant::now();
    let at_once = connect(&urls, None).await.unwrap_err();
    assert_eq!(at_once.kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < DELAY, "{:?}", began.elapsed());
    let start = async {
        sleep(DELAY).await;
        for server in servers {
            server.restart().await.unwrap();
        }
    };
    let connecting = async { (connect(&urls, Some(WAIT)).await.unwrap(), began.elapsed()) };
    let ((client, waited), ()) = tokio::join!(connecting, start);
    assert!(waited >= DELAY);
    let guard = client.rwlock("late").unwrap().write().timeout(WAIT).await.unwrap();
    assert!(guard.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_servers_connects_to_a_standalone_server_that_starts_later() {
    let server = StandaloneServer::start().await.unwrap();
    waits_for(&[&server], vec![server.url()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_servers_connects_to_a_cluster_that_starts_later() {
    let cluster = Cluster::start_with(ClusterConfig::of(3, 0)).await.unwrap();
    let nodes: Vec<&Server> = cluster.nodes().iter().collect();
    waits_for(&nodes, cluster.urls()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_servers_connects_through_sentinels_that_start_later() {
    let deployment = SentinelDeployment::start().await.unwrap();
    let servers = deployment.servers().iter().chain(deployment.sentinels());
    let servers: Vec<&Server> = servers.collect();
    waits_for(&servers, vec![deployment.url()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_servers_with_an_error_that_waiting_cannot_mend_fails_at_once() {
    let settings = ServerSettings::default().password("right");
    let server = StandaloneServer::start_with(settings).await.unwrap();
    let wrong = format!("redis://:wrong@{}", server.address());
    let began = Instant::now();
    for (url, kind) in [
        (wrong.as_str(), ErrorKind::Rejected),
        ("redis://host:port", ErrorKind::InvalidInput),
        ("redis+sentinel://:", ErrorKind::InvalidInput),
    ] {
        let error = connect(&[url.into()], Some(WAIT)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error:?}");
    }
    assert!(began.elapsed() < WAIT / 2, "{:?}", began.elapsed());
}

#[cfg(feature = "embedded")]
mod embedded {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::time::Instant;

    use super::*;
    use crate::events::on_event;
    use crate::fixture::{SECOND, engine};

    fn count_events() -> Rc<Cell<u32>> {
        let count = Rc::new(Cell::new(0));
        let counter = count.clone();
        on_event(move |event| {
            let is_about_waiting = event.metadata().name() == "rwlease.wait_for_servers";
            counter.set(counter.get() + u32::from(is_about_waiting));
        });
        count
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_servers_that_never_start_ends_at_its_time_with_few_events() {
        let engine = engine();
        engine.faults().stop(0);
        for (wait, expected) in [(Duration::ZERO, 0..=1), (SECOND, 1..=1), (70 * SECOND, 3..=3)] {
            let (events, began) = (count_events(), Instant::now());
            let builder = Client::builder().wait_for_servers(wait);
            let error = builder.connect_embedded(&engine).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(began.elapsed().as_secs(), wait.as_secs());
            assert!(expected.contains(&events.get()), "{wait:?}: {}", events.get());
        }
    }

    /// A server that accepts the connection and is silent extends the wait by the time of a single
    /// search at most.
    #[tokio::test(start_paused = true)]
    async fn wait_for_servers_that_are_silent_ends_at_its_time() {
        let engine = engine();
        engine.faults().pause(0);
        let failed_after = async |builder: rwlease::ClientBuilder| {
            let began = Instant::now();
            let error = builder.connect_embedded(&engine).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            began.elapsed()
        };
        let without = failed_after(Client::builder()).await;
        for wait in [without / 4, without * 5 / 2] {
            let waited = failed_after(Client::builder().wait_for_servers(wait)).await;
            assert_eq!(waited.as_millis(), wait.max(without).as_millis(), "{wait:?}");
        }
    }

    /// A server that is slower than the wait is not refused because of the wait.
    #[tokio::test(start_paused = true)]
    async fn wait_for_servers_shorter_than_a_search_connects_as_without() {
        let engine = engine();
        let faults = engine.faults();
        faults.pause(0);
        let resume = async {
            sleep(SECOND / 5).await;
            faults.resume(0);
        };
        let builder = Client::builder().wait_for_servers(SECOND / 10);
        let (client, ()) = tokio::join!(builder.connect_embedded(&engine), resume);
        client.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_servers_that_start_later_says_when_they_are_found() {
        let engine = engine();
        engine.faults().stop(0);
        let events = count_events();
        let faults = engine.faults();
        let start = async {
            sleep(5 * SECOND).await;
            faults.start(0);
        };
        let builder = Client::builder().wait_for_servers(10 * SECOND);
        let (client, ()) = tokio::join!(builder.connect_embedded(&engine), start);
        client.unwrap();
        assert_eq!(events.get(), 2, "the first failure, and the servers");
    }
}
