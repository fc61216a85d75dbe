use std::sync::Arc;

use super::{ClientBuilder, refuse};
use crate::clock::SystemClock;
use crate::error::Result;
use crate::lock::client::{Client, on_tokio};
use crate::router::{ClusterAdapter, Transport};
use crate::scripts::Scripts;

impl ClientBuilder {
    /// Returns a client over a cluster connection of the application, for processes that may not
    /// open more connections. No round trip.
    ///
    /// All other ways to connect promise more. `docs/backends.md` lists what this one cannot do,
    /// and which versions and settings it needs. In short:
    ///
    /// - Waiting requests poll; nothing is pushed. [`min_replicas`](crate::Acquire::min_replicas)
    ///   and [`fsync`](crate::Acquire::fsync) are refused.
    /// - Faults of that connection in a failover, or when a connection breaks, affect the locks as
    ///   well: stalls of all shards, and a timeout that is not observed.
    /// - With tokio 1.54 and later, that connection can stop replying. After that, locks cannot be
    ///   acquired or renewed over it. Use tokio 1.53.1 or earlier.
    /// - Set its response timeout and a longer overall timeout, and do not use it for
    ///   subscriptions.
    /// - One attempt of a call waits at least 2 s for its answer, even if
    ///   [`response_timeout`](ClientBuilder::response_timeout) is shorter: the connection repeats
    ///   commands by itself. Its overall timeout must be longer than that.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting that is out of range or
    /// belongs to the connection (URLs, credentials, certificates,
    /// [`connect_timeout`](ClientBuilder::connect_timeout),
    /// [`wait_for_servers`](ClientBuilder::wait_for_servers),
    /// [`max_in_flight`](ClientBuilder::max_in_flight),
    /// [`address_translator`](ClientBuilder::address_translator)), for
    /// [`min_replicas`](ClientBuilder::min_replicas) and [`fsync`](ClientBuilder::fsync), and
    /// outside of a tokio runtime, which the client's own task needs.
    pub fn connect_shared(
        self,
        connection: ::redis::cluster_async::ClusterConnection,
    ) -> Result<Client> {
        let confirmation = self.settings.confirmation;
        let confirms = (!confirmation.is_empty()).then_some("min_replicas` or `fsync");
        let has_own_scripts = !std::ptr::eq(self.router.scripts, Scripts::embedded());
        let scripts = has_own_scripts.then_some("scripts_from");
        let given = self.given_with_urls().or(scripts).or(self.dialing).or(confirms);
        refuse(given, "connect_shared")?;
        self.settings.check()?;
        self.router.check()?;
        on_tokio()?;
        let clock = Arc::new(SystemClock);
        let shared = ClusterAdapter::new(connection, clock.clone(), self.router.response_timeout);
        Client::over(Transport::ClusterConnection(Arc::new(shared)), clock, self.settings)
    }
}
