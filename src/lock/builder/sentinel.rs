use std::str::FromStr;
use std::sync::Arc;

use rwlease_core::resp::Address;

use crate::backend::dialer::{Dialer, PubSubKind, RedactedUrl, SentinelUrl, UrlError, sentinel};
use crate::backend::{Credentials, CredentialsProvider};
use crate::error::{Error, Result};

/// The sentinels that watch a server with replicas, and its name there, for
/// [`ClientBuilder::sentinel`](crate::ClientBuilder::sentinel).
///
/// ```no_run
/// # #[cfg(feature = "native")]
/// # async fn connect() -> rwlease::Result<()> {
/// use rwlease::{Credentials, Client, SentinelConfig};
///
/// let sentinels = SentinelConfig::new("mymaster")
///     .node("sentinel-1")
///     .node("sentinel-2:26379")
///     .node("sentinel-3")
///     .credentials(Credentials::password("of the sentinels"));
/// let client = Client::builder()
///     .sentinel(sentinels)
///     .credentials(Credentials::new("locker", "of the servers"))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
///
/// A URL can say the same:
/// `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/database]`, or
/// `rediss+sentinel://` for TLS to the sentinels and to the servers. The user and the password are
/// for the servers. A user needs a password. [`ClientBuilder::urls`] accepts such a URL. Parse it
/// to this type to add credentials for the sentinels.
///
/// [`ClientBuilder::urls`]: crate::ClientBuilder::urls
#[derive(Clone)]
#[must_use = "settings do nothing until `ClientBuilder::connect`"]
pub struct SentinelConfig {
    master: String,
    nodes: Vec<String>,
    credentials: Option<Arc<dyn CredentialsProvider>>,
    tls: bool,
    pub(super) servers: Servers,
}

/// How to dial the servers that sentinels name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Servers {
    pub(super) tls: bool,
    pub(super) credentials: Option<Credentials>,
    pub(super) database: i64,
}

impl SentinelConfig {
    /// Sentinels that know the server by this name, the one in their `sentinel monitor`. No other
    /// deployment should have the same name: `docs/deployments.md` says why.
    pub fn new(master: impl Into<String>) -> Self {
        SentinelConfig {
            master: master.into(),
            nodes: Vec::new(),
            credentials: None,
            tls: false,
            servers: Servers::default(),
        }
    }

    /// Adds a sentinel: `host` or `host:port`, with an IPv6 address in brackets. Default port:
    /// 26379. Name all sentinels that you know. The client needs one reachable sentinel and learns
    /// the others from it.
    pub fn node(mut self, node: impl Into<String>) -> Self {
        self.nodes.push(node.into());
        self
    }

    /// Sets the credentials for the sentinels. Those for the servers are
    /// [`ClientBuilder::credentials`](crate::ClientBuilder::credentials). Default: none.
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// Sets whether to use TLS to the sentinels, with the certificates of
    /// [`ClientBuilder::tls_root_certificates`](crate::ClientBuilder::tls_root_certificates) and
    /// [`ClientBuilder::tls_client_identity`](crate::ClientBuilder::tls_client_identity). Needs the
    /// feature `tls`. Default: false.
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// Sets whether to use TLS to the servers that the sentinels name. Needs the feature `tls`.
    /// Default: false.
    pub fn servers_tls(mut self, tls: bool) -> Self {
        self.servers.tls = tls;
        self
    }

    /// Sets the database of the servers. Default: 0.
    pub fn database(mut self, database: i64) -> Self {
        self.servers.database = database;
        self
    }

    pub(super) fn master(&self) -> Result<&str> {
        Error::ensure(
            !self.master.is_empty(),
            || "the name of the master is empty; use the one in the sentinels' configuration",
        )?;
        Error::ensure(
            !self.master.contains(char::is_whitespace),
            || "the name of the master contains a space; use the one in the sentinels' configuration",
        )?;
        Ok(&self.master)
    }

    pub(super) fn nodes(&self) -> Result<Vec<Address>> {
        Error::ensure(!self.nodes.is_empty(), || "no sentinel is named; name at least one")?;
        let address = |node: &String| {
            sentinel(node).map_err(|why| {
                Error::invalid(format!(
                    "invalid address of a sentinel {}: {why}; use `host:port`",
                    RedactedUrl(node)
                ))
            })
        };
        self.nodes.iter().map(address).collect()
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.tls || self.servers.tls
    }

    /// How to dial the sentinels, derived from the settings for the servers.
    pub(super) fn dialer(&self, servers: &Dialer) -> Dialer {
        Dialer {
            tls: self.tls.then(|| servers.tls.clone().unwrap_or_default()),
            credentials: self.credentials.clone(),
            database: 0,
            channels: PubSubKind::Regular,
            ..servers.clone()
        }
    }

    /// Adds the sentinels that another one names, if it differs in nothing else.
    pub(super) fn join(&mut self, other: SentinelConfig) -> Result<()> {
        let own = (&self.master, self.tls, &self.servers);
        Error::ensure(
            own == (&other.master, other.tls, &other.servers),
            || "the URLs of sentinels differ in master, credentials, TLS or database; use the same in all",
        )?;
        self.nodes.extend(other.nodes);
        Ok(())
    }
}

impl FromStr for SentinelConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<SentinelConfig> {
        let SentinelUrl { sentinels, master, tls, credentials, database } =
            url.parse().map_err(|why: UrlError| {
                Error::invalid(format!("invalid URL of sentinels {}: {why}", RedactedUrl(url)))
            })?;
        Ok(SentinelConfig {
            master,
            nodes: sentinels.iter().map(ToString::to_string).collect(),
            credentials: None,
            tls,
            servers: Servers { tls, credentials, database },
        })
    }
}

// Not the nodes: a URL in place of an address may contain a password.
debug_fields!(|config| SentinelConfig {
    master: config.master,
    nodes: config.nodes.len(),
    credentials: config.credentials.is_some(),
    tls: config.tls,
    servers: config.servers
});
