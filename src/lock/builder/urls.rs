//! Connecting to servers that URLs name: by the `redis` crate, or by connections of this library's
//! own.

use std::fmt;
use std::sync::Arc;

use super::{Builder, refuse};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::lock::locks::Locks;
use crate::node::Connector;
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use crate::node::dialer::TlsFiles;
use crate::node::dialer::{Dialer, Server};
#[cfg(feature = "native")]
use crate::node::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::node::redis::RedisConnector;
use crate::protocol::Scripts;

/// What [`Builder::connect`] connects by.
#[cfg(not(feature = "redis"))]
use NativeConnector as Usual;
#[cfg(feature = "redis")]
use RedisConnector as Usual;

#[derive(Clone, Default)]
pub(super) struct UrlSettings {
    urls: Vec<String>,
    dialer: Dialer,
}

impl fmt::Debug for UrlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: they may have passwords in them.
        f.debug_struct("UrlSettings")
            .field("urls", &self.urls.len())
            .field("dialer", &self.dialer)
            .finish()
    }
}

#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
impl UrlSettings {
    /// One that was given: all of them go with URLs, and are said elsewhere where there are none.
    pub(super) fn given(&self) -> Option<&'static str> {
        let UrlSettings { urls, dialer } = self;
        let Dialer {
            tls,
            credentials,
            #[cfg(feature = "tls")]
                sessions: _,
            database: _, // the URLs' own
            client_name,
        } = dialer;
        let files = |TlsFiles { roots, client }: &TlsFiles| (roots.is_some(), client.is_some());
        let (roots, client) = tls.as_ref().map(files).unwrap_or_default();
        let settings = [
            ("servers", !urls.is_empty()),
            ("credentials", credentials.is_some()),
            ("client_name", client_name.is_some()),
            ("tls_roots", roots),
            ("tls_client", client),
        ];
        settings.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

impl Builder {
    /// The servers to begin with, by URL: any one node of the cluster is enough.
    pub fn servers<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.urls.extend(urls.into_iter().map(|url| url.as_ref().to_owned()));
        self
    }

    /// Who this client says it is, queried at each new connection: so passwords can change while it
    /// runs. What the URLs say does not count then. A server that does not accept them is
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and dialled again, unless the provider says
    /// that they cannot change. Default: what the URLs say, in which they must agree.
    pub fn credentials(mut self, provider: impl crate::node::CredentialsProvider) -> Self {
        self.urls.dialer.credentials = Some(Arc::new(provider));
        self
    }

    /// The name in the servers' `CLIENT LIST`. Default: none.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.urls.dialer.client_name = Some(name.into());
        self
    }

    /// For `rediss://`: root certificates (PEM) to trust instead of the system's. Needs the feature
    /// `tls`.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.urls.dialer.tls.get_or_insert_default().roots = Some(pem.into());
        self
    }

    /// For `rediss://`: this client's certificate and its key (PEM). Needs the feature `tls`.
    pub fn tls_client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.urls.dialer.tls.get_or_insert_default().client =
            Some((certificate.into(), key.into()));
        self
    }

    /// Connects, by the `redis` crate (feature `redis`, which is a default one), or without it by
    /// connections of this library's own (feature `native`).
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting out of its range, or URLs that are none
    /// or differ in what they say beside the address;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server can be reached;
    /// [`Refused`](crate::ErrorKind::Refused) if it does not let this client in.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect(self) -> Result<Locks> {
        self.connect_by("connect", |dialer| Arc::new(Usual { dialer })).await
    }

    /// Connects as [`connect`](Builder::connect) does, but by connections of this library's own.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect`](Builder::connect).
    #[cfg(feature = "native")]
    pub async fn connect_native(self) -> Result<Locks> {
        self.connect_by("connect_native", |dialer| Arc::new(NativeConnector { dialer })).await
    }

    async fn connect_by(
        mut self,
        name: &str,
        connector: impl FnOnce(Dialer) -> Arc<dyn Connector>,
    ) -> Result<Locks> {
        refuse(self.given_scripts(), name)?;
        self.settings.check()?;
        let UrlSettings { urls, dialer } = std::mem::take(&mut self.urls);
        let (servers, dialer) = settled(&urls, dialer)?;
        self.router.seeds = servers.into_iter().map(|server| server.address).collect();
        Locks::start(
            connector(dialer),
            Arc::new(SystemClock),
            Scripts::built_in(),
            self.settings,
            self.router,
        )
        .await
    }
}

/// The servers, and how all of them are dialled: as the URLs say, which have to agree in that, and
/// the settings beside them.
fn settled(urls: &[String], mut dialer: Dialer) -> Result<(Vec<Server>, Dialer)> {
    let mut servers = Vec::new();
    for url in urls {
        let server: Server = url
            .parse()
            .map_err(|error| Error::invalid("not the URL of a server").with_source(error))?;
        servers.push(server);
    }
    let Some(first) = servers.first() else {
        return Err(Error::invalid("no server was named"));
    };
    let provided = dialer.credentials.is_some();
    let as_first = |other: &Server| {
        let same_user = provided || other.credentials == first.credentials;
        same_user && other.tls == first.tls && other.database == first.database
    };
    if !servers.iter().all(as_first) {
        return Err(Error::invalid("the URLs differ in credentials, TLS or database"));
    }
    if first.tls {
        dialer.tls.get_or_insert_default();
    } else if dialer.tls.is_some() {
        return Err(Error::invalid("certificates need URLs with rediss://"));
    }
    dialer.database = first.database;
    if !provided {
        dialer.credentials =
            first.credentials.clone().map(|credentials| Arc::new(credentials) as _);
    }
    Ok((servers, dialer))
}
