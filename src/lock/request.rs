//! A request for a lock: its options, and how it runs.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::ClientHandle;
use crate::client::lease_options::{LeaseOptions, RenewalPolicy, WaitPolicy};
use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::lease::Lease;
use crate::lock::reentrant::Reentrant;
use crate::lock::retry::Retry;
use crate::lock::run_while_held;
use crate::lock::wait_options::{Cancel, Wait};
use crate::protocol::{Fairness, LockKey};

/// A request for a lock. It is sent when it is awaited, and returns a guard.
///
/// # Cost
///
/// One round trip if the lock is free. If not, that call also enters the lock's queue. The server
/// pushes the grant to the waiter where it can (Redis 7, Valkey). Polling is the fallback: every
/// 250 ms at the head of the queue, less often further back. A [`Mutex`](crate::Mutex) and a
/// request with [`retry`](Acquire::retry) have no queue: they cost one round trip a try.
///
/// # Errors
///
/// [`TimedOut`](crate::ErrorKind::TimedOut), [`TriesUsedUp`](crate::ErrorKind::TriesUsedUp),
/// [`Unavailable`](crate::ErrorKind::Unavailable), [`Refused`](crate::ErrorKind::Refused),
/// [`Foreign`](crate::ErrorKind::Foreign), [`Incompatible`](crate::ErrorKind::Incompatible),
/// [`TooManyWaiters`](crate::ErrorKind::TooManyWaiters), [`Invalid`](crate::ErrorKind::Invalid) for
/// options out of range, [`Cancelled`](crate::ErrorKind::Cancelled) when the client is shut down or
/// [`cancel_on`](Acquire::cancel_on) cancels the request.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves the queue and releases a grant that is under way.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct Acquire<'a, G> {
    pub(crate) client: &'a Arc<ClientHandle>,
    pub(crate) lock: &'a LockKey,
    /// The `Reentrant` that makes the request, if any.
    pub(crate) reentrant: Option<&'a Reentrant>,
    pub(crate) options: LeaseOptions,
    wait: Wait,
    cancel: Cancel<'a>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: Guard> Acquire<'a, G> {
    pub(crate) fn new(
        client: &'a Arc<ClientHandle>,
        lock: &'a LockKey,
        reentrant: Option<&'a Reentrant>,
    ) -> Self {
        Acquire {
            client,
            lock,
            reentrant,
            options: LeaseOptions::from_config(&client.settings),
            wait: Wait::default(),
            cancel: Cancel::default(),
            guard: PhantomData,
        }
    }

    /// The longest time to wait. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wait.timeout = Some(timeout);
        self
    }

    /// Tries again by this policy instead of waiting in the queue. This is neither fair nor fast.
    /// Default: the queue; for a [`Mutex`](crate::Mutex), which has none, the default [`Retry`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.wait.retry = Some(retry);
        self
    }

    /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future completes,
    /// for example that of a cancellation token, a channel or a signal. The request then leaves the
    /// queue and releases what it was granted. Default: never.
    pub fn cancel_on(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.cancel = Cancel::on(cancelled);
        self
    }

    /// Lease duration, 10 ms to 30 days: how long the lock survives without renewal. Default: the
    /// client's, 30 s unless set. A lease shorter than a failover (some seconds) is lost in every
    /// failover. With a lease below some 40 ms, [`Lease::lost`](crate::Lease::lost) can come too
    /// late; its documentation says why.
    ///
    /// Where the client receives no messages (before Redis 7, or without the right to subscribe), a
    /// waiter finds its grant by polling. The lock is then granted for at least the
    /// [claim window](crate::Builder::claim_window), however short the lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// Who renews the lease. Default: the client does, every third of the lease, while the guard
    /// lives.
    pub fn renewal(mut self, renewal: RenewalPolicy) -> Self {
        self.options.renewal = renewal;
        self
    }

    /// The longest hold, at least 10 ms, counted from the grant. The lease ends by then: no renewal
    /// and no upgrade extends it further, and the first lease is at most as long. Default: no
    /// limit.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.options.max_hold = Some(hold);
        self
    }

    /// The policy that orders waiting readers and writers. Default: the client's, phase-fair unless
    /// set. Ignored by a [`Mutex`](crate::Mutex) and a [`Semaphore`](crate::Semaphore).
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.options.fairness = fairness;
        self
    }

    /// How many replicas must confirm the grant before the lock counts as held, and each renewal
    /// before the lease counts as longer. Default: none.
    ///
    /// Without this, a master that fails loses what its replicas had not received, and the promoted
    /// replica can grant a lock that is held. With it that cannot happen as long as one of the
    /// replicas that confirmed is promoted. If the slot moves to another master, the replicas there
    /// confirm the lease at its next renewal.
    ///
    /// It costs one trip from the master to its replicas. If fewer replicas confirm within 250 ms,
    /// the lock is released and the request fails with
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.options.min_replicas = replicas;
        self
    }

    /// Holds the lock while `work` runs, and returns its output. Prefer it to a guard: it always
    /// releases, and it does not go on without the lock.
    ///
    /// When the lease is lost, `work` is cancelled: its future is dropped at its current await, and
    /// the result is [`Lost`](crate::ErrorKind::Lost). Tasks and threads that `work` started are
    /// not cancelled: give them [`Lease::cancellation`](crate::Lease::cancellation). `Ok` means
    /// that the lock was held until `work` ended.
    ///
    /// ```no_run
    /// # async fn example(order: rwlease::RwLock) -> rwlease::Result<()> {
    /// let total = order.write().run(async |lease| {
    ///     save("paid", lease.token()).await; // the store refuses older tokens
    ///     42
    /// }).await?;
    /// # Ok(())
    /// # }
    /// # async fn save(_: &str, _: u64) {}
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the request, and [`Lost`](crate::ErrorKind::Lost).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped and the lock is released in the background.
    pub async fn run<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T>
    where
        G: 'a,
    {
        let guard = self.await?;
        run_while_held::run(guard, work).await
    }
}

impl<'a, G: Guard + 'a> IntoFuture for Acquire<'a, G> {
    type Output = Result<G>;
    type IntoFuture = BoxFuture<'a, Result<G>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let cancel = std::mem::take(&mut self.cancel);
        Box::pin(async move {
            let (client, lock) = (self.client, self.lock);
            let checked = self.options.check().and_then(|()| self.wait.check());
            checked.map_err(|error| lock.add_context(error))?;
            let acquire = |policy| G::acquire(&self, policy);
            let acquiring = pin!(self.wait.for_lock(client, lock, acquire));
            cancel.or(acquiring).await.map_err(|error| lock.add_context(error))
        })
    }
}

/// A request for a lock that does not wait for others. It returns a guard, or `None` if others are
/// in the way.
///
/// # Cost
///
/// One round trip. If many dead readers are in the way of a writer, one more for every 16 of them.
///
/// # Errors, Cancel safety
///
/// As [`Acquire`]. [`TimedOut`](crate::ErrorKind::TimedOut) only for a [`Reentrant`], in the cases
/// of [`try_upgrade`](crate::ReadGuard::try_upgrade).
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct TryAcquire<'a, G>(pub(crate) Acquire<'a, G>);

impl<G: Guard> TryAcquire<'_, G> {
    /// The longest time to wait for the server's answer. Default: the client's call timeout.
    pub fn timeout(self, timeout: Duration) -> Self {
        TryAcquire(self.0.timeout(timeout))
    }

    /// As [`Acquire::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        TryAcquire(self.0.lease(lease))
    }

    /// As [`Acquire::renewal`].
    pub fn renewal(self, renewal: RenewalPolicy) -> Self {
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

    /// As [`Acquire::replicas`].
    pub fn replicas(self, replicas: u32) -> Self {
        TryAcquire(self.0.replicas(replicas))
    }
}

impl<'a, G: Guard + 'a> IntoFuture for TryAcquire<'a, G> {
    type Output = Result<Option<G>>;
    type IntoFuture = BoxFuture<'a, Result<Option<G>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let request = self.0;
            let (client, lock) = (request.client, request.lock);
            let checked = request.options.check().and_then(|()| request.wait.check());
            checked.map_err(|error| lock.add_context(error))?;
            let limit = request.wait.timeout.unwrap_or(client.settings.call_timeout);
            let until = client.clock.now().saturating_add(limit);
            let for_cached = match lock.can_be_cached() {
                true => client.settings.cache.try_wait,
                false => Duration::ZERO,
            };
            G::acquire(&request, WaitPolicy::Try { deadline: until, cached_wait: for_cached }).await
        })
    }
}

/// The setters of a request with `options`, `wait` and `cancel`.
macro_rules! options {
    () => {
        /// The longest time to wait, for the whole request. Default: no limit.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.wait.timeout = Some(timeout);
            self
        }

        /// How the request tries again while others hold.
        pub fn retry(mut self, retry: $crate::lock::retry::Retry) -> Self {
            self.wait.retry = Some(retry);
            self
        }

        /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future
        /// completes, for example that of a cancellation token, a channel or a signal. The request
        /// then releases what it was granted. Default: never.
        pub fn cancel_on(mut self, cancelled: impl Future<Output = ()> + Send + 'static) -> Self {
            self.cancel = $crate::lock::wait_options::Cancel::on(cancelled);
            self
        }

        /// As [`Acquire::lease`](crate::Acquire::lease).
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.options.lease = lease;
            self
        }

        /// As [`Acquire::renewal`](crate::Acquire::renewal).
        pub fn renewal(mut self, renewal: $crate::client::lease_options::RenewalPolicy) -> Self {
            self.options.renewal = renewal;
            self
        }

        /// As [`Acquire::max_hold`](crate::Acquire::max_hold).
        pub fn max_hold(mut self, hold: std::time::Duration) -> Self {
            self.options.max_hold = Some(hold);
            self
        }
    };
}

pub(crate) use options;
