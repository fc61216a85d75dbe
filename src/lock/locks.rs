//! The entrance: a client of one cluster, and what it can be set to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::lost::{Loss, OnLost};
use crate::client::settings::Settings;
use crate::client::telemetry;
use crate::client::worker;
use crate::client::{Client, Handle};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::list::Listing;
use crate::lock::multi::Multi;
use crate::lock::mutex::Mutex;
use crate::lock::reentrant::Owner;
use crate::lock::rwlock::RwLock;
use crate::node::Connector;
#[cfg(feature = "redis")]
use crate::node::redis::RedisConnector;
use crate::protocol::{ClientId, Fairness, Scripts};
use crate::router::{Route, Router, RouterSettings};

/// A client of one cluster (or of a single server): makes locks, keeps the leases that are held by it.
///
/// Clones share everything, and cost nothing; one client is enough for a process. It has one connection to each master that it needs, one more for
/// subscriptions to each where it waits, and one task, which lives on the runtime that [`connect`](Builder::connect) was called on. When all
/// clones, all locks made by it and all guards are gone, the task ends.
#[derive(Clone)]
pub struct Locks {
    pub(crate) client: Arc<Handle>,
}

impl Locks {
    /// Connects to a cluster, of which any one node is enough, or to a single server, with the default settings. URLs are
    /// `redis://[[user]:password@]host[:port]`, or `rediss://` for TLS (feature `redis-tls`).
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Builder::connect`].
    #[cfg(feature = "redis")]
    pub async fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Locks> {
        Locks::builder().servers(urls).connect().await
    }

    /// Locks on servers in this process, which nobody else uses: for unit tests and for trying things out. To share the servers between several
    /// clients, to set their clock or to make them fail, build an [`Engine`](crate::embedded::Engine) and connect to it with
    /// [`connect_embedded`](Builder::connect_embedded).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// let locks = rwlease::Locks::embedded().await?;
    /// let writing = locks.rwlock("order:{42}")?.write().await?;
    /// assert!(writing.is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Builder::connect_embedded`].
    #[cfg(feature = "embedded")]
    pub async fn embedded() -> Result<Locks> {
        Locks::builder().connect_embedded(&crate::embedded::Engine::new()).await
    }

    /// Settings to connect with.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A read/write lock by its name. The name's hash tag counts: `order:{42}` and `invoice:{42}` share a slot. No round trip.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a name that is empty or longer than 512 bytes.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.client.clone(), name.as_ref())
    }

    /// A plain mutex by its name, which is its key as it stands: it can be shared with every other library that does `SET key value NX PX`.
    /// No round trip.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a name that is empty or longer than 512 bytes.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Mutex::new(self.client.clone(), name.as_ref())
    }

    /// Several locks to be held together, of any slots: see [`Multi`].
    pub fn multi(&self) -> Multi {
        Multi::new(self.client.clone())
    }

    /// The names of the read/write locks that the servers know and that begin with `start`: see [`Listing`].
    pub fn list(&self, start: impl AsRef<str>) -> Listing {
        Listing::new(self.client.clone(), start.as_ref())
    }

    /// One who may hold the same lock again.
    pub fn owner(&self) -> Owner {
        Owner::new(self.client.clone())
    }

    #[cfg(feature = "legacy")]
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Takes no more locks, and releases those that are held: their guards are lost. Waits until all of it has been answered, or until
    /// the time is over. Gives the names of the locks that may not have been released: their leases end them.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the releases go on in the background.
    pub async fn shutdown(&self, within: Duration) -> Vec<String> {
        let client = &self.client;
        client.close();
        let until = client.clock.now().after(within);
        for acquisition in client.all() {
            client.abandon(&acquisition);
        }
        while !client.is_drained() {
            let mut drained = std::pin::pin!(client.drained.notified());
            drained.as_mut().enable();
            if client.is_drained() {
                break;
            }
            let sleep = client.clock.sleep_until(until);
            if let futures::future::Either::Right(_) = futures::future::select(drained, sleep).await {
                break;
            }
        }
        let left = client.all();
        client.router.close().await;
        left.iter()
            .map(|acquisition| acquisition.lock.name.to_string())
            .collect()
    }

    /// Whether this client still has to do with that owner: asks for it, holds by it, or has yet to see it gone.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn knows(&self, owner: &str) -> bool {
        self.client.find(owner).is_some()
    }

    /// The scripts that this client uses.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn scripts(&self) -> impl Iterator<Item = &'static crate::Script> {
        self.client.scripts.all().into_iter()
    }

    /// What the ids of all this client's owners begin with: by it one finds oneself in a [`Status`](crate::Status), among those who hold and those who
    /// wait.
    pub fn client_id(&self) -> String {
        self.client.id().to_string()
    }

    /// Starts a client over connections of any kind.
    pub(crate) async fn start(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        scripts: &'static Scripts,
        settings: Settings,
        router: RouterSettings,
    ) -> Result<Locks> {
        settings.check()?;
        router.check()?;
        on_tokio()?;
        let router = Router::connect(connector, clock.clone(), router).await?;
        Locks::over(Route::Own(router), clock, scripts, settings)
    }

    fn over(router: Route, clock: Arc<dyn Clock>, scripts: &'static Scripts, settings: Settings) -> Result<Locks> {
        let random = match settings.id {
            Some(id) => id,
            None => random_id()?,
        };
        let client = Arc::new(Client::new(
            router,
            clock,
            settings,
            scripts,
            ClientId::from_random(random),
        ));
        telemetry::describe();
        worker::listen(&client);
        tokio::spawn(worker::run(client.clone()));
        Ok(Locks {
            client: Arc::new(Handle(client)),
        })
    }
}

fn random_id() -> Result<[u8; 11]> {
    let mut random = [0; 11];
    getrandom::fill(&mut random)
        .map_err(|error| Error::new(ErrorKind::Unavailable, "no randomness for the client's id").because(error))?;
    Ok(random)
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("settings", &self.client.settings)
            .finish_non_exhaustive()
    }
}

/// Settings of a client. No setter fails; [`connect`](Builder::connect) checks them.
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `connect`"]
pub struct Builder {
    settings: Settings,
    router: RouterSettings,
    /// One that was given of how to dial, which a connection of the application's does in its own way.
    dialing: Option<&'static str>,
    #[cfg(feature = "redis")]
    redis: RedisSettings,
    #[cfg(feature = "embedded")]
    scripts: Option<&'static Scripts>,
}

/// Everything is driven by tasks.
fn on_tokio() -> Result<()> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::invalid("clients must be made on a tokio runtime").because(error)),
    }
}

#[cfg(feature = "redis")]
#[derive(Clone, Default)]
struct RedisSettings {
    urls: Vec<String>,
    connector: RedisConnector,
}

#[cfg(feature = "redis")]
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: they may have passwords in them.
        f.debug_struct("RedisSettings")
            .field("urls", &self.urls.len())
            .field("connector", &self.connector)
            .finish()
    }
}

#[cfg(all(
    feature = "redis",
    any(feature = "embedded", feature = "fred", feature = "cluster-async")
))]
impl RedisSettings {
    /// One that was given: all of them go with URLs, and are said elsewhere where there are none.
    fn given(&self) -> Option<&'static str> {
        use crate::node::redis::TlsFiles;

        let RedisSettings { urls, connector } = self;
        let RedisConnector {
            tls,
            credentials,
            #[cfg(feature = "redis-tls")]
                sessions: _,
            database: _, // the URLs' own
            client_name,
        } = connector;
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
    /// What goes before a lock's name in its key, with no braces. Default: `rwlease:`. All clients of a lock need the same.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = prefix.into();
        self
    }

    /// What goes before a mutex's name in its key. Default: nothing, so that the key is what others call it. All users of a mutex need the same.
    pub fn mutex_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.mutex_prefix = prefix.into();
        self
    }

    /// How long the server keeps a lock for a holder that it hears nothing of, 10 ms to 30 days. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How much earlier a lease ends here than at the server, at most half of the lease. It covers the difference in speed of the two clocks and
    /// the skew between two servers when the lock moves from one to the other: [`Lease`](crate::Lease) says how. Default: a twentieth of the lease, at
    /// most 500 ms; so servers whose clocks may differ by more than that need a larger one.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.settings.margin = Some(margin);
        self
    }

    /// Who goes first when readers and writers wait. Default: phase-fair.
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.settings.fairness = fairness;
        self
    }

    /// The most waiters that the queue of one lock may have; one more is refused. Default: 10,000.
    pub fn most_waiters(mut self, most: u64) -> Self {
        self.settings.most_waiters = most;
        self
    }

    /// How often the head of a queue looks by itself; each place behind it adds as much. Default: 250 ms.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.pace.interval = interval;
        self
    }

    /// How long a place in a queue is kept for a waiter that does not look, at least three poll intervals. Default: 10 s.
    pub fn waiter_liveness(mut self, liveness: Duration) -> Self {
        self.settings.pace.liveness = liveness;
        self
    }

    /// How long a grant waits to be claimed by the waiter that it was pushed to. A dead waiter that nobody knows to be dead costs the queue this
    /// long. Until the claim is answered the waiter holds for this long less the [margin](Self::margin); where that is less than a quarter of it, the
    /// waiter does not hold before the answer. Default: 1.5 s, of which the default margin of long leases leaves one.
    pub fn claim_window(mut self, window: Duration) -> Self {
        self.settings.pace.window = window;
        self
    }

    /// What to do whenever a lease is lost, whichever guard's: to log it, to count it, to stop something. Called on the client's own task, before the server lets the next one
    /// in as long as the runtime keeps up; so it must be quick, and must not block. Default: nothing.
    pub fn on_lost(mut self, listener: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
        self.settings.on_lost = OnLost(Some(Arc::new(listener)));
        self
    }

    /// How long a call goes on trying when the cluster cannot serve it. Default: 10 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// The longest time for one connection to be made, from 1 ms to 1 h. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.router.connect_timeout = timeout;
        self.dialing = Some("connect_timeout");
        self
    }

    /// How long a server may be silent while calls wait for its answers, from 1 ms to 1 h; then they are repeated, elsewhere if the slot has moved. As long as
    /// it answers anything, it is at work on what came before, and nothing is sent twice. Default: 500 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.router.response_timeout = timeout;
        self
    }

    /// The most calls that each server has to answer for this client at the same time, at least 1. More wait here, first come, first served, and are sent as soon as
    /// others have been answered. A call whose time is nearly up is not sent any more: it fails as
    /// [`Unavailable`](ErrorKind::Unavailable), and leaves nothing behind at the server. Renewals and releases in the background have turns of their
    /// own. Default: 256, which a server answers in a few milliseconds; more are of use where the round trip is long.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.router.max_in_flight = calls;
        self
    }

    /// Turns the host and port that a server announces into those to connect to: for containers, tunnels, forwarded ports.
    pub fn translate(mut self, translate: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.router.translate = Some(Arc::new(translate));
        self.dialing = Some("translate");
        self
    }

    #[cfg(all(
        feature = "redis",
        any(feature = "embedded", feature = "fred", feature = "cluster-async")
    ))]
    fn given_with_urls(&self) -> Option<&'static str> {
        self.redis.given()
    }

    #[cfg(not(feature = "redis"))]
    fn given_with_urls(&self) -> Option<&'static str> {
        None
    }

    #[cfg(feature = "embedded")]
    fn given_scripts(&self) -> Option<&'static str> {
        self.scripts.map(|_| "scripts_from")
    }

    #[cfg(not(feature = "embedded"))]
    fn given_scripts(&self) -> Option<&'static str> {
        None
    }
}

/// What would do nothing is an error: who asked for certificates, say, must not be connected without.
fn refuse(given: Option<&str>, connector: &str) -> Result<()> {
    match given {
        Some(given) => Err(Error::invalid(format!("`{given}` does nothing with `{connector}`"))),
        None => Ok(()),
    }
}

#[cfg(feature = "embedded")]
impl Builder {
    /// Connects to servers in this process.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a setting out of its range, or one that does nothing here (URLs, credentials, the client's name, certificates);
    /// [`Unavailable`](ErrorKind::Unavailable) if all its servers are stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect_embedded(mut self, engine: &crate::embedded::Engine) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_embedded")?;
        self.router.seeds = engine.addresses();
        let scripts = self.scripts.unwrap_or_else(Scripts::built_in);
        Locks::start(engine.connector(), engine.clock(), scripts, self.settings, self.router).await
    }

    /// Connects from a host of a simulated network. The client's id is drawn from the seeded randomness that all else is
    /// drawn from: two runs that do the same are the same.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`connect_embedded`](Builder::connect_embedded).
    pub async fn connect_from(mut self, host: &crate::embedded::Host) -> Result<Locks> {
        refuse(self.given_with_urls(), "connect_from")?;
        self.router.seeds = host.engine().addresses();
        let mut id = [0; 11];
        fastrand::fill(&mut id);
        self.settings.id = Some(id);
        let scripts = self.scripts.unwrap_or_else(Scripts::built_in);
        Locks::start(host.connector(), host.clock(), scripts, self.settings, self.router).await
    }

    /// Takes the scripts from a folder laid out as `lua/`, for trying changed ones without a build, on servers in this process. What is read
    /// stays in memory.
    #[doc(hidden)]
    pub fn scripts_from(mut self, folder: impl AsRef<std::path::Path>) -> std::io::Result<Self> {
        self.scripts = Some(Box::leak(Box::new(Scripts::from_folder(folder.as_ref())?)));
        Ok(self)
    }
}

#[cfg(feature = "cluster-async")]
impl Builder {
    /// Uses a cluster connection that the application has already, for those who may open no further connections. No round trip.
    ///
    /// All other ways to connect promise more: `docs/backends.md` says what this one cannot, and which versions and settings it needs. In short: those who wait
    /// ask the servers now and then and are not told; [`replicas`](crate::Acquire::replicas) is refused; what that connection does in a failover or
    /// when a connection breaks (stalls of all shards, a timeout that is not heeded) befalls the locks as well. Its response timeout must be set, and an overall one that is longer, and it must not be in use for
    /// subscriptions. One attempt of a call waits for its answer at least 2 s, also where [`response_timeout`](Builder::response_timeout) says less: that
    /// connection repeats commands by itself, and needs the time; its overall timeout must leave it too.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a setting out of its range, or one that is the connection's own affair (URLs, credentials, the client's name, certificates,
    /// [`connect_timeout`](Builder::connect_timeout), [`translate`](Builder::translate)); also where no tokio runtime is, on which the client's own task would live.
    pub fn connect_shared(self, connection: ::redis::cluster_async::ClusterConnection) -> Result<Locks> {
        let given = self.given_with_urls().or(self.given_scripts()).or(self.dialing);
        refuse(given, "connect_shared")?;
        self.settings.check()?;
        self.router.check()?;
        on_tokio()?;
        let clock = Arc::new(crate::clock::SystemClock);
        let shared = crate::router::Shared::new(connection, clock.clone(), self.router.response_timeout);
        Locks::over(
            Route::Shared(Arc::new(shared)),
            clock,
            Scripts::built_in(),
            self.settings,
        )
    }
}

#[cfg(feature = "fred")]
impl Builder {
    /// Connects by the `fred` crate, with the servers, credentials, TLS and tracing of that configuration. Any one node of the cluster is enough.
    ///
    /// Of `fred` only connections to single servers are used, one for commands and one for subscriptions to each: whatever it says of retries, redirects and reconnecting does
    /// not matter, nor does its protocol version (RESP3 is used). `TlsConfig::hostnames` is heeded with the feature `fred-tls`.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a setting out of its range, one that the configuration must say instead (URLs, credentials, the client's name,
    /// certificates), or a configuration for Sentinel or a socket file; [`Unavailable`](ErrorKind::Unavailable) if no server can be reached; [`Refused`](ErrorKind::Refused) if it
    /// does not let this client in.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect_fred(mut self, config: ::fred::types::config::Config) -> Result<Locks> {
        refuse(self.given_with_urls().or(self.given_scripts()), "connect_fred")?;
        self.router.seeds = crate::node::fred::seeds(&config).map_err(Error::invalid)?;
        Locks::start(
            Arc::new(crate::node::fred::FredConnector::new(config)),
            Arc::new(crate::clock::SystemClock),
            Scripts::built_in(),
            self.settings,
            self.router,
        )
        .await
    }
}

#[cfg(feature = "redis")]
impl Builder {
    /// The servers to begin with, by URL: any one node of the cluster is enough.
    pub fn servers<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.redis
            .urls
            .extend(urls.into_iter().map(|url| url.as_ref().to_owned()));
        self
    }

    /// Who this client says it is, asked at each new connection: so passwords can change while it runs. What the URLs say
    /// does not count then. A server that does not accept them is [`Unavailable`](ErrorKind::Unavailable) and dialled again, unless
    /// the provider says that they cannot change. Default: what the URLs say, in which they must agree.
    pub fn credentials(mut self, provider: impl crate::CredentialsProvider) -> Self {
        self.redis.connector.credentials = Some(Arc::new(provider));
        self
    }

    /// The name in the servers' `CLIENT LIST`. Default: none.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.redis.connector.client_name = Some(name.into());
        self
    }

    /// For `rediss://`: root certificates (PEM) to trust instead of the system's. Needs the feature `redis-tls`.
    pub fn tls_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.redis.connector.tls.get_or_insert_default().roots = Some(pem.into());
        self
    }

    /// For `rediss://`: this client's certificate and its key (PEM). Needs the feature `redis-tls`.
    pub fn tls_client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.redis.connector.tls.get_or_insert_default().client = Some((certificate.into(), key.into()));
        self
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a setting out of its range, or URLs that are none or differ in what they say beside the address;
    /// [`Unavailable`](ErrorKind::Unavailable) if no server can be reached; [`Refused`](ErrorKind::Refused) if it
    /// does not let this client in.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no lock was taken yet, and what was opened is closed.
    pub async fn connect(mut self) -> Result<Locks> {
        refuse(self.given_scripts(), "connect")?;
        self.settings.check()?;
        let mut servers = Vec::new();
        for url in &self.redis.urls {
            let server: crate::node::redis::Server = url
                .parse()
                .map_err(|error| Error::invalid("not the URL of a server").because(error))?;
            servers.push(server);
        }
        let Some(first) = servers.first() else {
            return Err(Error::invalid("no server was named"));
        };
        let connector = &mut self.redis.connector;
        let provided = connector.credentials.is_some();
        let as_first = |other: &crate::node::redis::Server| {
            let same_user = provided || other.credentials == first.credentials;
            same_user && other.tls == first.tls && other.database == first.database
        };
        if !servers.iter().all(as_first) {
            return Err(Error::invalid("the URLs differ in credentials, TLS or database"));
        }
        if first.tls {
            connector.tls.get_or_insert_default();
        } else if connector.tls.is_some() {
            return Err(Error::invalid("certificates need URLs with rediss://"));
        }
        connector.database = first.database;
        if !provided {
            connector.credentials = first.credentials.clone().map(|credentials| Arc::new(credentials) as _);
        }
        self.router.seeds = servers.into_iter().map(|server| server.address).collect();
        let clock = Arc::new(crate::clock::SystemClock);
        Locks::start(
            Arc::new(self.redis.connector),
            clock,
            Scripts::built_in(),
            self.settings,
            self.router,
        )
        .await
    }
}
