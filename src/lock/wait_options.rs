//! How a request waits: in the queue or by trying again, until the caller cancels it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::acquisition::WaitPolicy;
use rwlease_core::protocol::{Confirmation, LockKey, LockKind};

use crate::client::{ClientInner, acquire_task};
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::retry::RetryPolicy;

/// How to wait for a lock: in its queue, or by trying again if the lock has none or `retry` is set.
#[derive(Debug, Default)]
pub(crate) struct WaitOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
}

impl WaitOptions {
    pub(crate) fn check(&self) -> Result<()> {
        check_timeout(self.timeout)?;
        check_timeout(self.retry.as_ref().and_then(|retry| retry.timeout))
    }

    /// As [`check`](Self::check), for a request that tries once.
    pub(crate) fn check_try(&self) -> Result<()> {
        Error::ensure(
            self.retry.is_none(),
            || "a request that tries once has no `retry_policy`; remove it",
        )?;
        self.check()
    }

    /// Acquires the lock, in the queue or by trying again.
    pub(crate) async fn for_lock<T, F: Future<Output = Result<Option<T>>>>(
        &self,
        client: &ClientInner,
        lock: &LockKey,
        confirmation: Confirmation,
        acquire: impl Fn(WaitPolicy) -> F,
    ) -> Result<T> {
        let clock = &*client.clock;
        let retry = match &self.retry {
            Some(retry) => retry,
            None if lock.kind == LockKind::SetNxMutex => &RetryPolicy::default(),
            None => {
                let until = self.timeout.map(|timeout| clock.now().saturating_add(timeout));
                let held = acquire(WaitPolicy::Queue { deadline: until }).await?;
                let refused = || Error::internal("a queued acquire returned \"busy\"");
                return held.ok_or_else(|| lock.add_context(refused()));
            }
        };
        let mut tries = retry.begin(clock.now(), self.timeout);
        loop {
            let began = clock.now();
            let until = tries.answer_by(client.call_deadline(confirmation));
            match acquire(WaitPolicy::strict_try(until)).await {
                Ok(Some(held)) => return Ok(held),
                Ok(None) => {}
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && tries.was_cut_short(began, clock.now()) =>
                {
                    return Err(lock.add_context(tries.out_of_time()));
                }
                Err(error) => return Err(error),
            }
            tries.pause(clock).await.map_err(|error| lock.add_context(error))?;
        }
    }
}

/// Checks the time limit of a request. Within no time no server can reply.
pub(crate) fn check_timeout(timeout: Option<Duration>) -> Result<()> {
    Error::ensure(timeout != Some(Duration::ZERO), || {
        "the timeout must not be zero; to not wait for other holders, use `try_write`, `try_read`, \
         `try_lock` or `try_acquire` without a timeout"
    })
}

/// A future that cancels the wait. (The mutex is never locked; it makes requests `Sync`.)
#[derive(Default)]
pub(crate) struct Cancel<'a>(Option<Mutex<BoxFuture<'a, ()>>>);

impl<'a> Cancel<'a> {
    pub(crate) fn on(future: impl Future<Output = ()> + Send + 'a) -> Self {
        Cancel(Some(Mutex::new(Box::pin(future))))
    }

    /// Completes with the error to return when the caller cancels.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Error> {
        let Some(cancelled) = &mut self.0 else {
            return Poll::Pending;
        };
        let cancelled = cancelled.get_mut().unwrap_or_else(PoisonError::into_inner);
        ready!(cancelled.as_mut().poll(context));
        Poll::Ready(Error::new(ErrorKind::Cancelled, "the caller cancelled the wait"))
    }

    /// Runs the work unless it is cancelled first, which drops the work. (The caller pins the work,
    /// so that it is not copied here.)
    pub(crate) async fn or<T>(
        mut self,
        mut work: Pin<&mut Option<impl Future<Output = Result<T>>>>,
    ) -> Result<T> {
        poll_fn(|context| {
            if let Poll::Ready(error) = self.poll(context) {
                acquire_task::cancel(|| work.set(None));
                return Poll::Ready(Err(error));
            }
            match work.as_mut().as_pin_mut() {
                Some(work) => work.poll(context),
                None => Poll::Pending, // it was cancelled before
            }
        })
        .await
    }
}

impl fmt::Debug for Cancel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Cancel(..)" } else { "Cancel" })
    }
}

#[cfg(test)]
mod tests;
