//! A client of one cluster, from which users get all locks.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use futures::future::{Either, select};

use crate::backend::Connector;
use crate::client::acquisition::{Acquisition, AcquisitionEvent};
use crate::client::config::ClientConfig;
use crate::client::telemetry;
use crate::client::worker;
use crate::client::{ClientHandle, ClientInner};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::builder::Builder;
use crate::lock::leader::Leader;
use crate::lock::lock_scan::Listing;
use crate::lock::multi_lock::Multi;
use crate::lock::reentrant::Reentrant;
use crate::lock::rwlock::RwLock;
use crate::lock::semaphore::Semaphore;
use crate::lock::set_nx_mutex::Mutex;
use crate::protocol::{ClientId, Scripts};
use crate::router::{Router, RouterConfig, Transport};

/// A client of one cluster, or of a single server. It makes locks and keeps their leases.
///
/// Clones are cheap and share everything. One client is enough for a process. It has one connection
/// to each master that it uses, one more to each master where it waits, for subscriptions, and
/// others for calls that [replicas](crate::Acquire::replicas) must confirm.
///
/// Background tasks keep the leases and the connections, on the runtime that
/// [`connect`](Builder::connect) was called on. They end when all clones, all their locks and all
/// guards are dropped and the leases are released. That runtime must not stand still: timeouts are
/// kept there as well. A task may keep it busy between two awaits for a twelfth of the shortest
/// lease: see [`Builder::lease`]. Requests may be awaited on other tokio runtimes, each on one of
/// them.
///
/// A client *fails* when that runtime ends, or when one of its tasks panics, which a subscriber of
/// `tracing` or a recorder of metrics can cause. Then all its leases are lost and their holders are
/// told, requests under way end, and every call fails with
/// [`ClientFailed`](ErrorKind::ClientFailed). The servers keep the locks until their leases end.
#[derive(Clone)]
pub struct Locks {
    pub(crate) client: Arc<ClientHandle>,
}

impl Locks {
    /// Connects with the default settings to a cluster or to a single server. One node of the
    /// cluster is enough. URLs are `redis://[[user]:password@]host[:port]`, or `rediss://` for TLS
    /// (feature `tls`).
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Builder::connect`].
    #[cfg(any(feature = "native", feature = "redis"))]
    pub async fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Locks> {
        Locks::builder().servers(urls).connect().await
    }

    /// Connects to servers in this process that nothing else uses, for unit tests and experiments.
    ///
    /// To share the servers between clients, to set their clock or to make them fail, build an
    /// [`EmbeddedCluster`](crate::embedded::EmbeddedCluster) and connect to it by
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
        Locks::builder().connect_embedded(&crate::embedded::EmbeddedCluster::new()).await
    }

    /// Returns a [`Builder`], to connect with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The read/write lock with this name. The slot is that of the name's hash tag: `order:{42}`
    /// and `invoice:{42}` share one. No round trip.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a name that is empty or longer than 512 bytes.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.client.clone(), name.as_ref())
    }

    /// The plain mutex with this name. The name is the key, unless a
    /// [prefix](Builder::mutex_prefix) is set, so other libraries that use `SET key value NX PX`
    /// can share the mutex. No round trip.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for a name that is empty or longer than 512 bytes.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Mutex::new(self.client.clone(), name.as_ref())
    }

    /// The semaphore with this name and `limit` permits, 1 to 4,294,967,295: see [`Semaphore`]. No
    /// round trip.
    ///
    /// # Errors
    ///
    /// As [`rwlock`](Self::rwlock), and [`Invalid`](ErrorKind::Invalid) for a limit of zero.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Result<Semaphore> {
        Semaphore::new(self.client.clone(), name.as_ref(), limit)
    }

    /// The election with this name, in which one candidate leads at a time: see [`Leader`]. No
    /// round trip.
    ///
    /// # Errors
    ///
    /// As [`rwlock`](Self::rwlock).
    pub fn leader(&self, name: impl AsRef<str>) -> Result<Leader> {
        Leader::new(self.client.clone(), name.as_ref())
    }

    /// A request for several locks at once, in any slots: see [`Multi`].
    pub fn multi(&self) -> Multi {
        Multi::new(self.client.clone())
    }

    /// Lists the read/write locks and semaphores on the servers whose names begin with `start`: see
    /// [`Listing`].
    pub fn list(&self, start: impl AsRef<str>) -> Listing {
        Listing::new(self.client.clone(), start.as_ref())
    }

    /// An actor that may hold the same lock again: see [`Reentrant`].
    pub fn reentrant(&self) -> Reentrant {
        Reentrant::new(self.client.clone())
    }

    /// Shuts the client down: it takes no more locks and releases those it holds, whose guards are
    /// lost.
    ///
    /// Waits until every release is answered and the listener of [`on_lost`](Builder::on_lost) has
    /// been called for each loss, for at most `within`. Returns the names of the locks that may not
    /// have been released; those end with their leases.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the releases go on in the background.
    pub async fn shutdown(&self, within: Duration) -> Vec<String> {
        let client = &self.client;
        client.close();
        let until = client.clock.now().saturating_add(within);
        GivingUp { client, acquisitions: client.acquisitions().into_iter() }.run().await;
        while !client.is_drained() {
            let mut drained = pin!(client.drained.notified());
            drained.as_mut().enable();
            if client.is_drained() {
                break;
            }
            let sleep = client.clock.sleep_until(until);
            if let Either::Right(_) = select(drained, sleep).await {
                break;
            }
        }
        let delivered = pin!(client.losses.delivered());
        select(delivered, client.clock.sleep_until(until)).await;
        let left = client.acquisitions();
        client.transport.close();
        left.iter().map(|acquisition| acquisition.lock.name.to_string()).collect()
    }

    /// Whether this client still tracks that acquisition: it acquires or holds by it, or has not
    /// yet seen it end.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn knows(&self, id: &str) -> bool {
        self.client.find(id).is_some()
    }

    /// Whether that acquisition still wants or holds the lock, and has not been given up.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn wants(&self, id: &str) -> bool {
        self.client.find(id).is_some_and(|acquisition| acquisition.state().is_live())
    }

    /// The scripts that this client uses.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn scripts(&self) -> impl Iterator<Item = &'static crate::router::Script> {
        self.client.scripts.all().into_iter()
    }

    /// The prefix of the ids of all this client's acquisitions. It identifies them among the
    /// holders and waiters of a [`Status`](crate::Status).
    pub fn client_id(&self) -> String {
        self.client.id().to_string()
    }

    /// Starts a client over any kind of connection.
    pub(crate) async fn start(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        scripts: &'static Scripts,
        settings: ClientConfig,
        router: RouterConfig,
    ) -> Result<Locks> {
        settings.check()?;
        router.check()?;
        on_tokio()?;
        let router = Router::connect(connector, clock.clone(), router).await?;
        Locks::over(Transport::Router(router), clock, scripts, settings)
    }

    pub(crate) fn over(
        router: Transport,
        clock: Arc<dyn Clock>,
        scripts: &'static Scripts,
        settings: ClientConfig,
    ) -> Result<Locks> {
        let random = match settings.id {
            Some(id) => id,
            None => random_id()?,
        };
        let client = Arc::new(ClientInner::new(
            router,
            clock,
            settings,
            scripts,
            ClientId::from_random(random),
        ));
        telemetry::describe();
        worker::install_push_handler(&client);
        client.start();
        Ok(Locks { client: Arc::new(ClientHandle(client)) })
    }
}

/// Gives up the acquisitions of a client, a few at a time: the runtime may have one thread, and
/// other tasks.
struct GivingUp<'a> {
    client: &'a ClientInner,
    acquisitions: vec::IntoIter<Arc<Acquisition>>,
}

impl GivingUp<'_> {
    const TURN: usize = 256;

    async fn run(mut self) {
        while self.give_up(GivingUp::TURN) {
            tokio::task::yield_now().await;
        }
    }

    /// Returns false if there are no more.
    fn give_up(&mut self, most: usize) -> bool {
        for acquisition in self.acquisitions.by_ref().take(most) {
            self.client.apply(&acquisition, AcquisitionEvent::Abandon);
        }
        self.acquisitions.len() > 0
    }
}

impl Drop for GivingUp<'_> {
    /// The caller has dropped the future.
    fn drop(&mut self) {
        self.give_up(usize::MAX);
    }
}

fn random_id() -> Result<[u8; 11]> {
    let mut random = [0; 11];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no randomness for the client's id").with_source(error)
    })?;
    Ok(random)
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("settings", &self.client.settings).finish_non_exhaustive()
    }
}

/// Fails outside of a tokio runtime, which the library's tasks need.
pub(crate) fn on_tokio() -> Result<()> {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Error::invalid("clients must be made on a tokio runtime").with_source(error))
        }
    }
}
