//! Blocking requests, around the async ones.

use std::future::IntoFuture;
use std::time::Duration;

use crate::blocking::background_runtime::run;
use crate::blocking::guard::{MultiGuard, QuorumGuard};
use crate::client::lease_options::RenewalPolicy;
use crate::error::Result;
use crate::lock::cached::guard::CachedGuard;
use crate::lock::cached::request::{CachedAcquire, TryCached};
use crate::lock::guard::Guard;
use crate::lock::multi_lock::Multi;
use crate::lock::quorum::request::QuorumAcquire;
use crate::lock::request::{Acquire, TryAcquire};
use crate::lock::retry::Retry;
use crate::lock::semaphore::status::{SemaphoreStatus, SemaphoreStatusQuery};
use crate::lock::status::{Status, StatusQuery};
use crate::protocol::Fairness;

/// A request of the async type `R`, with its options. [`wait`](Self::wait) sends it.
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct Request<R>(pub(super) R);

impl<R, T> Request<R>
where
    R: IntoFuture<Output = Result<T>>,
    T: sealed::Wrap,
{
    /// Sends the request, and waits for its outcome.
    ///
    /// # Errors
    ///
    /// As `R`, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio runtime.
    pub fn wait(self) -> Result<T::Blocking> {
        run(self.0.into_future())?.map(sealed::Wrap::wrap)
    }
}

pub(super) mod sealed {
    use crate::lock::semaphore::status::SemaphoreStatus;
    use crate::lock::status::Status;

    /// What an async request returns, and the blocking type for it.
    pub trait Wrap {
        type Blocking;

        fn wrap(self) -> Self::Blocking;
    }

    impl<T: Wrap> Wrap for Option<T> {
        type Blocking = Option<T::Blocking>;

        fn wrap(self) -> Self::Blocking {
            self.map(T::wrap)
        }
    }

    impl Wrap for SemaphoreStatus {
        type Blocking = SemaphoreStatus;

        fn wrap(self) -> SemaphoreStatus {
            self
        }
    }

    impl Wrap for Status {
        type Blocking = Status;

        fn wrap(self) -> Status {
            self
        }
    }
}

/// The options of the request `$kind`.
macro_rules! options {
    ($kind:literal: $($name:ident: $argument:ty),* $(,)?) => {
        $(
            #[doc = concat!(
                "As [`", $kind, "::", stringify!($name), "`]",
                "(crate::", $kind, "::", stringify!($name), ")."
            )]
            pub fn $name(self, $name: $argument) -> Self {
                Request(self.0.$name($name))
            }
        )*
    };
}
pub(super) use options;

impl<'a, G: Guard> Request<Acquire<'a, G>> {
    options! { "Acquire":
        timeout: Duration,
        retry: Retry,
        cancel_on: impl Future<Output = ()> + Send + 'a,
        lease: Duration,
        renewal: RenewalPolicy,
        max_hold: Duration,
        fairness: Fairness,
        replicas: u32,
    }
}

impl<G: Guard> Request<TryAcquire<'_, G>> {
    options! { "TryAcquire":
        timeout: Duration,
        lease: Duration,
        renewal: RenewalPolicy,
        max_hold: Duration,
        fairness: Fairness,
        replicas: u32,
    }
}

impl<'a, G: CachedGuard> Request<CachedAcquire<'a, G>> {
    options! { "CachedAcquire":
        timeout: Duration,
        cancel_on: impl Future<Output = ()> + Send + 'a,
    }
}

impl<G: CachedGuard> Request<TryCached<'_, G>> {
    options! { "TryCached": timeout: Duration }
}

impl Request<Multi> {
    options! { "Multi":
        read: impl AsRef<str>,
        write: impl AsRef<str>,
        mutex: impl AsRef<str>,
        timeout: Duration,
        retry: Retry,
        cancel_on: impl Future<Output = ()> + Send + 'static,
        lease: Duration,
        renewal: RenewalPolicy,
        max_hold: Duration,
    }

    /// As [`Multi::try_all`](crate::Multi::try_all).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn try_all(self) -> Result<Option<MultiGuard>> {
        run(self.0.try_all())?.map(sealed::Wrap::wrap)
    }
}

impl Request<QuorumAcquire> {
    options! { "QuorumAcquire":
        member_timeout: Duration,
        drift: Duration,
        timeout: Duration,
        retry: Retry,
        cancel_on: impl Future<Output = ()> + Send + 'static,
        lease: Duration,
        renewal: RenewalPolicy,
        max_hold: Duration,
    }

    /// As [`QuorumAcquire::try_once`](crate::QuorumAcquire::try_once).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn try_once(self) -> Result<Option<QuorumGuard>> {
        run(self.0.try_once())?.map(sealed::Wrap::wrap)
    }
}

impl Request<StatusQuery<'_>> {
    options! { "StatusQuery":
        page_size: usize,
        after: &Status,
    }
}

impl Request<SemaphoreStatusQuery<'_>> {
    options! { "SemaphoreStatusQuery":
        page_size: usize,
        after: &SemaphoreStatus,
    }
}
