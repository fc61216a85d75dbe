//! Connecting by the `fred` crate.

use std::sync::Arc;

use super::{Builder, refuse};
use crate::backend::fred::{self, FredConnector};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::lock::client::Locks;
use crate::protocol::Scripts;

impl Builder {
    /// Connects by the `fred` crate, with the servers, credentials, TLS and tracing of this
    /// configuration. One node of the cluster is enough.
    ///
    /// The library uses only connections to single servers, two for each: one for commands and one
    /// for subscriptions. It ignores the configuration's policies for retries, redirects and
    /// reconnects, and its protocol version (it uses RESP3). With the feature `fred-tls` it honours
    /// `TlsConfig::hostnames`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting that is out of range, a setting that
    /// belongs in the configuration (URLs, credentials, the client's name, certificates), a
    /// configuration for Sentinel or a Unix socket, one with a user and no password (also beside a
    /// credential provider), or servers of several deployments;
    /// [`Refused`](crate::ErrorKind::Refused) if no server can be used and one rejects the client;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server can be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, what was opened is closed.
    pub async fn connect_fred(mut self, config: ::fred::types::config::Config) -> Result<Locks> {
        refuse(self.given_with_urls().or(self.given_scripts()), "connect_fred")?;
        fred::check(&config).map_err(Error::invalid)?;
        self.router.seeds = fred::seeds(&config).map_err(Error::invalid)?;
        Locks::start(
            Arc::new(FredConnector::new(config)),
            Arc::new(SystemClock),
            Scripts::embedded(),
            self.settings,
            self.router,
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use ::fred::types::config::Config;

    use crate::{ErrorKind, Locks};

    #[tokio::test]
    async fn a_user_needs_a_password() {
        let config = Config::from_url("redis://locker@127.0.0.1:1").unwrap();
        let error = Locks::builder().connect_fred(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains("a user without a password"), "{error}");
        let config = Config::from_url("redis://127.0.0.1:1").unwrap();
        let error = Locks::builder().connect_fred(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    }
}
