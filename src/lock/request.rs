//! A request for a lock: its options, and how it runs.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::acquisition::{LeaseOptions, RenewalPolicy, WaitPolicy};
use rwlease_core::protocol::{Fairness, Fsync, LockKey};

use crate::client::ClientHandle;
use crate::client::config::check_options;
use crate::error::{AddContext, Error, Result};
use crate::lock::guard::Guard;
use crate::lock::lease::Lease;
use crate::lock::reentrant::ReentrantOwner;
use crate::lock::retry::RetryPolicy;
use crate::lock::run_while_held;
use crate::lock::wait_options::{Cancel, WaitOptions};

/// A request for a lock. It is sent when awaited, and returns a guard.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
/// use std::time::Duration;
///
/// let request = order.write().lease(Duration::from_secs(10)).timeout(Duration::from_secs(2));
/// let guard = request.await?;
/// # assert!(guard.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Cost
///
/// One round trip if the lock is free. If not, that call also enters the lock's queue. The server
/// pushes the grant to the waiter where it can (Redis 7, Valkey). Polling is the fallback: every
/// 250 ms at the head of the queue, less often further back. A [`SetNxMutex`](crate::SetNxMutex)
/// and a request with [`retry_policy`](Acquire::retry_policy) have no queue: they cost one round
/// trip a try.
///
/// # Errors
///
/// [`TimedOut`](crate::ErrorKind::TimedOut),
/// [`AttemptsExhausted`](crate::ErrorKind::AttemptsExhausted),
/// [`Unavailable`](crate::ErrorKind::Unavailable), [`Rejected`](crate::ErrorKind::Rejected),
/// [`WrongType`](crate::ErrorKind::WrongType),
/// [`UnsupportedVersion`](crate::ErrorKind::UnsupportedVersion),
/// [`QueueFull`](crate::ErrorKind::QueueFull), [`InvalidInput`](crate::ErrorKind::InvalidInput) for
/// options out of range, [`Cancelled`](crate::ErrorKind::Cancelled) when the client is shut down or
/// [`cancel_when`](Acquire::cancel_when) cancels the request.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves the queue and releases a grant that is under way.
#[must_use = "a request does nothing until it is awaited"]
pub struct Acquire<'a, G> {
    pub(crate) client: &'a Arc<ClientHandle>,
    pub(crate) lock: &'a LockKey,
    /// The `ReentrantOwner` that makes the request, if any.
    pub(crate) reentrant: Option<&'a ReentrantOwner>,
    pub(crate) options: LeaseOptions,
    wait: WaitOptions,
    cancel: Cancel<'a>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: Guard> Acquire<'a, G> {
    pub(crate) fn new(
        client: &'a Arc<ClientHandle>,
        lock: &'a LockKey,
        reentrant: Option<&'a ReentrantOwner>,
    ) -> Self {
        Acquire {
            client,
            lock,
            reentrant,
            options: client.settings.lease_options(),
            wait: WaitOptions::default(),
            cancel: Cancel::default(),
            guard: PhantomData,
        }
    }

    /// Sets the longest time to wait. Default: no limit. After that the request fails with
    /// [`TimedOut`](crate::ErrorKind::TimedOut).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.wait.timeout = Some(timeout);
        self
    }

    /// Tries again by this policy instead of waiting in the queue. Default: wait in the queue.
    ///
    /// Retries are not fair and not fast. A [`SetNxMutex`](crate::SetNxMutex) has no queue, and its
    /// default is the default [`RetryPolicy`].
    pub fn retry_policy(mut self, retry: RetryPolicy) -> Self {
        self.wait.retry = Some(retry);
        self
    }

    /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future completes.
    /// Default: never.
    ///
    /// It can be the future of a cancellation token, a channel or a signal. The request then leaves
    /// the queue and releases the lock if it was granted.
    pub fn cancel_when(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.cancel = Cancel::on(cancelled);
        self
    }

    /// Sets the lease duration, 10 ms to 30 days: how long the lock survives without renewal.
    /// Default: the client's, 30 s unless set.
    ///
    /// A lease shorter than a failover (some seconds) is lost in every failover. With a lease below
    /// some 40 ms, [`Lease::ended`](crate::Lease::ended) can come too late; its documentation says
    /// why.
    ///
    /// Where the client receives no messages (before Redis 7, or without the right to subscribe), a
    /// waiter finds its grant by polling. The lock is then granted for at least the
    /// [claim window](crate::ClientBuilder::claim_timeout), however short the lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// Sets who renews the lease. Default: the client does, every third of the lease, while the
    /// guard lives.
    pub fn renewal(mut self, renewal: RenewalPolicy) -> Self {
        self.options.renewal = renewal;
        self
    }

    /// Sets the longest hold, at least 10 ms, counted from the grant. Default: no limit.
    ///
    /// The lease ends at this limit at the latest. No renewal and no upgrade extends it further,
    /// and the first lease is not longer.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.options.max_hold = Some(hold);
        self
    }

    /// Lets the lock stay taken for at least this long, 10 ms to 30 days, counted from the grant by
    /// the server's clock. Default: the lock is free as soon as it is released.
    ///
    /// Use it for work that must run once per period, although several machines start it and their
    /// clocks differ. `docs/jobs.md` has recipes for cron and systemd.
    ///
    /// - A release, a dropped guard and [`shutdown`](crate::Client::shutdown) end the hold here at
    ///   once, and release the lock at the server when the time is up. If it is up already, they
    ///   release it at once. None of them waits for it. Waiters are granted the lock then, or up to
    ///   a quarter of a second later.
    /// - If this process dies, the lock stays taken until the time is up and the lease has ended.
    ///   For that, the client requests a first lease of at least this duration.
    /// - [`let_expire`](crate::WriteGuard::let_expire) renews the lease to its full length, or to
    ///   the end of the time if that is later. After [`downgrade`](crate::WriteGuard::downgrade)
    ///   and [`into_transfer`](crate::WriteGuard::into_transfer) the promise is over: the reader,
    ///   and the next holder, release the lock as usual.
    ///   [`cancel_at_least`](crate::WriteGuard::cancel_at_least) ends it without either.
    /// - [`force_release`](crate::RwLock::force_release) frees the lock before the time is up, and
    ///   so does a failover that loses the grant.
    ///
    /// Only writes of an [`RwLock`](crate::RwLock) and of a [`Mutex`](crate::Mutex) can have it.
    /// Other requests fail with [`InvalidInput`](crate::ErrorKind::InvalidInput), and so does a
    /// time that exceeds [`max_hold`](Acquire::max_hold).
    ///
    /// It costs no round trip if the lock is free. After a wait in the queue the guard is returned
    /// one round trip later, when the server has the lease of this duration. The time counts from
    /// then.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// use std::time::Duration;
    ///
    /// let report = client.rwlock("report")?;
    /// if let Some(turn) = report.try_write().at_least(Duration::from_secs(50)).await? {
    ///     // the report of this minute
    ///     assert!(turn.release().await?.was_held());
    /// }
    /// assert!(report.try_write().await?.is_none()); // for 50 s
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    pub fn at_least(mut self, duration: Duration) -> Self {
        self.options.at_least = Some(duration);
        self
    }

    /// Sets the policy that orders waiting readers and writers. Default: the client's, phase-fair
    /// unless set.
    ///
    /// A [`SetNxMutex`](crate::SetNxMutex) and a [`Semaphore`](crate::Semaphore) ignore it.
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.options.fairness = fairness;
        self
    }

    /// Sets how many replicas must confirm the grant before the lock counts as held, and each
    /// renewal before the lease counts as longer. Default: the client's, 0 unless set.
    ///
    /// Without this, a failed master loses writes that its replicas have not received, and the
    /// promoted replica can grant a held lock again. With it, the lock survives if one of the
    /// replicas that confirmed is promoted. It does not help if the master restarts first, because
    /// the replicas then copy what its disk had: see [`fsync`](Self::fsync). If the slot moves to
    /// another master, the replicas there confirm the lease at its next renewal.
    ///
    /// Have one replica more than this number: while fewer are there, no lock is granted, and every
    /// held lease ends.
    ///
    /// It costs one trip from the master to its replicas. If fewer replicas confirm within 250 ms,
    /// the lock is released and the request fails with
    /// [`Unavailable`](crate::ErrorKind::Unavailable).
    pub fn min_replicas(mut self, replicas: u32) -> Self {
        self.options.confirmation.replicas = replicas;
        self
    }

    /// Sets which servers must have the grant and each renewal on disk before they count. Default:
    /// the client's, [`Fsync::None`] unless set.
    ///
    /// Without this, a master that restarts has lost the last second of its append-only file, or
    /// all since its last snapshot, and can grant a held lock again. It needs `appendonly yes` and
    /// Redis 7.2 or later, or Valkey.
    ///
    /// It costs one write to disk with `appendfsync always`, and up to one second with `appendfsync
    /// everysec`: use leases of at least 10 s with that. Requests that come together share the
    /// wait. If the disks do not confirm within 2 s, the lock is released and the request fails
    /// with [`Unavailable`](crate::ErrorKind::Unavailable). A server that cannot confirm is
    /// [`Rejected`](crate::ErrorKind::Rejected).
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.options.confirmation.fsync = fsync;
        self
    }

    /// Holds the lock while `work` runs, and returns its output.
    ///
    /// Prefer it to a guard: it always releases the lock, and the work does not continue without
    /// the lock.
    ///
    /// When the lease is lost, `work` is cancelled: its future is dropped at its current await, and
    /// the result is [`LeaseLost`](crate::ErrorKind::LeaseLost). Tasks and threads that `work`
    /// started are not cancelled: give them
    /// [`Lease::cancellation_token`](crate::Lease::cancellation_token).
    ///
    /// `Ok` means that the lease was valid by this client's clock until `work` ended, and that the
    /// release did not report a loss. It is also `Ok` if the outcome of the release is
    /// [`Unknown`](crate::ReleaseOutcome::Unknown) or the server refused the release: then a
    /// failover or a forced release may have ended the lease before, without a report. To know the
    /// outcome, use a guard and its `release`.
    ///
    /// ```no_run
    /// # async fn example(order: rwlease::RwLock) -> rwlease::Result<()> {
    /// let total = order.write().run_while_held(async |lease| {
    ///     save("paid", lease.fencing_token()).await; // the store refuses older tokens
    ///     42
    /// }).await?;
    /// # Ok(())
    /// # }
    /// # async fn save(_: &str, _: Option<rwlease::FencingToken>) {}
    /// ```
    ///
    /// If `work` can fail, the output is its own `Result`: `run_while_held(..).await??`. The outer
    /// error is the lock's, the inner one is the work's.
    ///
    /// # Errors
    ///
    /// The errors of the request, and [`LeaseLost`](crate::ErrorKind::LeaseLost).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped and the lock is released in the background.
    pub async fn run_while_held<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<T>
    where
        G: 'a,
    {
        let guard = self.await?;
        run_while_held::run(guard, work).await
    }
}

impl<G: Guard> Acquire<'_, G> {
    fn check(&self) -> Result<()> {
        let is_two_key = self.lock.second_key.is_some();
        let has_at_least = G::HAS_AT_LEAST && !is_two_key;
        Error::ensure(
            has_at_least || self.options.at_least.is_none(),
            || "`at_least` needs a write of an `RwLock` or of a `Mutex`; remove it",
        )?;
        check_options(&self.options)?;
        self.wait.check()
    }
}

debug_fields!(|request| Acquire::<'_, G> {
    lock: request.lock,
    options: request.options,
    wait: request.wait,
    ..
});

impl<'a, G: Guard + 'a> IntoFuture for Acquire<'a, G> {
    type Output = Result<G>;
    type IntoFuture = BoxFuture<'a, Result<G>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let cancel = std::mem::take(&mut self.cancel);
        Box::pin(async move {
            let (client, lock) = (self.client, self.lock);
            self.check().map_err(|error| lock.add_context(error))?;
            let acquire = |policy| G::acquire(&self, policy);
            let acquiring =
                pin!(Some(self.wait.for_lock(client, lock, self.options.confirmation, acquire)));
            cancel.or(acquiring).await.map_err(|error| lock.add_context(error))
        })
    }
}

/// A request for a lock that does not wait for holders. It returns a guard, or `None` if the lock
/// is busy.
///
/// If other clients have the lock only [cached](crate::RwLock::cached), the request waits until
/// they give it back, for up to [`CacheConfig::try_wait`](crate::CacheConfig::try_wait): 50 ms by
/// default.
///
/// # Cost
///
/// One round trip. If many dead readers block a writer, one more for every 16 dead readers.
///
/// # Errors, Cancel safety
///
/// As [`Acquire`]. [`TimedOut`](crate::ErrorKind::TimedOut) only for a [`ReentrantOwner`], in the
/// cases of [`try_upgrade`](crate::ReadGuard::try_upgrade).
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct TryAcquire<'a, G>(pub(crate) Acquire<'a, G>);

/// Setters that are those of [`Acquire`]. A text after the type ends the first sentence of the
/// documentation.
macro_rules! setters_of_acquire {
    (|$request:ident| $(
        $setter:ident($value:ident: $type:ty $(, $more:literal)?) => $change:expr;
    )+) => {$(
        #[doc = concat!(
            "As [`Acquire::", stringify!($setter), "`](crate::Acquire::", stringify!($setter), ")",
            $($more,)? ".",
        )]
        pub fn $setter(mut self, $value: $type) -> Self {
            let $request = &mut self;
            $change;
            self
        }
    )+};
}
pub(crate) use setters_of_acquire;

impl<'a, G: Guard> TryAcquire<'a, G> {
    /// Sets the longest time to wait for the server's answer. Default: the client's [call
    /// timeout](crate::ClientBuilder::call_timeout).
    pub fn timeout(self, timeout: Duration) -> Self {
        TryAcquire(self.0.timeout(timeout))
    }

    setters_of_acquire! { |request|
        lease(lease: Duration) => request.0.options.lease = lease;
        renewal(renewal: RenewalPolicy) => request.0.options.renewal = renewal;
        max_hold(hold: Duration) => request.0.options.max_hold = Some(hold);
        at_least(duration: Duration) => request.0.options.at_least = Some(duration);
        fairness(fairness: Fairness) => request.0.options.fairness = fairness;
        min_replicas(replicas: u32) => request.0.options.confirmation.replicas = replicas;
        fsync(fsync: Fsync) => request.0.options.confirmation.fsync = fsync;
    }

    /// As [`Acquire::run_while_held`], or returns `None` without calling `work` if the lock is
    /// busy.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// let job = client.rwlock("job")?;
    /// let ran = job.try_write().run_while_held(async |_lease| "done").await?;
    /// assert_eq!(ran, Some("done"));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Acquire::run_while_held`].
    pub async fn run_while_held<T>(self, work: impl AsyncFnOnce(Lease) -> T) -> Result<Option<T>>
    where
        G: 'a,
    {
        match self.await? {
            Some(guard) => run_while_held::run(guard, work).await.map(Some),
            None => Ok(None),
        }
    }
}

impl<'a, G: Guard + 'a> IntoFuture for TryAcquire<'a, G> {
    type Output = Result<Option<G>>;
    type IntoFuture = BoxFuture<'a, Result<Option<G>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let request = self.0;
            let (client, lock) = (request.client, request.lock);
            request.check().map_err(|error| lock.add_context(error))?;
            let until = client.deadline(request.wait.timeout, request.options.confirmation);
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
        /// Sets the longest time to wait, for the whole request. Default: no limit; of
        /// `try_acquire` the client's [call timeout](crate::ClientBuilder::call_timeout), and of a
        /// [`Redlock`](crate::Redlock) at most the member timeout.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.wait.timeout = Some(timeout);
            self
        }

        /// Sets the policy for retries while the lock is busy. A request that tries once has none.
        ///
        /// Default: a [`MultiLock`](crate::MultiLock) waits in queues instead, and a
        /// [`Redlock`](crate::Redlock) has the default [`RetryPolicy`](crate::RetryPolicy).
        pub fn retry_policy(mut self, retry: $crate::lock::retry::RetryPolicy) -> Self {
            self.wait.retry = Some(retry);
            self
        }

        /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future
        /// completes. Default: never.
        ///
        /// It can be the future of a cancellation token, a channel or a signal. The request then
        /// releases the lock if it was granted. The future must own what it uses, as an `async
        /// move` block and `CancellationToken::cancelled_owned` do.
        pub fn cancel_when(mut self, cancelled: impl Future<Output = ()> + Send + 'static) -> Self {
            self.cancel = $crate::lock::wait_options::Cancel::on(cancelled);
            self
        }

        $crate::lock::request::setters_of_acquire! { |request|
            lease(lease: std::time::Duration) => request.options.lease = lease;
            renewal(renewal: rwlease_core::acquisition::RenewalPolicy) =>
                request.options.renewal = renewal;
            max_hold(hold: std::time::Duration) => request.options.max_hold = Some(hold);
            min_replicas(replicas: u32, ", for each lock") =>
                request.options.confirmation.replicas = replicas;
            fsync(fsync: rwlease_core::protocol::Fsync, ", for each lock") =>
                request.options.confirmation.fsync = fsync;
        }
    };
}

pub(crate) use options;
