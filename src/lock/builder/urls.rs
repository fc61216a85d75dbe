//! Connecting to servers that URLs name: by the `redis` crate, or by connections of this library's
//! own.

use std::fmt;
use std::sync::Arc;

use super::sentinel::{Sentinel, Servers};
use super::{Builder, refuse};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::lock::locks::Locks;
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use crate::node::dialer::TlsFiles;
use crate::node::dialer::{Dialer, SentinelUrl, Server, Shown, UrlError};
#[cfg(feature = "native")]
use crate::node::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::node::redis::RedisConnector;
use crate::node::{Address, Connector};
use crate::protocol::Scripts;
use crate::router::SentinelSettings;

/// What [`Builder::connect`] connects by.
#[cfg(not(feature = "redis"))]
use NativeConnector as Usual;
#[cfg(feature = "redis")]
use RedisConnector as Usual;

#[derive(Clone, Default)]
pub(super) struct UrlSettings {
    urls: Vec<String>,
    sentinel: Option<Sentinel>,
    dialer: Dialer,
}

impl fmt::Debug for UrlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: they may have passwords in them.
        f.debug_struct("UrlSettings")
            .field("urls", &self.urls.len())
            .field("sentinel", &self.sentinel)
            .field("dialer", &self.dialer)
            .finish()
    }
}

#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
impl UrlSettings {
    /// One that was given: all of them go with URLs, and are said elsewhere where there are none.
    pub(super) fn given(&self) -> Option<&'static str> {
        let UrlSettings { urls, sentinel, dialer } = self;
        let Dialer {
            tls,
            credentials,
            #[cfg(feature = "tls")]
                sessions: _,
            database: _, // the URLs' own
            client_name,
            channels: _, // all are to servers
        } = dialer;
        let files = |TlsFiles { roots, client }: &TlsFiles| (roots.is_some(), client.is_some());
        let (roots, client) = tls.as_ref().map(files).unwrap_or_default();
        let settings = [
            ("servers", !urls.is_empty()),
            ("sentinel", sentinel.is_some()),
            ("credentials", credentials.is_some()),
            ("client_name", client_name.is_some()),
            ("tls_roots", roots),
            ("tls_client", client),
        ];
        settings.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

impl Builder {
    /// The servers to begin with, by URL: any one node of the cluster is enough. Or the sentinels
    /// of a server, as [`Sentinel`] says.
    pub fn servers<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.urls.extend(urls.into_iter().map(|url| url.as_ref().to_owned()));
        self
    }

    /// The sentinels that say which server is the master, in place of [`servers`](Self::servers).
    ///
    /// The client asks them for the master each time it connects, and when there is trouble, and
    /// subscribes to what they tell of changes. `docs/deployments.md` says what holds in a
    /// failover.
    pub fn sentinel(mut self, sentinel: Sentinel) -> Self {
        self.urls.sentinel = Some(sentinel);
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
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting out of its range, URLs that are none or
    /// differ in what they say beside the address, or a master's name that no sentinel knows;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server or no sentinel can be reached;
    /// [`Refused`](crate::ErrorKind::Refused) if it does not let this client in.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect(self) -> Result<Locks> {
        self.connect_by("connect", |dialer| Arc::new(Usual { dialer }) as _).await
    }

    /// Connects as [`connect`](Builder::connect) does, but by connections of this library's own.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect`](Builder::connect).
    #[cfg(feature = "native")]
    pub async fn connect_native(self) -> Result<Locks> {
        self.connect_by("connect_native", |dialer| Arc::new(NativeConnector { dialer }) as _).await
    }

    async fn connect_by(
        mut self,
        name: &str,
        connector: impl Fn(Dialer) -> Arc<dyn Connector>,
    ) -> Result<Locks> {
        refuse(self.given_scripts(), name)?;
        self.settings.check()?;
        let UrlSettings { urls, sentinel, dialer } = std::mem::take(&mut self.urls);
        let dialer = match sentinel_of(&urls, sentinel)? {
            Some(sentinel) => {
                let dialer = dialer_to(&sentinel.servers, sentinel.uses_tls(), dialer)?;
                self.router.sentinels = Some(SentinelSettings {
                    master: sentinel.master()?.into(),
                    nodes: sentinel.nodes()?,
                    connector: connector(sentinel.dialer(&dialer)),
                });
                // Where certificates are for the sentinels alone.
                Dialer { tls: dialer.tls.clone().filter(|_| sentinel.servers.tls), ..dialer }
            }
            None => {
                let (seeds, dialer) = settled(&urls, dialer)?;
                self.router.seeds = seeds;
                dialer
            }
        };
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

/// The sentinels that were named, by URL or otherwise.
fn sentinel_of(urls: &[String], sentinel: Option<Sentinel>) -> Result<Option<Sentinel>> {
    let mut of_sentinels = urls.iter().filter(|url| SentinelUrl::is_one(url)).peekable();
    let Some(first) = of_sentinels.next_if(|_| sentinel.is_none()) else {
        return match sentinel {
            Some(_) if !urls.is_empty() => {
                Err(Error::invalid("give `servers` or `sentinel`, not both"))
            }
            sentinel => Ok(sentinel),
        };
    };
    if urls.iter().any(|url| !SentinelUrl::is_one(url)) {
        return Err(Error::invalid("give URLs of servers or of sentinels, not both"));
    }
    let mut sentinel: Sentinel = first.parse()?;
    for url in of_sentinels {
        sentinel.join(url.parse()?)?;
    }
    Ok(Some(sentinel))
}

/// The servers, and how all of them are dialled: as the URLs say, which have to agree in that, and
/// the settings beside them.
fn settled(urls: &[String], dialer: Dialer) -> Result<(Vec<Address>, Dialer)> {
    let mut servers: Vec<Server> = Vec::new();
    for url in urls {
        let server = url.parse().map_err(|why: UrlError| {
            Error::invalid(format!("{} is not the URL of a server: {why}", Shown(url)))
        });
        servers.push(server?);
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
    let Server { tls, credentials, database, .. } = first.clone();
    let dialer = dialer_to(&Servers { tls, credentials, database }, tls, dialer)?;
    Ok((servers.into_iter().map(|server| server.address).collect(), dialer))
}

/// How these servers are dialled, with the settings beside the URLs.
fn dialer_to(servers: &Servers, uses_tls: bool, mut dialer: Dialer) -> Result<Dialer> {
    if uses_tls {
        dialer.tls.get_or_insert_default();
    } else if dialer.tls.is_some() {
        return Err(Error::invalid("certificates need URLs with rediss://"));
    }
    dialer.database = servers.database;
    if dialer.credentials.is_none() {
        dialer.credentials =
            servers.credentials.clone().map(|credentials| Arc::new(credentials) as _);
    }
    Ok(dialer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_show_the_url_and_no_password() {
        for (url, shown) in [
            ("redis://locker:SECRET@h:port", "`redis://locker:***@h:port`"),
            ("redis://:SECRET@h/x", "`redis://:***@h/x`"),
            ("redis://locker:SECRET", "`redis://locker:***`"),
            ("locker:SECRET@h", "`locker:***@h`"),
            ("redis+sentinel://locker:SECRET@s", "`redis+sentinel://locker:***@s`"),
            ("redis://locker:SECRET@127.0.0.1:1", "127.0.0.1:1"),
            ("redis+sentinel://locker:SECRET@127.0.0.1:1/m", "127.0.0.1:1"),
        ] {
            let builder = Locks::builder().servers([url]);
            let settings = format!("{builder:?}");
            let error = builder.connect().await.unwrap_err();
            assert!(error.to_string().contains(shown), "{url}: {error}");
            for said in [settings, error.to_string(), format!("{error:#?}")] {
                assert!(!said.contains("SECRET"), "{url}: {said}");
            }
        }
    }

    #[test]
    fn nothing_that_has_a_password_shows_it() {
        let url = "redis+sentinel://locker:SECRET@s/m";
        let sentinel: Sentinel = url.parse().unwrap();
        let sentinel = sentinel.credentials(crate::Credentials::password("SECRET"));
        let said = format!("{sentinel:?} {:?}", Locks::builder().sentinel(sentinel.clone()));
        assert!(!said.contains("SECRET"), "{said}");
        let wrong = Sentinel::new("m").node("locker:SECRET@s").nodes().unwrap_err();
        assert!(wrong.to_string().contains("`locker:***@s`"), "{wrong}");
        assert!(!format!("{wrong:?}").contains("SECRET"), "{wrong:?}");
    }
}
