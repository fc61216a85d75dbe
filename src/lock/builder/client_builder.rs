use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{Fairness, Fsync};

#[cfg(any(feature = "native", feature = "redis"))]
use super::{sentinel::SentinelConfig, urls::UrlSettings};
use crate::client::cache::cache_config::CacheConfig;
use crate::client::config::ClientConfig;
use crate::client::label::ClientLabel;
use crate::client::loss::{LeaseLoss, LossListener};
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
use crate::error::{Error, Result};
use crate::router::RouterConfig;

/// The settings of a client, and the ways to connect.
///
/// [`Client::builder`](crate::Client::builder) makes it. Setters do not fail: the methods that
/// connect check the values. A setting that has no effect with the way to connect is
/// [`InvalidInput`](crate::ErrorKind::InvalidInput).
///
/// ```no_run
/// # #[cfg(feature = "native")]
/// # async fn example() -> rwlease::Result<()> {
/// use std::time::Duration;
///
/// let client = rwlease::Client::builder()
///     .urls(["redis://10.0.0.1:7000", "redis://10.0.0.2:7000"])
///     .key_prefix("shop:")
///     .lease(Duration::from_secs(10))
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `connect`"]
pub struct ClientBuilder {
    pub(super) settings: ClientConfig,
    pub(super) router: RouterConfig,
    /// The name of a setting about dialling or sending that was set, and that a connection of the
    /// application would ignore.
    pub(super) dialing: Option<&'static str>,
    #[cfg(any(feature = "native", feature = "redis"))]
    pub(super) urls: UrlSettings,
}

impl ClientBuilder {
    /// Adds the URLs of the servers to connect to first.
    ///
    /// A URL is `redis://[[user]:password@]host[:port][/database]`, or `rediss://` for TLS.
    /// `valkey://` and `valkeys://` mean the same. The default port is 6379. A user needs a
    /// password. One node of the cluster is enough. All must be of one deployment, and agree in all
    /// but the address.
    ///
    /// URLs of sentinels are allowed in place of these:
    /// `redis+sentinel://[[user]:password@]host[:port][,host[:port]...]/master[/database]`, or
    /// `rediss+sentinel://` for TLS. The default port of a sentinel is 26379. See
    /// [`SentinelConfig`].
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn urls<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.urls.extend(urls.into_iter().map(|url| url.as_ref().to_owned()));
        self
    }

    /// Sets the prefix of a lock's name in its key: at most 128 bytes, without braces.
    /// Default: `rwlease:`.
    ///
    /// All clients of a lock must use the same prefix.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.key_prefix = prefix.into();
        self
    }

    /// Sets who this client is, in one word: at most 64 printable ASCII characters, without spaces.
    /// Default: the host name up to its first dot and the process id, `web-1:4711`.
    ///
    /// The label stands in the [record](crate::status::ClientInfo) that the client writes after
    /// connecting and again within each hour. A [status](crate::RwLock::status) shows it with the
    /// holders and waiters of this client, also after the client died. It is also the client's name
    /// in the servers' `CLIENT LIST`, except over connections of `fred` or of the application.
    ///
    /// An empty label turns both off. Several clients may have one label.
    ///
    /// The record costs one or two calls an hour, in the background, and some 150 bytes of a
    /// server's memory, for two hours after the first call and for a day after later ones. The user
    /// needs the rights `+set` and `+get`. Without them all else works.
    ///
    /// # Errors
    ///
    /// A label with other characters, or a longer one, makes the methods that connect fail with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = ClientLabel::Text(label.into());
        self
    }

    /// Sets the lease duration, 10 ms to 30 days: how long a lock survives without renewal.
    /// Default: 30 s. [`Acquire::lease`](crate::Acquire::lease) sets it for one request.
    ///
    /// A lease is renewed after a third of it. On a runtime with one thread, no task may run for
    /// more than a twelfth of the lease between two awaits (2.5 s of 30 s): a renewal takes several
    /// turns of the runtime, and the first one at a server two calls.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how much earlier a lease ends here than at the server, at most half of the lease.
    /// Default: a twentieth of the lease, at most 500 ms.
    ///
    /// The margin covers the different speeds of the two clocks, and the clock skew between two
    /// servers when the lock moves from one to the other: see [`Lease`](crate::Lease). Set a larger
    /// one if your servers' clocks may differ by more.
    pub fn safety_margin(mut self, margin: Duration) -> Self {
        self.settings.acquisition.safety_margin = Some(margin);
        self
    }

    /// Sets the policy that orders waiting readers and writers. Default:
    /// [phase-fair](Fairness::PhaseFair).
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.settings.fairness = fairness;
        self
    }

    /// Sets [`Acquire::min_replicas`](crate::Acquire::min_replicas) for all requests of the client,
    /// also for cached locks and elections. Default: 0. A request overrides it, also by 0.
    pub fn min_replicas(mut self, replicas: u32) -> Self {
        self.settings.confirmation.replicas = replicas;
        self
    }

    /// Sets [`Acquire::fsync`](crate::Acquire::fsync) for all requests of the client, also for
    /// cached locks and elections. Default: [`Fsync::None`].
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.settings.confirmation.fsync = fsync;
        self
    }

    /// Sets a function to call when any lease of the client is lost, for example to log or count
    /// the loss or to stop something. Default: none.
    ///
    /// ```no_run
    /// # #[cfg(feature = "native")]
    /// # async fn example() -> rwlease::Result<()> {
    /// let client = rwlease::Client::builder()
    ///     .urls(["redis://127.0.0.1:7000"])
    ///     .on_lease_lost(|loss| eprintln!("lost {} after {:?}", loss.lock, loss.held_for))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A task of the client calls it, on the client's runtime, once for each loss and in the order
    /// of the losses: never within the caller's own drop or release. While the runtime keeps up and
    /// the server keeps the lease, the call comes before the server grants the lock to another
    /// client. If the server no longer has the lease (a failover, a restart, a forced release, a
    /// deleted or evicted key), the call comes at the next renewal at the latest, a third of the
    /// lease later. Another client may hold the lock by then.
    ///
    /// The function must be quick and must not block. If it panics, nothing else is affected, and
    /// the event `rwlease.callback` says so. If more than 131,072 losses wait for the function, it
    /// is not called for further losses.
    ///
    /// For the lock of a [`Redlock`](crate::Redlock), the listener of the first member's client is
    /// called, once, when the lock is lost. It is not called when one member loses its lease.
    ///
    /// [`shutdown`](crate::Client::shutdown) waits until all losses are reported. After the end of
    /// the client's runtime, the function is not called. Guards, [`Lease::ended`] and its
    /// cancellation tokens still report losses.
    ///
    /// [`Lease::ended`]: crate::Lease::ended
    pub fn on_lease_lost(mut self, listener: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Self {
        self.settings.loss_listener = LossListener(Some(Arc::new(listener)));
        self
    }

    /// Sets how the client caches the locks of [`RwLock::cached`](crate::RwLock::cached), and how
    /// long a try waits for locks that other clients have cached. Default: the default
    /// [`CacheConfig`].
    pub fn cache(mut self, cache: CacheConfig) -> Self {
        self.settings.cache = cache;
        self
    }

    /// Sets the maximum number of waiters in the queue of one lock. Default: 10,000. Further
    /// requests fail with [`QueueFull`](crate::ErrorKind::QueueFull).
    ///
    /// A waiter whose client has died counts until its [`waiter_ttl`](Self::waiter_ttl) has passed
    /// and the living waiters before it have gone.
    ///
    /// With 0 a request is granted a free lock, and does not wait for others. `u64::MAX` means no
    /// limit: more than 999,999,999,999 waiters fit into no server.
    pub fn max_queue_len(mut self, most: u64) -> Self {
        self.settings.acquisition.max_queue_len = most;
        self
    }

    /// Sets how long one call is retried while the servers cannot serve it, 1 ms to 1 h. Default:
    /// 10 s. After that the call fails with [`Unavailable`](crate::ErrorKind::Unavailable).
    ///
    /// Calls are a try, also one of a request that waits by tries (as for a
    /// [`SetNxMutex`](crate::SetNxMutex)), a release and a query. A confirmation adds 250 ms for
    /// [`min_replicas`](ClientBuilder::min_replicas), and 2 s for
    /// [`fsync`](ClientBuilder::fsync).
    ///
    /// It does not limit a request that waits in a queue. Without a
    /// [`timeout`](crate::Acquire::timeout), such a request waits without a limit for other
    /// holders, and also for servers that do not reply, are unreachable, load their data, redirect
    /// to each other, or refuse writes because replicas are missing (`NOREPLICAS`). It fails within
    /// two seconds with an error that waiting cannot fix, such as a wrong password. A request whose
    /// grant too few replicas or disks confirm in time fails with
    /// [`Unavailable`](crate::ErrorKind::Unavailable) all the same: see
    /// [`Acquire::min_replicas`](crate::Acquire::min_replicas).
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.acquisition.call_timeout = timeout;
        self
    }

    /// Sets the longest time to open one connection, 1 ms to 1 h. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.router.connect_timeout = timeout;
        self.dialing = Some("connect_timeout");
        self
    }

    /// Waits at most this long in total for servers that do not answer yet when the client
    /// connects, for example because they start later. Default: no wait, so that connecting fails
    /// as soon as no server can be used.
    ///
    /// The first try takes as long as without a wait. A shorter `timeout` does not end it.
    ///
    /// The client tries again after pauses of at most a second, and emits the event
    /// `rwlease.wait_for_servers` at the first failure and every 30 s. It waits for what starting
    /// servers bring: a refused connection, a name that does not resolve, a server that loads its
    /// data, sentinels without a master that answers, and the nodes of a cluster that is being
    /// made. An error that waiting cannot mend is returned at once: an invalid URL or setting, a
    /// rejected password or certificate, a master's name that no sentinel knows.
    ///
    /// ```no_run
    /// # #[cfg(any(feature = "native", feature = "redis"))]
    /// # async fn example() -> rwlease::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = rwlease::Client::builder()
    ///     .urls(["redis://redis:6379"])
    ///     .wait_for_servers(Duration::from_secs(60))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn wait_for_servers(mut self, timeout: Duration) -> Self {
        self.router.wait_for_servers = Some(timeout);
        self.dialing = Some("wait_for_servers");
        self
    }

    /// Sets how long a server may be silent while calls wait for its answers, 1 ms to 1 h. Default:
    /// 500 ms.
    ///
    /// After that the calls are repeated, elsewhere if the slot has moved. While replies arrive,
    /// the server is working on earlier calls, and no call is sent twice.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.router.response_timeout = timeout;
        self
    }

    /// Sets the maximum number of calls of this client that each server has to answer at the same
    /// time, 1 to 1,048,576. Default: 256.
    ///
    /// A server answers 256 calls in a few milliseconds; a longer round trip can use more. Further
    /// calls wait here, first in, first out. A call whose deadline is near is not sent: it fails
    /// with [`Unavailable`](crate::ErrorKind::Unavailable) and has no effect at the server.
    /// Background renewals and releases are counted separately.
    ///
    /// While replies miss the deadlines of their calls because the server has a queue, a connection
    /// keeps fewer calls in flight: half of the current number each time, down to 16. Other replies
    /// raise the number again.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.router.max_in_flight_per_server = calls;
        self.dialing = Some("max_in_flight");
        self
    }

    /// Sets a function from the host and port that a server announces to those to connect to, for
    /// containers, tunnels and forwarded ports. Default: none.
    ///
    /// If the function panics, the announced addresses are used, and the event `rwlease.callback`
    /// says so.
    pub fn address_translator(
        mut self,
        address_translator: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.router.address_translator = Some(Arc::new(address_translator));
        self.dialing = Some("address_translator");
        self
    }

    /// Sets the provider of the servers' credentials, in place of the credentials of the URLs.
    /// Default: the credentials in the URLs, which must agree.
    ///
    /// The provider is called for each new connection, so passwords can change while the client
    /// runs. A server that rejects the credentials is
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and is dialled again, unless the provider
    /// says that they cannot change.
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn credentials(mut self, provider: impl crate::backend::CredentialsProvider) -> Self {
        self.urls.dialer.credentials = Some(Arc::new(provider));
        self
    }

    /// Sets the root certificates (PEM) that the client trusts. Default: the system's. It is for
    /// `rediss://` and needs the feature `tls`.
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn tls_root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.urls.dialer.tls.get_or_insert_default().roots = Some(pem.into());
        self
    }

    /// Sets this client's certificate and its key (PEM). Default: none. It is for `rediss://` and
    /// needs the feature `tls`.
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn tls_client_identity(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.urls.dialer.tls.get_or_insert_default().client =
            Some((certificate.into(), key.into()));
        self
    }

    /// Sets the sentinels to ask for the master, instead of [`urls`](Self::urls).
    ///
    /// The client asks them each time it connects and when calls fail, and subscribes to their
    /// announcements of changes. `docs/deployments.md` describes what holds in a failover.
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn sentinel(mut self, sentinel: SentinelConfig) -> Self {
        self.urls.sentinel = Some(sentinel);
        self
    }

    /// Sets the prefix of the name of a [`SetNxMutex`](crate::SetNxMutex) in its key: at most 128
    /// bytes, without braces. Default: no prefix, so that the key is the key of other libraries.
    ///
    /// All clients of a mutex must use the same prefix.
    pub fn set_nx_key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.set_nx_key_prefix = prefix.into();
        self
    }

    /// Sets how often the head of a queue polls, 1 ms to 60 s. Default: 250 ms. Each place
    /// behind it adds the same time.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.acquisition.polling.poll_interval = interval;
        self
    }

    /// Sets how long the server keeps a waiter's place without a poll, 100 ms to 1 h and at
    /// least three poll intervals. Default: 10 s.
    pub fn waiter_ttl(mut self, waiter_ttl: Duration) -> Self {
        self.settings.acquisition.polling.waiter_ttl = waiter_ttl;
        self
    }

    /// Sets how long a grant waits for the claim of the waiter that it was pushed to, 10 ms to 10
    /// min, and at most for the requested lease. Default: 1.5 s, of which the default margin of
    /// long leases leaves one second.
    ///
    /// A dead waiter costs the queue this time. Until the claim is answered, the waiter holds the
    /// lock for this time less the [margin](Self::safety_margin), or not at all if that is less
    /// than a quarter of it. A grant that replicas or disks must confirm waits longer: by twice the
    /// time that they have, 250 ms for replicas plus 2 s for disks.
    pub fn claim_timeout(mut self, window: Duration) -> Self {
        self.settings.acquisition.polling.claim_timeout = window;
        self
    }

    #[cfg(all(
        any(feature = "native", feature = "redis"),
        any(feature = "embedded", feature = "fred", feature = "cluster-async")
    ))]
    pub(super) fn given_with_urls(&self) -> Option<&'static str> {
        self.urls.given()
    }

    // Without connections by URL there is nothing to set.
    #[cfg(not(any(feature = "native", feature = "redis")))]
    pub(super) fn given_with_urls(&self) -> Option<&'static str> {
        None
    }
}

/// A setting without effect is an error: a caller that sets certificates, for example, must not be
/// connected without them.
#[cfg(any(feature = "embedded", feature = "fred", feature = "cluster-async"))]
pub(super) fn refuse(given: Option<&str>, connector: &str) -> Result<()> {
    given.map_or(Ok(()), |given| {
        Err(Error::invalid(format!("`{given}` has no effect with `{connector}`; remove it")))
    })
}
