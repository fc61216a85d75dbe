//! The settings of a client, and the ways to connect. Only this module knows every layer.

#[cfg(feature = "cluster-async")]
mod cluster_connection;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "fred")]
mod fred;
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) mod sentinel;
#[cfg(any(feature = "native", feature = "redis"))]
mod urls;

use std::sync::Arc;
use std::time::Duration;

use crate::client::config::ClientConfig;
use crate::client::loss::{LeaseLoss, LossListener};
use crate::error::{Error, Result};
use crate::lock::cached::config::Cache;
use crate::protocol::Fairness;
#[cfg(feature = "embedded")]
use crate::protocol::Scripts;
use crate::router::RouterConfig;
#[cfg(any(feature = "native", feature = "redis"))]
use urls::UrlSettings;

/// The settings of a client. Setters do not fail; [`connect`](Builder::connect) checks the values.
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `connect`"]
pub struct Builder {
    settings: ClientConfig,
    router: RouterConfig,
    /// The name of a setting about dialling or sending that was set, and that a connection of the
    /// application would ignore.
    dialing: Option<&'static str>,
    #[cfg(any(feature = "native", feature = "redis"))]
    urls: UrlSettings,
    #[cfg(feature = "embedded")]
    scripts: Option<&'static Scripts>,
}

impl Builder {
    /// The prefix of a lock's name in its key, without braces. All clients of a lock must use the
    /// same. Default: `rwlease:`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.key_prefix = prefix.into();
        self
    }

    /// The prefix of a mutex's name in its key. All clients of a mutex must use the same. Default:
    /// none, so that the key is the one other libraries use.
    pub fn mutex_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.set_nx_key_prefix = prefix.into();
        self
    }

    /// Lease duration, 10 ms to 30 days: how long the lock survives without renewal. Default: 30 s.
    ///
    /// A lease is renewed after a third of it. On a runtime with one thread, no task may run for
    /// more than a twelfth of the lease between two awaits (2.5 s of 30 s): a renewal takes several
    /// turns of the runtime, and the first one at a server two calls.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How much earlier a lease ends here than at the server, at most half of the lease. It covers
    /// the different speeds of the two clocks, and the clock skew between two servers when the lock
    /// moves from one to the other: see [`Lease`](crate::Lease). Default: a twentieth of the lease,
    /// at most 500 ms. Set a larger one if your servers' clocks may differ by more.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.settings.safety_margin = Some(margin);
        self
    }

    /// The policy that orders waiting readers and writers. Default: phase-fair.
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.settings.fairness = fairness;
        self
    }

    /// The maximum number of waiters in the queue of one lock. Further requests fail with
    /// [`TooManyWaiters`](crate::ErrorKind::TooManyWaiters). Default: 10,000.
    pub fn max_waiters(mut self, most: u64) -> Self {
        self.settings.max_queue_len = most;
        self
    }

    /// How often the head of a queue polls. Each place behind it adds the same time. Default:
    /// 250 ms.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.polling.poll_interval = interval;
        self
    }

    /// How long the server keeps a waiter's place without a poll, at least three poll intervals.
    /// Default: 10 s.
    pub fn waiter_ttl(mut self, waiter_ttl: Duration) -> Self {
        self.settings.polling.waiter_ttl = waiter_ttl;
        self
    }

    /// How long a grant waits for the claim of the waiter that it was pushed to, at most for the
    /// requested lease. A dead waiter costs the queue this time. Until the claim is answered, the
    /// waiter holds the lock for this time less the [margin](Self::margin), or not at all if that
    /// is less than a quarter of it. Default: 1.5 s, of which the default margin of long leases
    /// leaves one second.
    pub fn claim_window(mut self, window: Duration) -> Self {
        self.settings.polling.claim_timeout = window;
        self
    }

    /// Sets a function to call when any lease of the client is lost, for example to log or count it
    /// or to stop something. Default: none.
    ///
    /// A task of the client calls it, on the client's runtime, once for each loss and in the order
    /// of the losses: never within the caller's own drop or release. It does so before the server
    /// grants the lock to anybody else, as long as the runtime keeps up. The function must be quick
    /// and must not block. If it panics, nothing else is affected, and the event `rwlease.callback`
    /// says so. While it is more than 131,072 losses behind, further losses are not reported to it.
    ///
    /// [`shutdown`](crate::Locks::shutdown) waits until all losses are reported. Once the client's
    /// runtime has ended, the function is not called any more: guards, [`Lease::lost`] and its
    /// cancellation tokens still tell.
    ///
    /// [`Lease::lost`]: crate::Lease::lost
    pub fn on_lost(mut self, listener: impl Fn(&LeaseLoss) + Send + Sync + 'static) -> Self {
        self.settings.loss_listener = LossListener(Some(Arc::new(listener)));
        self
    }

    /// How the client caches the locks of [`RwLock::cached`](crate::RwLock::cached), and how long a
    /// try waits for locks that other clients have cached.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.settings.cache = cache.0;
        self
    }

    /// How long one call is retried while the servers cannot serve it: a try, also one of a request
    /// that waits by tries (as for a [`Mutex`](crate::Mutex)), a release, a query. Then it fails
    /// with [`Unavailable`](crate::ErrorKind::Unavailable). Default: 10 s.
    ///
    /// A request that waits in a queue is not limited by it: without a
    /// [`timeout`](crate::Acquire::timeout) it waits as long for servers that are silent, cannot be
    /// reached, load their data, lack replicas or redirect to one another as it would for another
    /// holder. It fails at once with an error that waiting does not mend, such as a wrong password.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// The longest time to open one connection, 1 ms to 1 h. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.router.connect_timeout = timeout;
        self.dialing = Some("connect_timeout");
        self
    }

    /// How long a server may be silent while calls wait for its answers, 1 ms to 1 h. Then they are
    /// repeated, elsewhere if the slot has moved. As long as the server answers anything, it is
    /// working on earlier calls, and nothing is sent twice. Default: 500 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.router.response_timeout = timeout;
        self
    }

    /// The maximum number of calls of this client that each server has to answer at the same time,
    /// at least 1. Further calls wait here, first in, first out. A call whose deadline is near is
    /// not sent: it fails with [`Unavailable`](crate::ErrorKind::Unavailable) and leaves nothing at
    /// the server. Background renewals and releases are counted separately. Default: 256, which a
    /// server answers in a few milliseconds; a longer round trip can use more.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.router.max_in_flight_per_server = calls;
        self.dialing = Some("max_in_flight");
        self
    }

    /// Translates the host and port that a server announces into those to connect to, for
    /// containers, tunnels and forwarded ports. If it panics, the announced ones are used, and the
    /// event `rwlease.callback` says so.
    pub fn address_translator(
        mut self,
        address_translator: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.router.address_translator = Some(Arc::new(address_translator));
        self.dialing = Some("address_translator");
        self
    }

    #[cfg(all(
        any(feature = "native", feature = "redis"),
        any(feature = "embedded", feature = "fred", feature = "cluster-async")
    ))]
    fn given_with_urls(&self) -> Option<&'static str> {
        self.urls.given()
    }

    #[cfg(not(any(feature = "native", feature = "redis")))]
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

/// A setting without effect is an error: a caller that sets certificates, for example, must not be
/// connected without them.
fn refuse(given: Option<&str>, connector: &str) -> Result<()> {
    match given {
        Some(given) => Err(Error::invalid(format!("`{given}` does nothing with `{connector}`"))),
        None => Ok(()),
    }
}
