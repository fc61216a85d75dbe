//! Shared by these tests: servers, clients, and the state of a lock's hash.

use std::time::Duration;

use oracle::LockHash;
#[cfg(feature = "embedded")]
use rwlease::embedded::EmbeddedCluster;
use rwlease::{Client, ClientBuilder};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use testkit::{ConnectBuilder, Server, StandaloneServer, connect, lock_hash};

#[cfg(feature = "embedded")]
pub const MS: Duration = Duration::from_millis(1);
#[cfg(feature = "embedded")]
pub const SECOND: Duration = Duration::from_secs(1);

/// Ends a test that would never end.
pub const LONG: Duration = Duration::from_secs(60);

/// A server and a client of it.
pub async fn single() -> (StandaloneServer, Client) {
    let server = StandaloneServer::start().await.unwrap();
    let locks = connect(&[server.url()]).await.unwrap();
    (server, locks)
}

/// An embedded server that serves all slots.
#[cfg(feature = "embedded")]
pub fn engine() -> EmbeddedCluster {
    EmbeddedCluster::builder().masters(1).replicas(0).build()
}

/// A client of embedded servers.
#[cfg(feature = "embedded")]
pub async fn client(engine: &EmbeddedCluster) -> Client {
    Client::builder().connect_embedded(engine).await.unwrap()
}

/// A server and a client of it.
pub struct Bench {
    pub server: StandaloneServer,
    pub locks: Client,
}

impl Bench {
    pub async fn new() -> Bench {
        let (server, locks) = single().await;
        Bench { server, locks }
    }

    /// Another client of the same server.
    pub async fn client(&self) -> Client {
        self.client_with(Client::builder()).await
    }

    pub async fn client_with(&self, settings: ClientBuilder) -> Client {
        settings.connect_to(&[self.server.url()]).await.unwrap()
    }

    pub async fn record(&self, name: &str) -> Record {
        Record::of(&self.server, name).await
    }
}

/// A lock as its hash describes it.
#[derive(Debug)]
pub struct Record(LockHash);

impl Record {
    pub async fn of(server: &Server, name: &str) -> Record {
        Record(lock_hash(server, &format!("rwlease:{name}")).await.unwrap())
    }

    pub fn readers(&self) -> usize {
        self.0.readers.len()
    }

    pub fn is_written(&self) -> bool {
        self.0.writer.is_some()
    }

    /// The lock has no holder and no waiter.
    pub fn is_free(&self) -> bool {
        self.readers() == 0 && !self.is_written() && !self.has_waiters()
    }

    pub fn has_upgrader(&self) -> bool {
        self.0.text("upgrader").is_some()
    }

    /// The server can push to at least one waiter.
    pub fn has_subscriber(&self) -> bool {
        self.0.waiters.values().any(|waiter| waiter.node != "-")
    }

    pub fn has_waiters(&self) -> bool {
        !self.0.waiters.is_empty()
    }
}

/// Starts work in a task, with a handle of its own.
pub fn in_task<H: Clone, F>(handle: &H, work: impl FnOnce(H) -> F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    tokio::spawn(work(handle.clone()))
}

/// Repeats the check until it succeeds. Fails after a generous time.
pub async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < Duration::from_secs(30), "{what} never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Awaits `work`. Fails after a generous time.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(30), work).await;
    done.unwrap_or_else(|_| panic!("{what} never ended"))
}
