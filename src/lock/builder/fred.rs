//! Connecting by the `fred` crate.

use std::sync::Arc;

use super::{Builder, refuse};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::lock::locks::Locks;
use crate::node::fred::{self, FredConnector};
use crate::protocol::Scripts;

impl Builder {
    /// Connects by the `fred` crate, with the servers, credentials, TLS and tracing of that
    /// configuration. Any one node of the cluster is enough.
    ///
    /// Of `fred` only connections to single servers are used, one for commands and one for
    /// subscriptions to each: whatever it says of retries, redirects and reconnecting does not
    /// matter, nor does its protocol version (RESP3 is used). `TlsConfig::hostnames` is heeded with
    /// the feature `fred-tls`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting out of its range, one that the
    /// configuration must say instead (URLs, credentials, the client's name, certificates), or a
    /// configuration for Sentinel or a socket file; [`Unavailable`](crate::ErrorKind::Unavailable)
    /// if no server can be reached; [`Refused`](crate::ErrorKind::Refused) if it does not let this
    /// client in.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect_fred(mut self, config: ::fred::types::config::Config) -> Result<Locks> {
        refuse(self.given_with_urls().or(self.given_scripts()), "connect_fred")?;
        self.router.seeds = fred::seeds(&config).map_err(Error::invalid)?;
        Locks::start(
            Arc::new(FredConnector::new(config)),
            Arc::new(SystemClock),
            Scripts::built_in(),
            self.settings,
            self.router,
        )
        .await
    }
}
