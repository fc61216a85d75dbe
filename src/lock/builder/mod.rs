//! What a client can be set to, and the ways to connect: the one place that knows every layer.

#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "fred")]
mod fred;
#[cfg(any(feature = "native", feature = "redis"))]
pub(crate) mod sentinel;
#[cfg(feature = "cluster-async")]
mod shared;
#[cfg(any(feature = "native", feature = "redis"))]
mod urls;

use std::sync::Arc;
use std::time::Duration;

use crate::client::lost::{Loss, OnLost};
use crate::client::settings::Settings;
use crate::error::{Error, Result};
use crate::lock::cached::settings::Cache;
use crate::protocol::Fairness;
#[cfg(feature = "embedded")]
use crate::protocol::Scripts;
use crate::router::RouterSettings;
#[cfg(any(feature = "native", feature = "redis"))]
use urls::UrlSettings;

/// Settings of a client. No setter fails; [`connect`](Builder::connect) checks them.
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `connect`"]
pub struct Builder {
    settings: Settings,
    router: RouterSettings,
    /// One that was given of how to dial and send, which a connection of the application's does in
    /// its own way.
    dialing: Option<&'static str>,
    #[cfg(any(feature = "native", feature = "redis"))]
    urls: UrlSettings,
    #[cfg(feature = "embedded")]
    scripts: Option<&'static Scripts>,
}

impl Builder {
    /// What goes before a lock's name in its key, with no braces. Default: `rwlease:`. All clients
    /// of a lock need the same.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = prefix.into();
        self
    }

    /// What goes before a mutex's name in its key. Default: nothing, so that the key is what others
    /// call it. All users of a mutex need the same.
    pub fn mutex_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.mutex_prefix = prefix.into();
        self
    }

    /// Lease duration, 10 ms to 30 days: how long the lock survives without renewal. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How much earlier a lease ends here than at the server, at most half of the lease. It covers
    /// the difference in speed of the two clocks and the skew between two servers when the lock
    /// moves from one to the other: [`Lease`](crate::Lease) says how. Default: a twentieth of the
    /// lease, at most 500 ms; so servers whose clocks may differ by more than that need a larger
    /// one.
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
    pub fn max_waiters(mut self, most: u64) -> Self {
        self.settings.max_waiters = most;
        self
    }

    /// How often the head of a queue polls; each place behind it adds as much. Default: 250 ms.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll.interval = interval;
        self
    }

    /// How long a place in a queue is kept for a waiter that does not poll, at least three poll
    /// intervals. Default: 10 s.
    pub fn waiter_ttl(mut self, waiter_ttl: Duration) -> Self {
        self.settings.poll.waiter_ttl = waiter_ttl;
        self
    }

    /// How long a grant waits to be claimed by the waiter that it was pushed to. A dead waiter that
    /// nobody knows to be dead costs the queue this long. Until the claim is answered the waiter
    /// holds for this long less the [margin](Self::margin); where that is less than a quarter of
    /// it, the waiter does not hold before the answer. Default: 1.5 s, of which the default margin
    /// of long leases leaves one.
    pub fn claim_window(mut self, window: Duration) -> Self {
        self.settings.poll.window = window;
        self
    }

    /// What to do whenever a lease is lost, whichever guard's: to log it, to count it, to stop
    /// something. Called on the client's own task, before the server lets the next one in as long
    /// as the runtime keeps up; so it must be quick, and must not block. Default: nothing.
    pub fn on_lost(mut self, listener: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
        self.settings.on_lost = OnLost(Some(Arc::new(listener)));
        self
    }

    /// How locks are cached that are made by [`RwLock::cached`](crate::RwLock::cached), and how
    /// long a try waits for those of other clients.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.settings.cache = cache.0;
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

    /// How long a server may be silent while calls wait for its answers, from 1 ms to 1 h; then
    /// they are repeated, elsewhere if the slot has moved. As long as it answers anything, it is at
    /// work on what came before, and nothing is sent twice. Default: 500 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.router.response_timeout = timeout;
        self
    }

    /// The most calls that each server has to answer for this client at the same time, at least 1.
    /// More wait here, first come, first served, and are sent as soon as others have been answered.
    /// A call whose time is nearly up is not sent any more: it fails as
    /// [`Unavailable`](crate::ErrorKind::Unavailable), and leaves nothing behind at the server.
    /// Renewals and releases in the background have turns of their own. Default: 256, which a
    /// server answers in a few milliseconds; more are of use where the round trip is long.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.router.max_in_flight = calls;
        self.dialing = Some("max_in_flight");
        self
    }

    /// Turns the host and port that a server announces into those to connect to: for containers,
    /// tunnels, forwarded ports.
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

/// What would do nothing is an error: a caller that sets certificates, say, must not be connected
/// without.
fn refuse(given: Option<&str>, connector: &str) -> Result<()> {
    match given {
        Some(given) => Err(Error::invalid(format!("`{given}` does nothing with `{connector}`"))),
        None => Ok(()),
    }
}
