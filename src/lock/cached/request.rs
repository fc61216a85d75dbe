//! Requests for a cached lock. They allocate only if they must wait.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::time::LocalInstant;
use tokio::task::coop;

use crate::client::acquire_task;
use crate::client::cache::{
    CachedGrant, CachedLock, LeaseShare, LocalAcquire, LocalWait, LocalWaitOutcome, telemetry,
};
use crate::error::{AddContext, Error, Result};
use crate::lock::cached::guard::{CachedGuard, CachedGuardInner};
use crate::lock::run_while_held::{output_of, until_lost};
use crate::lock::wait_options::{Cancel, check_timeout};

/// A request for a cached lock. It is sent when awaited, and returns a guard.
///
/// # Cost
///
/// Some 100 ns and no message if the lease is cached. Otherwise as [`Acquire`](crate::Acquire).
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire). [`QueueFull`](crate::ErrorKind::QueueFull) also if
/// that many requests wait in this client.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future gives up its place and releases a grant that is under way.
#[must_use = "a request does nothing until it is awaited"]
pub struct CachedAcquire<'a, G> {
    entry: &'a Arc<CachedLock>,
    timeout: Option<Duration>,
    cancel: Cancel<'a>,
    stage: Stage<'a>,
    guard: PhantomData<fn() -> G>,
}

/// How far a request has come. Only a timeout and a request to the server allocate.
enum Stage<'a> {
    New,
    /// It waits for its turn, or for its timeout.
    Local(LocalWait<'a>, Option<(LocalInstant, BoxFuture<'static, ()>)>),
    Plain(BoxFuture<'a, Result<CachedGrant>>),
    /// It has its result, and no place any more.
    Over,
}

impl<'a, G: CachedGuard> CachedAcquire<'a, G> {
    pub(super) fn new(entry: &'a Arc<CachedLock>) -> Self {
        let cancel = Cancel::default();
        CachedAcquire { entry, timeout: None, cancel, stage: Stage::New, guard: PhantomData }
    }

    /// Sets the longest time to wait. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future completes.
    /// Default: never.
    ///
    /// It can be the future of a cancellation token, a channel or a signal.
    pub fn cancel_when(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.cancel = Cancel::on(cancelled);
        self
    }

    /// Holds the lock while `work` runs, and returns its output. `work` gets the guard.
    ///
    /// When the lease is lost, `work` is cancelled: its future is dropped at its current await, and
    /// the result is [`LeaseLost`](crate::ErrorKind::LeaseLost). `Ok` means the same as in
    /// [`Acquire::run_while_held`](crate::Acquire::run_while_held). Tasks and threads that `work`
    /// started are not cancelled: give them the cancellation token of the guard.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// let config = client.rwlock("config")?.cached()?;
    /// let token = config.read().run_while_held(async |guard| guard.fencing_token()).await?;
    /// assert!(config.write().await?.fencing_token() > token);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Acquire::run_while_held`](crate::Acquire::run_while_held).
    pub async fn run_while_held<T>(self, work: impl AsyncFnOnce(&G) -> T) -> Result<T>
    where
        G: 'a,
    {
        let lock = &self.entry.lock;
        let guard = self.await?;
        let inner = guard.inner();
        let output = until_lost(inner.ended(), || inner.is_held(), work(&guard)).await;
        let released = guard.into_inner().release().await;
        output_of(output, &released, lock)
    }

    fn poll_granted(&mut self, context: &mut Context<'_>) -> Poll<Result<CachedGrant>> {
        if let Stage::New = self.stage
            && let Some(share) = ready!(self.begin(context))?
        {
            return Poll::Ready(Ok(CachedGrant::Shared(share)));
        }
        if let Poll::Ready(error) = self.cancel.poll(context) {
            acquire_task::cancel(|| self.stage = Stage::Over);
            return Poll::Ready(Err(error));
        }
        if let Stage::Local(place, limit) = &mut self.stage {
            match (Pin::new(place).poll(context), limit) {
                (Poll::Ready(LocalWaitOutcome::Granted(share)), _) => {
                    return Poll::Ready(Ok(CachedGrant::Shared(share)));
                }
                (Poll::Ready(LocalWaitOutcome::Uncached(why)), limit) => {
                    telemetry::record_uncached(why);
                    let until = limit.as_ref().map(|(until, _)| *until);
                    self.stage =
                        Stage::Plain(Box::pin(self.entry.acquire_uncached(G::MODE, until)));
                }
                (Poll::Pending, Some((_, limit))) => {
                    ready!(limit.as_mut().poll(context));
                    let error = Error::from(self.entry.timeout_error());
                    let took = self.timeout.unwrap_or_default();
                    telemetry::record_local_timeout(G::MODE, error.kind(), took);
                    return Poll::Ready(Err(error));
                }
                (Poll::Pending, None) => return Poll::Pending,
            }
        }
        match &mut self.stage {
            Stage::Plain(taking) => taking.as_mut().poll(context),
            _ => Poll::Pending,
        }
    }

    /// The first step: returns a share, or sets the next stage.
    fn begin(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<LeaseShare>>> {
        check_timeout(self.timeout)?;
        // A task that locks in a loop must let other tasks run, such as the one that receives
        // recalls.
        let budget = ready!(coop::poll_proceed(context));
        let (entry, clock) = (self.entry, &self.entry.client().clock);
        let now = clock.now();
        if let Some(share) = entry.try_fast_path(G::MODE, now) {
            budget.made_progress();
            return Poll::Ready(Ok(Some(share)));
        }
        let until = self.timeout.map(|timeout| now.saturating_add(timeout));
        self.stage = match entry.begin_acquire(G::MODE, now)? {
            LocalAcquire::Granted(share) => return Poll::Ready(Ok(Some(share))),
            LocalAcquire::Queued(place) => {
                Stage::Local(place, until.map(|until| (until, clock.sleep_until(until))))
            }
            LocalAcquire::Uncached(why) => {
                telemetry::record_uncached(Some(why));
                Stage::Plain(Box::pin(entry.acquire_uncached(G::MODE, until)))
            }
        };
        Poll::Ready(Ok(None))
    }
}

impl<G: CachedGuard> Future for CachedAcquire<'_, G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let granted = ready!(self.poll_granted(context));
        self.stage = Stage::Over;
        let granted = granted.map_err(|error| self.entry.lock.add_context(error))?;
        Poll::Ready(Ok(G::of(CachedGuardInner::new(self.entry, granted))))
    }
}

/// A request for a cached lock that does not wait for others. It returns a guard, or `None` if the
/// lock is busy.
///
/// # Cost, Errors, Cancel safety
///
/// As [`CachedAcquire`]. It waits for clients that have the lock cached and do not use it.
#[must_use = "a request does nothing until it is awaited"]
pub struct TryCachedAcquire<'a, G> {
    entry: &'a Arc<CachedLock>,
    timeout: Option<Duration>,
    waiting: Option<BoxFuture<'a, Result<Option<G>>>>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: CachedGuard> TryCachedAcquire<'a, G> {
    pub(super) fn new(entry: &'a Arc<CachedLock>) -> Self {
        TryCachedAcquire { entry, timeout: None, waiting: None, guard: PhantomData }
    }

    /// Sets the longest time to wait for the server's answer. Default: the client's call timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn wait(&self) -> BoxFuture<'a, Result<Option<G>>>
    where
        G: 'a,
    {
        let (entry, timeout) = (self.entry, self.timeout);
        Box::pin(async move {
            let granted = match check_timeout(timeout) {
                Ok(()) => entry.try_acquire(G::MODE, timeout).await,
                Err(error) => Err(error),
            };
            let granted = granted.map_err(|error: Error| entry.lock.add_context(error))?;
            Ok(granted.map(|granted| G::of(CachedGuardInner::new(entry, granted))))
        })
    }
}

impl<'a, G: CachedGuard + 'a> Future for TryCachedAcquire<'a, G> {
    type Output = Result<Option<G>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiting.is_none() {
            let budget = ready!(coop::poll_proceed(context));
            let (entry, now) = (self.entry, self.entry.client().clock.now());
            if let Some(share) = entry.try_fast_path(G::MODE, now) {
                budget.made_progress();
                let inner = CachedGuardInner::new(entry, CachedGrant::Shared(share));
                return Poll::Ready(Ok(Some(G::of(inner))));
            }
            self.waiting = Some(self.wait());
        }
        match &mut self.waiting {
            Some(waiting) => waiting.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

debug_fields!(|request| CachedAcquire::<'_, G> { timeout: request.timeout, .. });
debug_fields!(|request| TryCachedAcquire::<'_, G> { timeout: request.timeout, .. });
