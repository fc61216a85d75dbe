//! Shared by these tests: a server, clients, and the state of a lock's hash.

use std::time::Duration;

use rwlease::Locks;
use tokio::time::Instant;

use crate::support::{Fields, Server, StandaloneServer, connect, fields, is_subscribed_waiter};

/// A server and a client of it.
pub struct Bench {
    pub server: StandaloneServer,
    pub locks: Locks,
}

impl Bench {
    pub async fn new() -> Bench {
        let server = StandaloneServer::start().await.unwrap();
        let locks = connect(&[server.url()]).await.unwrap();
        Bench { server, locks }
    }

    /// Another client of the same server.
    pub async fn client(&self) -> Locks {
        connect(&[self.server.url()]).await.unwrap()
    }

    pub async fn record(&self, name: &str) -> Record {
        Record::of(&self.server, name).await
    }
}

/// A lock as its hash describes it.
#[derive(Debug)]
pub struct Record(Fields);

impl Record {
    pub async fn of(server: &Server, name: &str) -> Record {
        Record(fields(server, &format!("rwlease:{name}")).await.unwrap())
    }

    pub fn readers(&self) -> usize {
        self.0.get("readers").map_or(0, |readers| readers.parse().unwrap())
    }

    pub fn is_written(&self) -> bool {
        self.0.contains_key("writer")
    }

    /// The lock has no holder and no waiter.
    pub fn is_free(&self) -> bool {
        self.readers() == 0 && !self.is_written() && !self.has_waiters()
    }

    pub fn has_upgrader(&self) -> bool {
        self.0.contains_key("upgrader")
    }

    /// The server can push to at least one waiter.
    pub fn has_subscriber(&self) -> bool {
        self.0.iter().any(|(field, entry)| field.starts_with("q:") && is_subscribed_waiter(entry))
    }

    pub fn has_waiters(&self) -> bool {
        self.0.contains_key("upgrader") || self.0.keys().any(|field| field.starts_with("q:"))
    }
}

/// Repeats the check until it succeeds. Fails after a generous time.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
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
