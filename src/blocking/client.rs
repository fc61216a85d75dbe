//! A client of one cluster for programs without a runtime.

use std::time::Duration;

use crate::blocking::background_runtime::run;
use crate::blocking::election::Leader;
use crate::blocking::request::Request;
use crate::blocking::rwlock::RwLock;
use crate::blocking::semaphore::Semaphore;
use crate::blocking::set_nx_mutex::Mutex;
use crate::blocking::together::Reentrant;
use crate::error::Result;
use crate::lock::multi_lock::Multi;
use crate::lock::{client, lock_scan};

/// [`Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks(pub(super) client::Locks);

impl Locks {
    /// As [`Locks::connect`](crate::Locks::connect).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    #[cfg(any(feature = "native", feature = "redis"))]
    pub fn connect<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Locks> {
        Locks::connect_by(client::Locks::connect(urls))
    }

    /// As [`Locks::embedded`](crate::Locks::embedded).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    #[cfg(feature = "embedded")]
    pub fn embedded() -> Result<Locks> {
        Locks::connect_by(client::Locks::embedded())
    }

    /// A client with other settings: awaits a connect method of a [`Builder`](crate::Builder).
    ///
    /// ```no_run
    /// # #[cfg(any(feature = "native", feature = "redis"))]
    /// # fn example() -> rwlease::Result<()> {
    /// use std::time::Duration;
    ///
    /// use rwlease::blocking::Locks;
    ///
    /// let settings = rwlease::Locks::builder().servers(["redis://127.0.0.1:7000"]);
    /// let locks = Locks::connect_by(settings.lease(Duration::from_secs(10)).connect())?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn connect_by(connecting: impl Future<Output = Result<client::Locks>>) -> Result<Locks> {
        run(connecting)?.map(Locks)
    }

    /// As [`Locks::rwlock`](crate::Locks::rwlock).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        self.0.rwlock(name).map(RwLock)
    }

    /// As [`Locks::mutex`](crate::Locks::mutex).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        self.0.mutex(name).map(Mutex)
    }

    /// As [`Locks::semaphore`](crate::Locks::semaphore).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Result<Semaphore> {
        self.0.semaphore(name, limit).map(Semaphore)
    }

    /// As [`Locks::leader`](crate::Locks::leader).
    ///
    /// # Errors
    ///
    /// Those of the async method.
    pub fn leader(&self, name: impl AsRef<str>) -> Result<Leader> {
        self.0.leader(name).map(Leader::new)
    }

    /// As [`Locks::multi`](crate::Locks::multi).
    pub fn multi(&self) -> Request<Multi> {
        Request(self.0.multi())
    }

    /// As [`Locks::reentrant`](crate::Locks::reentrant).
    pub fn reentrant(&self) -> Reentrant {
        Reentrant(self.0.reentrant())
    }

    /// As [`Locks::list`](crate::Locks::list).
    pub fn list(&self, start: impl AsRef<str>) -> Listing {
        Listing(self.0.list(start))
    }

    /// As [`Locks::client_id`](crate::Locks::client_id).
    pub fn client_id(&self) -> String {
        self.0.client_id()
    }

    /// As [`Locks::shutdown`](crate::Locks::shutdown).
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio runtime.
    pub fn shutdown(&self, within: Duration) -> Result<Vec<String>> {
        run(self.0.shutdown(within))
    }
}

/// The async client, for threads of the program that have a runtime.
impl AsRef<client::Locks> for Locks {
    fn as_ref(&self) -> &client::Locks {
        &self.0
    }
}

/// [`Listing`](crate::Listing).
#[must_use = "a listing sends nothing until it is read"]
#[derive(Debug)]
pub struct Listing(lock_scan::Listing);

impl Listing {
    /// As [`Listing::step`](crate::Listing::step).
    pub fn step(self, keys: u32) -> Self {
        Listing(self.0.step(keys))
    }

    /// As [`Listing::next_page`](crate::Listing::next_page).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn next_page(&mut self) -> Result<Option<Vec<String>>> {
        run(self.0.next_page())?
    }
}
