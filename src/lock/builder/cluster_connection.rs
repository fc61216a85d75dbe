//! Connecting by a cluster connection of the application.

use std::sync::Arc;

use super::{Builder, refuse};
use crate::clock::SystemClock;
use crate::error::Result;
use crate::lock::client::{Locks, on_tokio};
use crate::protocol::Scripts;
use crate::router::{ClusterAdapter, Transport};

impl Builder {
    /// Uses a cluster connection of the application, for processes that may not open more
    /// connections. No round trip.
    ///
    /// All other ways to connect promise more. `docs/backends.md` lists what this one cannot do,
    /// and which versions and settings it needs. In short:
    ///
    /// - Waiting requests poll; nothing is pushed. [`replicas`](crate::Acquire::replicas) is
    ///   refused.
    /// - Faults of that connection in a failover, or when a connection breaks, affect the locks as
    ///   well: stalls of all shards, and a timeout that is not observed.
    /// - With tokio 1.54 and later, that connection can stop answering, and its locks can then
    ///   neither be acquired nor renewed. Use tokio 1.53.1 or earlier.
    /// - Set its response timeout and a longer overall timeout, and do not use it for
    ///   subscriptions.
    /// - One attempt of a call waits at least 2 s for its answer, even if
    ///   [`response_timeout`](Builder::response_timeout) is shorter: the connection repeats
    ///   commands by itself. Its overall timeout must be longer than that.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting that is out of range or belongs to the
    /// connection (URLs, credentials, the client's name, certificates,
    /// [`connect_timeout`](Builder::connect_timeout), [`max_in_flight`](Builder::max_in_flight),
    /// [`address_translator`](Builder::address_translator)), and outside of a tokio runtime, which
    /// the client's own task needs.
    pub fn connect_shared(
        self,
        connection: ::redis::cluster_async::ClusterConnection,
    ) -> Result<Locks> {
        let given = self.given_with_urls().or(self.given_scripts()).or(self.dialing);
        refuse(given, "connect_shared")?;
        self.settings.check()?;
        self.router.check()?;
        on_tokio()?;
        let clock = Arc::new(SystemClock);
        let shared = ClusterAdapter::new(connection, clock.clone(), self.router.response_timeout);
        Locks::over(
            Transport::ClusterConnection(Arc::new(shared)),
            clock,
            Scripts::embedded(),
            self.settings,
        )
    }
}
