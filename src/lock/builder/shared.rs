//! Using a cluster connection that the application has already.

use std::sync::Arc;

use super::{Builder, refuse};
use crate::clock::SystemClock;
use crate::error::Result;
use crate::lock::locks::{Locks, on_tokio};
use crate::protocol::Scripts;
use crate::router::{ClusterAdapter, Transport};

impl Builder {
    /// Uses a cluster connection that the application has already, where no further connections
    /// may be opened. No round trip.
    ///
    /// All other ways to connect promise more: `docs/backends.md` says what this one cannot, and
    /// which versions and settings it needs. In short: waiting requests poll the servers and are
    /// not told; [`replicas`](crate::Acquire::replicas) is refused; what that connection does in a
    /// failover or when a connection breaks (stalls of all shards, a timeout that is not heeded)
    /// happens to the locks as well. Its response timeout must be set, and an overall one that is
    /// longer, and it must not be in use for subscriptions. One attempt of a call waits for its
    /// answer at least 2 s, also where [`response_timeout`](Builder::response_timeout) says less:
    /// that connection repeats commands by itself, and needs the time; its overall timeout must
    /// leave it too.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting out of its range, or one that is the
    /// connection's own affair (URLs, credentials, the client's name, certificates,
    /// [`connect_timeout`](Builder::connect_timeout), [`max_in_flight`](Builder::max_in_flight),
    /// [`address_translator`](Builder::address_translator)); also where no tokio runtime is, on
    /// which the client's own task would live.
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
        Locks::over(Transport::Adapter(Arc::new(shared)), clock, Scripts::built_in(), self.settings)
    }
}
