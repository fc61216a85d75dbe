use std::sync::Arc;

use super::{ClientBuilder, refuse};
use crate::backend::fred::{self, FredConnector};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::lock::client::Client;

impl ClientBuilder {
    /// Connects by the `fred` crate, with the servers, credentials, TLS and tracing of this
    /// configuration. One node of the cluster is enough.
    ///
    /// The library uses only connections to single servers, two for each: one for commands and one
    /// for subscriptions. It ignores the configuration's policies for retries, redirects and
    /// reconnects, and its protocol version (it uses RESP3). TLS needs the feature `fred-tls`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting that is out of range, a
    /// setting that belongs in the configuration (URLs, credentials, the client's name,
    /// certificates), a configuration for Sentinel or a Unix socket, one with a user and no
    /// password (also beside a credential provider), one with TLS without the feature `fred-tls`,
    /// or servers of several deployments;
    /// [`Rejected`](crate::ErrorKind::Rejected) if no server can be used and one rejects the
    /// client; [`Unavailable`](crate::ErrorKind::Unavailable) if no server can be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, open connections are closed.
    pub async fn connect_fred(mut self, config: ::fred::types::config::Config) -> Result<Client> {
        refuse(self.given_with_urls(), "connect_fred")?;
        fred::check(&config).map_err(Error::invalid)?;
        self.router.seeds = fred::seeds(&config).map_err(Error::invalid)?;
        Client::start(
            Arc::new(FredConnector::new(config)),
            Arc::new(SystemClock),
            self.settings,
            self.router,
        )
        .await
    }
}

#[cfg(test)]
mod tests;
