//! Connecting to servers by URL, by the library's own connections or the `redis` crate.

use std::sync::Arc;

use rwlease_core::resp::Address;

use super::ClientBuilder;
use super::sentinel::{SentinelConfig, Servers};
use crate::backend::Connector;
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use crate::backend::dialer::TlsCertificates;
use crate::backend::dialer::{Dialer, RedactedUrl, SentinelUrl, ServerUrl, UrlError};
#[cfg(feature = "native")]
use crate::backend::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::backend::redis::RedisConnector;
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::health::ClientHealth;
use crate::lock::client::Client;
use crate::router::SentinelTargets;

#[derive(Clone, Default)]
pub(super) struct UrlSettings {
    pub(super) urls: Vec<String>,
    pub(super) sentinel: Option<SentinelConfig>,
    pub(super) dialer: Dialer,
}

// Not the URLs, which may contain passwords.
debug_fields!(|settings| UrlSettings {
    urls: settings.urls.len(),
    sentinel: settings.sentinel,
    dialer: settings.dialer
});

#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
impl UrlSettings {
    /// The name of a setting that was set, if any. All of these go with URLs; other ways to connect
    /// have their own settings for them.
    pub(super) fn given(&self) -> Option<&'static str> {
        let UrlSettings { urls, sentinel, dialer } = self;
        let Dialer {
            tls,
            credentials,
            #[cfg(feature = "tls")]
                tls_configs: _,
            database: _,    // the URLs' own
            client_name: _, // of the label, which goes with each way to connect
            channels: _,    // all are to servers
            resolver: _,    // the system's
            health: _,      // each client has its own
        } = dialer;
        let files = |TlsCertificates { roots, client }: &TlsCertificates| {
            (roots.is_some(), client.is_some())
        };
        let (roots, client) = tls.as_ref().map(files).unwrap_or_default();
        let settings = [
            ("urls", !urls.is_empty()),
            ("sentinel", sentinel.is_some()),
            ("credentials", credentials.is_some()),
            ("tls_root_certificates", roots),
            ("tls_client_identity", client),
        ];
        settings.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

impl ClientBuilder {
    /// Connects to the servers by the library's own connections, and returns once one of them has
    /// answered.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a setting that is out of range, for
    /// URLs that do not parse or that differ in more than the address, for servers or sentinels of
    /// several deployments, and for a master's name that no sentinel knows;
    /// [`Rejected`](crate::ErrorKind::Rejected) if no server can be used and one rejects the
    /// client; [`Unavailable`](crate::ErrorKind::Unavailable) if no server or no sentinel can be
    /// reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, open connections are closed.
    #[cfg(feature = "native")]
    pub async fn connect(self) -> Result<Client> {
        self.connect_by(|dialer| Arc::new(NativeConnector { dialer }) as _).await
    }

    /// Connects to the servers by the `redis` crate, and returns once one of them has answered.
    ///
    /// # Errors, Cancel safety
    ///
    /// As `connect`.
    #[cfg(feature = "redis")]
    pub async fn connect_redis(self) -> Result<Client> {
        self.connect_by(|dialer| Arc::new(RedisConnector { dialer }) as _).await
    }

    async fn connect_by(
        mut self,
        connector: impl Fn(Dialer) -> Arc<dyn Connector>,
    ) -> Result<Client> {
        self.settings.check()?;
        let UrlSettings { urls, sentinel, mut dialer } = std::mem::take(&mut self.urls);
        dialer.client_name = self.settings.label.text();
        dialer.health = ClientHealth::default(); // a clone of these settings makes another client
        let dialer = match sentinel_of(&urls, sentinel)? {
            Some(sentinel) => {
                let dialer = dialer_to(&sentinel.servers, sentinel.uses_tls(), dialer)?;
                self.router.sentinels = Some(SentinelTargets {
                    master: sentinel.master()?.into(),
                    nodes: sentinel.nodes()?,
                    connector: connector(sentinel.dialer(&dialer)),
                });
                // The certificates may be for the sentinels alone.
                Dialer { tls: dialer.tls.clone().filter(|_| sentinel.servers.tls), ..dialer }
            }
            None => {
                let (seeds, dialer) = settled(&urls, dialer)?;
                self.router.seeds = seeds;
                dialer
            }
        };
        Client::start(connector(dialer), Arc::new(SystemClock), self.settings, self.router).await
    }
}

/// The sentinels, from URLs or from the setting.
fn sentinel_of(
    urls: &[String],
    sentinel: Option<SentinelConfig>,
) -> Result<Option<SentinelConfig>> {
    let mut of_sentinels = urls.iter().filter(|url| SentinelUrl::matches(url)).peekable();
    let Some(first) = of_sentinels.next_if(|_| sentinel.is_none()) else {
        return Error::ensure(
            sentinel.is_none() || urls.is_empty(),
            || "both `urls` and `sentinel` are set; set one of them",
        )
        .map(|()| sentinel);
    };
    Error::ensure(
        urls.iter().all(|url| SentinelUrl::matches(url)),
        || "the URLs name both servers and sentinels; name one kind",
    )?;
    let mut sentinel: SentinelConfig = first.parse()?;
    for url in of_sentinels {
        sentinel.join(url.parse()?)?;
    }
    Ok(Some(sentinel))
}

/// The servers, and the settings for dialling them: the settings in the URLs, which must agree, and
/// the other settings.
fn settled(urls: &[String], dialer: Dialer) -> Result<(Vec<Address>, Dialer)> {
    let mut servers: Vec<ServerUrl> = Vec::new();
    for url in urls {
        let server = url.parse().map_err(|why: UrlError| {
            Error::invalid(format!("invalid URL of a server {}: {why}", RedactedUrl(url)))
        });
        servers.push(server?);
    }
    let Some(first) = servers.first() else {
        return Err(Error::invalid(
            "no server is named; name at least one by `urls` or `sentinel`",
        ));
    };
    let provided = dialer.credentials.is_some();
    let as_first = |other: &ServerUrl| {
        let same_user = provided || other.credentials == first.credentials;
        same_user && other.tls == first.tls && other.database == first.database
    };
    Error::ensure(
        servers.iter().all(as_first),
        || "the URLs differ in credentials, TLS or database; use the same in all",
    )?;
    let ServerUrl { tls, credentials, database, .. } = first.clone();
    let dialer = dialer_to(&Servers { tls, credentials, database }, tls, dialer)?;
    Ok((servers.into_iter().map(|server| server.address).collect(), dialer))
}

/// How to dial these servers, by the settings besides the URLs.
fn dialer_to(servers: &Servers, uses_tls: bool, mut dialer: Dialer) -> Result<Dialer> {
    if uses_tls {
        dialer.tls.get_or_insert_default();
    }
    Error::ensure(
        uses_tls || dialer.tls.is_none(),
        || "certificates are set, but the URLs do not use TLS; use `rediss://`",
    )?;
    dialer.database = servers.database;
    if dialer.credentials.is_none() {
        dialer.credentials =
            servers.credentials.clone().map(|credentials| Arc::new(credentials) as _);
    }
    Ok(dialer)
}

#[cfg(test)]
mod tests;
