//! Connecting to servers by URL, by the library's own connections or the `redis` crate.

use std::fmt;
use std::sync::Arc;

use super::sentinel::{Sentinel, Servers};
use super::{Builder, refuse};
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use crate::backend::dialer::TlsCertificates;
use crate::backend::dialer::{Dialer, RedactedUrl, SentinelUrl, ServerUrl, UrlError};
#[cfg(feature = "native")]
use crate::backend::native::NativeConnector;
#[cfg(feature = "redis")]
use crate::backend::redis::RedisConnector;
use crate::backend::{Address, Connector};
use crate::clock::SystemClock;
use crate::error::{Error, Result};
use crate::health::ClientHealth;
use crate::lock::client::Locks;
use crate::protocol::Scripts;
use crate::router::SentinelTargets;

/// The default connector of [`Builder::connect`].
#[cfg(feature = "native")]
use NativeConnector as Usual;
#[cfg(not(feature = "native"))]
use RedisConnector as Usual;

#[derive(Clone, Default)]
pub(super) struct UrlSettings {
    urls: Vec<String>,
    sentinel: Option<Sentinel>,
    dialer: Dialer,
}

impl fmt::Debug for UrlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs, which may contain passwords.
        f.debug_struct("UrlSettings")
            .field("urls", &self.urls.len())
            .field("sentinel", &self.sentinel)
            .field("dialer", &self.dialer)
            .finish()
    }
}

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
            database: _, // the URLs' own
            client_name,
            channels: _, // all are to servers
            health: _,   // each client has its own
        } = dialer;
        let files = |TlsCertificates { roots, client }: &TlsCertificates| {
            (roots.is_some(), client.is_some())
        };
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
    /// The URLs of the servers to connect to first:
    /// `redis://[[user]:password@]host[:port][/database]`, or `rediss://` for TLS. A user needs a
    /// password. One node of the cluster is enough. All must be of one deployment. URLs of
    /// sentinels are allowed too: see [`Sentinel`].
    pub fn servers<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.urls.extend(urls.into_iter().map(|url| url.as_ref().to_owned()));
        self
    }

    /// The sentinels to ask for the master, instead of [`servers`](Self::servers).
    ///
    /// The client asks them each time it connects and when calls fail, and subscribes to their
    /// announcements of changes. `docs/deployments.md` describes what holds in a failover.
    pub fn sentinel(mut self, sentinel: Sentinel) -> Self {
        self.urls.sentinel = Some(sentinel);
        self
    }

    /// The provider of the servers' credentials, called for each new connection, so passwords can
    /// change while the client runs. It replaces the credentials of the URLs. A server that rejects
    /// them is [`Unavailable`](crate::ErrorKind::Unavailable) and is dialled again, unless the
    /// provider says that they cannot change. Default: those of the URLs, which must agree.
    pub fn credentials(mut self, provider: impl crate::backend::CredentialsProvider) -> Self {
        self.urls.dialer.credentials = Some(Arc::new(provider));
        self
    }

    /// The client's name in the servers' `CLIENT LIST`. Default: none.
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

    /// Connects by the library's own connections (feature `native`, on by default), or without that
    /// feature by the `redis` crate (feature `redis`). Where it must be that crate, whatever
    /// features other packages turn on, call `connect_redis`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) for a setting that is out of range, for URLs that do
    /// not parse or that differ in more than the address, for servers or sentinels of several
    /// deployments, and for a master's name that no sentinel knows;
    /// [`Refused`](crate::ErrorKind::Refused) if no server can be used and one rejects the client;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if no server or no sentinel can be reached.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, what was opened is closed.
    pub async fn connect(self) -> Result<Locks> {
        self.connect_by("connect", |dialer| Arc::new(Usual { dialer }) as _).await
    }

    /// Connects as [`connect`](Builder::connect) does, but by the `redis` crate.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect`](Builder::connect).
    #[cfg(feature = "redis")]
    pub async fn connect_redis(self) -> Result<Locks> {
        self.connect_by("connect_redis", |dialer| Arc::new(RedisConnector { dialer }) as _).await
    }

    async fn connect_by(
        mut self,
        name: &str,
        connector: impl Fn(Dialer) -> Arc<dyn Connector>,
    ) -> Result<Locks> {
        refuse(self.given_scripts(), name)?;
        self.settings.check()?;
        let UrlSettings { urls, sentinel, mut dialer } = std::mem::take(&mut self.urls);
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
        Locks::start(
            connector(dialer),
            Arc::new(SystemClock),
            Scripts::embedded(),
            self.settings,
            self.router,
        )
        .await
    }
}

/// The sentinels, from URLs or from the setting.
fn sentinel_of(urls: &[String], sentinel: Option<Sentinel>) -> Result<Option<Sentinel>> {
    let mut of_sentinels = urls.iter().filter(|url| SentinelUrl::matches(url)).peekable();
    let Some(first) = of_sentinels.next_if(|_| sentinel.is_none()) else {
        return match sentinel {
            Some(_) if !urls.is_empty() => {
                Err(Error::invalid("give `servers` or `sentinel`, not both"))
            }
            sentinel => Ok(sentinel),
        };
    };
    if urls.iter().any(|url| !SentinelUrl::matches(url)) {
        return Err(Error::invalid("give URLs of servers or of sentinels, not both"));
    }
    let mut sentinel: Sentinel = first.parse()?;
    for url in of_sentinels {
        sentinel.join(url.parse()?)?;
    }
    Ok(Some(sentinel))
}

/// The servers, and how to dial all of them: by the URLs, which must agree, and by the settings.
fn settled(urls: &[String], dialer: Dialer) -> Result<(Vec<Address>, Dialer)> {
    let mut servers: Vec<ServerUrl> = Vec::new();
    for url in urls {
        let server = url.parse().map_err(|why: UrlError| {
            Error::invalid(format!("{} is not the URL of a server: {why}", RedactedUrl(url)))
        });
        servers.push(server?);
    }
    let Some(first) = servers.first() else {
        return Err(Error::invalid("no server was named"));
    };
    let provided = dialer.credentials.is_some();
    let as_first = |other: &ServerUrl| {
        let same_user = provided || other.credentials == first.credentials;
        same_user && other.tls == first.tls && other.database == first.database
    };
    if !servers.iter().all(as_first) {
        return Err(Error::invalid("the URLs differ in credentials, TLS or database"));
    }
    let ServerUrl { tls, credentials, database, .. } = first.clone();
    let dialer = dialer_to(&Servers { tls, credentials, database }, tls, dialer)?;
    Ok((servers.into_iter().map(|server| server.address).collect(), dialer))
}

/// How to dial these servers, by the settings besides the URLs.
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
    fn sentinel_debug_and_errors_do_not_show_the_password() {
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
