//! A read/write lock by name, and the requests for locks that have a name.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::asking::{self, Patience, Renewal, Terms, Wait};
use crate::client::Client;
use crate::error::Result;
use crate::guard::{Guard, Lease, ReadGuard, WriteGuard};
use crate::protocol::{Fairness, Kind, LockKey};
use crate::retry::{Cancel, Retry};
use crate::router::Slot;

/// A read/write lock that all clients of the cluster share by its name.
///
/// # Fairness
///
/// Phase-fair unless set otherwise: writers go in the order in which they came, and so do readers; when a write ends, the
/// readers that wait by then go before the next writer; a reader that comes while a writer waits, waits. So a reader waits for at most one write
/// phase, and a writer for the writers before it and one read phase each.
///
/// A lock handle costs nothing at the server. Making one is no round trip.
#[derive(Clone)]
pub struct RwLock {
    client: Arc<Client>,
    lock: LockKey,
}

impl RwLock {
    pub(crate) fn new(client: Arc<Client>, name: &str) -> Result<Self> {
        let lock = LockKey::new(Kind::ReadWrite, &client.settings.prefix, name)?;
        Ok(RwLock { client, lock })
    }

    /// The lock's name, as it was given.
    pub fn name(&self) -> &str {
        &self.lock.name
    }

    /// The slot of the lock's key.
    pub fn slot(&self) -> Slot {
        self.lock.slot
    }

    /// Asks for the lock for reading, and waits for its turn: without a limit unless [`timeout`](Acquire::timeout) gives one.
    ///
    /// One who holds the lock for writing and asks for it again waits for itself.
    pub fn read(&self) -> Acquire<'_, ReadGuard> {
        Acquire::new(&self.client, &self.lock)
    }

    /// Asks for the lock for writing, and waits for its turn: without a limit unless [`timeout`](Acquire::timeout) gives one.
    ///
    /// One who holds the lock already, for reading or writing, and asks for it again waits for itself.
    pub fn write(&self) -> Acquire<'_, WriteGuard> {
        Acquire::new(&self.client, &self.lock)
    }

    /// Asks for the lock for reading if that needs no waiting.
    pub fn try_read(&self) -> TryAcquire<'_, ReadGuard> {
        TryAcquire::new(&self.client, &self.lock)
    }

    /// Asks for the lock for writing if that needs no waiting.
    pub fn try_write(&self) -> TryAcquire<'_, WriteGuard> {
        TryAcquire::new(&self.client, &self.lock)
    }

    pub(crate) fn parts(&self) -> (&Arc<Client>, &LockKey) {
        (&self.client, &self.lock)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", &self.name())
            .field("slot", &self.slot())
            .finish_non_exhaustive()
    }
}

/// A request for a lock, sent when it is awaited; gives a guard.
///
/// # Cost
///
/// One round trip if the lock is free. One who waits takes a place in the lock's queue with its first call, is told of its grant
/// by push where the server can (Redis 7, Valkey), and looks by itself now and then: every 250 ms at the head of the queue, less often further
/// back. A [`Mutex`](crate::Mutex) has no queue, and neither has one who set [`retry`](Acquire::retry): that is one round trip for each try.
///
/// # Errors
///
/// [`TimedOut`](crate::ErrorKind::TimedOut), [`TriesUsedUp`](crate::ErrorKind::TriesUsedUp), [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
/// [`Foreign`](crate::ErrorKind::Foreign), [`Incompatible`](crate::ErrorKind::Incompatible),
/// [`TooManyWaiters`](crate::ErrorKind::TooManyWaiters), [`Invalid`](crate::ErrorKind::Invalid) for options out of range,
/// [`Cancelled`](crate::ErrorKind::Cancelled) when the client is shut down, or by [`cancel_on`](Acquire::cancel_on).
///
/// # Cancel safety
///
/// Dropped at any point it leaves nothing: no place in the queue, and no lock even if the grant was on its way.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct Acquire<'a, G> {
    client: &'a Arc<Client>,
    lock: &'a LockKey,
    terms: Terms,
    timeout: Option<Duration>,
    retry: Option<Retry>,
    cancel: Cancel<'a>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: Guard> Acquire<'a, G> {
    pub(crate) fn new(client: &'a Arc<Client>, lock: &'a LockKey) -> Self {
        Acquire {
            client,
            lock,
            terms: Terms::of(&client.settings),
            timeout: None,
            retry: None,
            cancel: Cancel::default(),
            guard: PhantomData,
        }
    }

    /// The longest time to wait. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Tries again in this way, instead of waiting in the queue: neither fair nor swift. Default: the queue; for a [`Mutex`](crate::Mutex),
    /// which has none, the default [`Retry`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Gives up, with [`Cancelled`](crate::ErrorKind::Cancelled), as soon as this future ends: that of a cancellation token, a channel, a
    /// signal. What has come of the request by then is given back. Default: never.
    pub fn cancel_on(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.cancel = Cancel::on(cancelled);
        self
    }

    /// How long the server keeps the lock for a holder that it hears nothing of, 10 ms to 30 days. Default: the client's, 30 s unless set. A lease
    /// shorter than a failover takes (some seconds) is lost in every failover.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms.lease = lease;
        self
    }

    /// Who makes the lease longer. Default: the client does, every third of the lease, while the guard lives.
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.terms.renewal = renewal;
        self
    }

    /// The longest hold: no renewal makes the lease longer than this, counted from the grant. Default: no limit.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.terms.hold = Some(hold);
        self
    }

    /// Who goes first when readers and writers wait. Default: the client's, phase-fair unless set. Means nothing to a [`Mutex`](crate::Mutex).
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.terms.fairness = fairness;
        self
    }

    async fn run(self) -> Result<G> {
        let wait = Wait {
            timeout: self.timeout,
            retry: self.retry,
        };
        let checked = self.terms.check().and_then(|()| wait.check());
        checked.map_err(|error| self.lock.blame(error))?;
        let taking = wait.take(self.client, self.lock, G::MODE, &self.terms);
        let lease = self.cancel.or(taking).await;
        lease.map(G::from_lease).map_err(|error| self.lock.blame(error))
    }
}

impl<'a, G: Guard + Send + 'a> IntoFuture for Acquire<'a, G> {
    type Output = Result<G>;
    type IntoFuture = BoxFuture<'a, Result<G>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A request for a lock that does not wait for others; gives a guard, or nothing if others are in the way.
///
/// # Cost
///
/// One round trip. If a great many dead readers are in the way of a writer, it takes one more for every 16 of them.
///
/// # Errors, Cancel safety
///
/// As [`Acquire`]; never `TimedOut`.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct TryAcquire<'a, G>(Acquire<'a, G>);

impl<'a, G: Guard> TryAcquire<'a, G> {
    pub(crate) fn new(client: &'a Arc<Client>, lock: &'a LockKey) -> Self {
        TryAcquire(Acquire::new(client, lock))
    }

    /// The longest time to wait for the cluster's answer. Default: the client's call timeout.
    pub fn timeout(self, timeout: Duration) -> Self {
        TryAcquire(self.0.timeout(timeout))
    }

    /// As [`Acquire::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        TryAcquire(self.0.lease(lease))
    }

    /// As [`Acquire::renewal`].
    pub fn renewal(self, renewal: Renewal) -> Self {
        TryAcquire(self.0.renewal(renewal))
    }

    /// As [`Acquire::max_hold`].
    pub fn max_hold(self, hold: Duration) -> Self {
        TryAcquire(self.0.max_hold(hold))
    }

    /// As [`Acquire::fairness`].
    pub fn fairness(self, fairness: Fairness) -> Self {
        TryAcquire(self.0.fairness(fairness))
    }
}

impl<'a, G: Guard + Send + 'a> IntoFuture for TryAcquire<'a, G> {
    type Output = Result<Option<G>>;
    type IntoFuture = BoxFuture<'a, Result<Option<G>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Acquire {
                client, lock, terms, ..
            } = &self.0;
            terms.check().map_err(|error| lock.blame(error))?;
            let limit = self.0.timeout.unwrap_or(client.settings.call_timeout);
            let until = client.clock.now().after(limit);
            let taken = asking::take(client, lock, G::MODE, terms, Patience::Try { until }).await?;
            Ok(taken.map(|acquisition| G::from_lease(Lease::new((*client).clone(), acquisition))))
        })
    }
}
