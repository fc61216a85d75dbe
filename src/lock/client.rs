use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use futures::future::{Either, select};
use rwlease_core::acquisition::AcquisitionEvent;
use rwlease_core::protocol::ClientId;

use crate::backend::Connector;
use crate::client::acquisition::Acquisition;
use crate::client::config::ClientConfig;
use crate::client::{ClientHandle, ClientInner, telemetry, worker};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::accept_transfer::AcceptTransfer;
use crate::lock::builder::ClientBuilder;
use crate::lock::election::Election;
use crate::lock::lock_scan::LockScan;
use crate::lock::multi_lock::MultiLock;
use crate::lock::mutex::Mutex;
use crate::lock::reentrant::ReentrantOwner;
use crate::lock::rwlock::RwLock;
use crate::lock::semaphore::Semaphore;
use crate::lock::set_nx_mutex::SetNxMutex;
use crate::lock::transfer::LeaseTransfer;
use crate::router::{Router, RouterConfig, Transport};

/// A client of one cluster, or of a single server. It makes locks and keeps their leases.
///
/// ```no_run
/// # #[cfg(feature = "native")]
/// # async fn example() -> rwlease::Result<()> {
/// let client = rwlease::Client::connect(["redis://127.0.0.1:7000"]).await?; // any node
/// let order = client.rwlock("order:{42}")?;
/// # Ok(()) }
/// ```
///
/// Clones are cheap and share everything. One client is enough for a process. It has one connection
/// to each master that it uses, one more to each master where it waits, for subscriptions, and
/// others for calls that [replicas](crate::Acquire::min_replicas) must confirm.
///
/// Background tasks keep the leases and the connections, on the runtime that
/// [`connect`](ClientBuilder::connect) was called on. They end when all clones, all their locks and
/// all guards are dropped and the leases are released. That runtime must not stand still: timeouts
/// are kept there as well. A task may keep it busy between two awaits for a twelfth of the shortest
/// lease: see [`ClientBuilder::lease`]. Requests may be awaited on other tokio runtimes, each on
/// one of them.
///
/// A client *fails* when that runtime ends, or when one of its tasks panics, which a subscriber of
/// `tracing` or a recorder of metrics can cause. Then all its leases are lost and their holders are
/// told, requests under way end, and every call fails with
/// [`ClientFailed`](ErrorKind::ClientFailed). The servers keep the locks until their leases end.
///
/// # Copies of the process
///
/// Connect after a fork, and after a snapshot of the machine or of the process is restored. A copy
/// of a process has the same client, with the same id and the same number for its next acquisition.
/// Then the server takes the request of one copy for a repeated call of the other, and grants the
/// lock to both, with one fencing token. The library does not detect copies.
#[derive(Clone)]
pub struct Client {
    pub(crate) client: Arc<ClientHandle>,
}

impl Client {
    /// Connects with the default settings to a cluster or to a single server.
    ///
    /// One node of the cluster is enough. A URL is
    /// `redis://[[user]:password@]host[:port][/database]`, or `rediss://` for TLS (feature `tls`).
    /// The default port is 6379. URLs of sentinels are allowed too: see
    /// [`ClientBuilder::urls`].
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`ClientBuilder::connect`].
    #[cfg(feature = "native")]
    pub async fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Client> {
        Client::builder().urls(urls).connect().await
    }

    /// Returns a [`ClientBuilder`], to connect with other settings.
    ///
    /// ```no_run
    /// # #[cfg(feature = "native")]
    /// # async fn example() -> rwlease::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = rwlease::Client::builder()
    ///     .urls(["rediss://locker:secret@10.0.0.1:7000"])
    ///     .lease(Duration::from_secs(10))
    ///     .on_lease_lost(|loss| eprintln!("lost {}", loss.lock))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Connects to servers in this process that nothing else uses, for unit tests and experiments.
    ///
    /// To share the servers between clients, to set their clock or to make them fail, build an
    /// [`EmbeddedCluster`](crate::embedded::EmbeddedCluster) and connect to it by
    /// [`connect_embedded`](ClientBuilder::connect_embedded).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// let client = rwlease::Client::embedded().await?;
    /// let writing = client.rwlock("order:{42}")?.write().await?;
    /// assert!(writing.is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`ClientBuilder::connect_embedded`].
    #[cfg(feature = "embedded")]
    pub async fn embedded() -> Result<Client> {
        Client::builder().connect_embedded(&crate::embedded::EmbeddedCluster::new()).await
    }

    /// Returns the read/write lock with this name: see [`RwLock`]. No round trip.
    ///
    /// The slot of the lock is the slot of the hash tag in the name: `order:{42}` and
    /// `invoice:{42}` share one.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that is empty or longer than 512
    /// bytes, or begins with `fenced:` or `client:`: the library has other keys there.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.client.clone(), name.as_ref())
    }

    /// Returns the mutex with this name: see [`Mutex`]. No round trip.
    ///
    /// It is the write side of the [`rwlock`](Self::rwlock) with the same name.
    ///
    /// # Errors
    ///
    /// As [`rwlock`](Self::rwlock).
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Mutex::new(self.client.clone(), name.as_ref())
    }

    /// Returns the semaphore with this name and `limit` permits, 1 to 4,294,967,295: see
    /// [`Semaphore`]. No round trip.
    ///
    /// # Errors
    ///
    /// As [`rwlock`](Self::rwlock), and [`InvalidInput`](ErrorKind::InvalidInput) for a limit of
    /// zero.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Result<Semaphore> {
        Semaphore::new(self.client.clone(), name.as_ref(), limit)
    }

    /// Returns the election with this name, in which one candidate leads at a time: see
    /// [`Election`]. No round trip.
    ///
    /// # Errors
    ///
    /// As [`rwlock`](Self::rwlock).
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        Election::new(self.client.clone(), name.as_ref())
    }

    /// Returns a request for several locks at once, in any slots: see [`MultiLock`]. It is sent
    /// when awaited.
    pub fn multi_lock(&self) -> MultiLock {
        MultiLock::new(self.client.clone())
    }

    /// Returns a new actor that may hold the same lock again: see [`ReentrantOwner`]. No round
    /// trip.
    pub fn reentrant_owner(&self) -> ReentrantOwner {
        ReentrantOwner::new(self.client.clone())
    }

    /// Returns the mutex of `SET NX PX` with this name: see [`SetNxMutex`]. No round trip.
    ///
    /// The name is the key, unless a [prefix](ClientBuilder::set_nx_key_prefix) is set, so other
    /// libraries that use `SET key value NX PX` can share the mutex.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that is empty or longer than 512 bytes.
    pub fn set_nx_mutex(&self, name: impl AsRef<str>) -> Result<SetNxMutex> {
        SetNxMutex::new(self.client.clone(), name.as_ref())
    }

    /// Accepts a lock that another client has [transferred](crate::WriteGuard::into_transfer). It
    /// is sent when awaited.
    ///
    /// The guard renews and releases the lease, as any other guard does. It has the fencing token
    /// of the transfer. [`AcceptTransfer`] documents the cost, the errors and the cancel safety.
    ///
    /// A transfer can be accepted once. All later attempts fail with
    /// [`LeaseLost`](ErrorKind::LeaseLost). There is one exception: if the master fails before its
    /// replicas have the acceptance, a copy of the transfer may be accepted once more, with the
    /// same token. [`min_replicas`](AcceptTransfer::min_replicas) prevents that if a replica that
    /// confirmed the acceptance is promoted.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let engine = rwlease::embedded::EmbeddedCluster::new();
    /// # let client = rwlease::Client::builder().connect_embedded(&engine).await?;
    /// # let other = rwlease::Client::builder().connect_embedded(&engine).await?;
    /// let transfer = client.rwlock("order:{42}")?.write().await?.into_transfer().await?;
    /// let text = transfer.to_string(); // to another process, by a way that nobody else reads
    ///
    /// let guard = other.accept_transfer(&text.parse()?).await?;
    /// assert_eq!(guard.fencing_token(), transfer.fencing_token());
    /// assert!(guard.release().await?.was_held());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn accept_transfer<'a>(&'a self, transfer: &'a LeaseTransfer) -> AcceptTransfer<'a> {
        AcceptTransfer::new(&self.client, transfer)
    }

    /// Lists the read/write locks and semaphores on the servers whose names begin with `start`: see
    /// [`LockScan`]. Nothing is sent before it is read.
    pub fn scan(&self, start: impl AsRef<str>) -> LockScan {
        LockScan::new(self.client.clone(), start.as_ref())
    }

    /// Shuts the client down, and with it all its clones. It acquires no more locks, releases all
    /// held locks, and marks their guards as lost.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// use std::time::Duration;
    ///
    /// let left = client.shutdown(Duration::from_secs(5)).await;
    /// assert!(left.is_empty(), "may not have been released: {left:?}");
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// Waits until every release is answered and the listener of
    /// [`on_lease_lost`](ClientBuilder::on_lease_lost) has been called for each loss, for at most
    /// `within`. Returns the names of the locks that may not have been released; those end with
    /// their leases.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the releases go on in the background.
    pub async fn shutdown(&self, within: Duration) -> Vec<String> {
        let client = &self.client;
        client.registry().is_closed = true;
        let until = client.clock.now().saturating_add(within);
        GivingUp { client, acquisitions: client.acquisitions().into_iter() }.run().await;
        while !client.registry().is_drained() {
            let mut drained = pin!(client.drained.notified());
            drained.as_mut().enable();
            if client.registry().is_drained() {
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
        client.end_record();
        left.iter().map(|acquisition| acquisition.lock.name.to_string()).collect()
    }

    /// Returns the prefix of the ids of all acquisitions of this client. It identifies them among
    /// the holders and waiters of a [`LockStatus`](crate::LockStatus).
    pub fn client_id(&self) -> String {
        self.client.id().to_string()
    }

    /// Returns whether this client still tracks that acquisition: it acquires or holds by it, or
    /// has not yet seen it end.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn knows(&self, id: &str) -> bool {
        self.client.find(id).is_some()
    }

    /// Returns whether that acquisition still wants or holds the lock, and has not been given up.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn wants(&self, id: &str) -> bool {
        self.client.find(id).is_some_and(|acquisition| acquisition.state().is_live())
    }

    /// Returns the scripts that this client uses.
    #[cfg(feature = "embedded")]
    #[doc(hidden)]
    pub fn scripts(&self) -> impl Iterator<Item = &'static crate::scripts::Script> {
        self.client.transport.scripts().iter()
    }

    /// Starts a client over any kind of connection.
    pub(crate) async fn start(
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        settings: ClientConfig,
        router: RouterConfig,
    ) -> Result<Client> {
        settings.check()?;
        router.check()?;
        on_tokio()?;
        let router = Router::connect(connector, clock.clone(), router).await?;
        Client::over(Transport::Router(router), clock, settings)
    }

    pub(crate) fn over(
        router: Transport,
        clock: Arc<dyn Clock>,
        settings: ClientConfig,
    ) -> Result<Client> {
        let random = match settings.id {
            Some(id) => id,
            None => random_id()?,
        };
        let client =
            Arc::new(ClientInner::new(router, clock, settings, ClientId::from_random(random)));
        telemetry::describe();
        worker::install_push_handler(&client);
        client.start();
        Ok(Client { client: Arc::new(ClientHandle(client)) })
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
        let message = "the system returned no random bytes for the id of the client";
        Error::new(ErrorKind::Unavailable, message).with_source(error)
    })?;
    Ok(random)
}

debug_fields!(|client| Client { settings: client.client.settings, .. });

/// Fails outside of a tokio runtime, which the library's tasks need.
pub(crate) fn on_tokio() -> Result<()> {
    tokio::runtime::Handle::try_current().map(drop).map_err(|error| {
        Error::invalid("a client needs a tokio runtime; make it within one").with_source(error)
    })
}
