//! Requests for a cached lock. They allocate only if they must wait.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::coop;

use crate::client::cache::{Entry, Granted};
use crate::error::{Error, Result};
use crate::lock::cached::guard::{CachedGuard, Held};
use crate::lock::wait::{Cancel, Wait};

/// A request for a cached lock. It is sent when it is awaited, and returns a guard.
///
/// # Cost
///
/// Some 100 ns and no message if the lease is cached. Otherwise as [`Acquire`](crate::Acquire).
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire). [`TooManyWaiters`](crate::ErrorKind::TooManyWaiters) also if
/// that many requests wait in this client.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future gives up its place and releases a grant that is under way.
#[must_use = "a request does nothing until it is awaited"]
pub struct CachedAcquire<'a, G> {
    entry: &'a Arc<Entry>,
    timeout: Option<Duration>,
    cancel: Cancel<'a>,
    waiting: Option<BoxFuture<'a, Result<G>>>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: CachedGuard> CachedAcquire<'a, G> {
    pub(super) fn new(entry: &'a Arc<Entry>) -> Self {
        let cancel = Cancel::default();
        CachedAcquire { entry, timeout: None, cancel, waiting: None, guard: PhantomData }
    }

    /// The longest time to wait. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives up with [`Cancelled`](crate::ErrorKind::Cancelled) as soon as this future completes,
    /// for example that of a cancellation token, a channel or a signal. Default: never.
    pub fn cancel_on(mut self, cancelled: impl Future<Output = ()> + Send + 'a) -> Self {
        self.cancel = Cancel::on(cancelled);
        self
    }

    fn wait(&mut self) -> BoxFuture<'a, Result<G>>
    where
        G: 'a,
    {
        let (entry, timeout) = (self.entry, self.timeout);
        let cancel = std::mem::take(&mut self.cancel);
        Box::pin(async move {
            let waiting = pin!(async {
                Wait { timeout, retry: None }.check()?;
                entry.take(G::MODE, timeout).await
            });
            let granted = cancel.or(waiting).await.map_err(|error| entry.about(error))?;
            Ok(G::of(Held::new(entry, granted)))
        })
    }
}

impl<'a, G: CachedGuard + 'a> Future for CachedAcquire<'a, G> {
    type Output = Result<G>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiting.is_none() {
            if self.timeout != Some(Duration::ZERO) {
                // A task that locks in a loop must let other tasks run, such as the one that
                // receives recalls.
                let budget = ready!(coop::poll_proceed(context));
                if let Some(share) = self.entry.enter(G::MODE) {
                    budget.made_progress();
                    return Poll::Ready(Ok(G::of(Held::new(self.entry, Granted::Local(share)))));
                }
            }
            self.waiting = Some(self.wait());
        }
        match &mut self.waiting {
            Some(waiting) => waiting.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

/// A request for a cached lock that does not wait for others. It returns a guard, or `None` if
/// others are in the way.
///
/// # Cost, Errors, Cancel safety
///
/// As [`CachedAcquire`]. It waits for clients that have the lock cached and do not use it.
#[must_use = "a request does nothing until it is awaited"]
pub struct TryCached<'a, G> {
    entry: &'a Arc<Entry>,
    timeout: Option<Duration>,
    waiting: Option<BoxFuture<'a, Result<Option<G>>>>,
    guard: PhantomData<fn() -> G>,
}

impl<'a, G: CachedGuard> TryCached<'a, G> {
    pub(super) fn new(entry: &'a Arc<Entry>) -> Self {
        TryCached { entry, timeout: None, waiting: None, guard: PhantomData }
    }

    /// The longest time to wait for the server's answer. Default: the client's call timeout.
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
            let checked = Wait { timeout, retry: None }.check();
            let granted = match checked {
                Ok(()) => entry.try_take(G::MODE, timeout).await,
                Err(error) => Err(error),
            };
            let granted = granted.map_err(|error: Error| entry.about(error))?;
            Ok(granted.map(|granted| G::of(Held::new(entry, granted))))
        })
    }
}

impl<'a, G: CachedGuard + 'a> Future for TryCached<'a, G> {
    type Output = Result<Option<G>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.waiting.is_none() {
            let budget = ready!(coop::poll_proceed(context));
            if let Some(share) = self.entry.enter(G::MODE) {
                budget.made_progress();
                return Poll::Ready(Ok(Some(G::of(Held::new(self.entry, Granted::Local(share))))));
            }
            self.waiting = Some(self.wait());
        }
        match &mut self.waiting {
            Some(waiting) => waiting.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<G> fmt::Debug for CachedAcquire<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedAcquire").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl<G> fmt::Debug for TryCached<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryCached").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
