//! Blocking guards, around the async ones.

use std::future::IntoFuture;
use std::ops::Deref;
use std::time::Duration;

use crate::blocking::background_runtime::{background, run};
use crate::blocking::lease::Lease;
use crate::blocking::request::sealed::Wrap;
use crate::error::Result;
use crate::lock::guard::{self, Released};
use crate::lock::transfer::Ticket;
use crate::lock::{cached, leader, multi_lock, quorum, reentrant, upgrade};

/// Guards of one lease.
macro_rules! guards {
    ($($name:ident = $of:path, $release:ident;)*) => {
        $(
            #[doc = concat!("[`", stringify!($name), "`](crate::", stringify!($name), ").")]
            ///
            /// It derefs to its [`Lease`]. Dropping it releases the lock in the background and
            /// never blocks.
            #[must_use = "dropped at once, the lock is released at once"]
            #[clippy::has_significant_drop]
            #[derive(Debug)]
            pub struct $name {
                lease: Lease,
                guard: $of,
            }

            impl $name {
                #[doc = concat!(
                    "As [`", stringify!($name), "::", stringify!($release), "`]",
                    "(crate::", stringify!($name), "::", stringify!($release), ")."
                )]
                ///
                /// # Errors
                ///
                /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a
                /// thread of a tokio runtime; the lock is then released in the background.
                pub fn $release(self) -> Result<Released> {
                    run(self.guard.$release())?
                }
            }

            impl Deref for $name {
                type Target = Lease;

                fn deref(&self) -> &Lease {
                    &self.lease
                }
            }

            impl Wrap for $of {
                type Blocking = $name;

                fn wrap(self) -> $name {
                    $name { lease: Lease((*self).clone()), guard: self }
                }
            }
        )*
    };
}

guards! {
    ReadGuard = guard::ReadGuard, release;
    WriteGuard = guard::WriteGuard, release;
    MutexGuard = guard::MutexGuard, release;
    SemaphoreGuard = guard::SemaphoreGuard, release;
    ReentrantReadGuard = reentrant::ReentrantReadGuard, release;
    ReentrantWriteGuard = reentrant::ReentrantWriteGuard, release;
    ReentrantMutexGuard = reentrant::ReentrantMutexGuard, release;
    Leadership = leader::leadership::Leadership, resign;
}

/// Guards with `keep`.
macro_rules! keep {
    ($($name:ident)*) => {
        $(
            impl $name {
                #[doc = concat!(
                    "As [`", stringify!($name), "::keep`](crate::", stringify!($name), "::keep)."
                )]
                ///
                /// # Errors
                ///
                /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a
                /// thread of a tokio runtime; the lock is then released in the background.
                pub fn keep(self) -> Result<Duration> {
                    run(self.guard.keep())?
                }
            }
        )*
    };
}

keep! { ReadGuard WriteGuard MutexGuard SemaphoreGuard }

/// Guards with `into_ticket`.
macro_rules! into_ticket {
    ($($name:ident)*) => {
        $(
            impl $name {
                #[doc = concat!(
                    "As [`", stringify!($name), "::into_ticket`]",
                    "(crate::", stringify!($name), "::into_ticket)."
                )]
                ///
                /// # Errors
                ///
                /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a
                /// thread of a tokio runtime; the lock is then released in the background.
                pub fn into_ticket(self) -> Result<Ticket> {
                    run(self.guard.into_ticket())?
                }
            }
        )*
    };
}

into_ticket! { ReadGuard WriteGuard }

impl SemaphoreGuard {
    /// As [`SemaphoreGuard::permits`](crate::SemaphoreGuard::permits).
    pub fn permits(&self) -> u32 {
        self.guard.permits()
    }

    /// As [`SemaphoreGuard::release_some`](crate::SemaphoreGuard::release_some).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime.
    pub fn release_some(&mut self, permits: u32) -> Result<()> {
        run(self.guard.release_some(permits))?
    }
}

/// Guards of several leases, or of a share of one.
macro_rules! shares {
    ($($name:ident = $of:path;)*) => {
        $(
            #[doc = concat!("[`", stringify!($name), "`](crate::", stringify!($name), ").")]
            ///
            /// It derefs to that type, for what does not wait. Dropping it releases the lock in the
            /// background and never blocks.
            #[must_use = "dropped at once, it is released at once"]
            #[clippy::has_significant_drop]
            #[derive(Debug)]
            pub struct $name($of);

            impl $name {
                #[doc = concat!(
                    "As [`", stringify!($name), "::lost`](crate::", stringify!($name), "::lost)."
                )]
                ///
                /// # Errors
                ///
                /// [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio runtime.
                pub fn lost(&self) -> Result<()> {
                    run(self.0.lost())
                }

                #[doc = concat!(
                    "As [`", stringify!($name), "::release`]",
                    "(crate::", stringify!($name), "::release)."
                )]
                ///
                /// # Errors
                ///
                /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a
                /// thread of a tokio runtime; the lock is then released in the background.
                pub fn release(self) -> Result<Released> {
                    run(self.0.release())?
                }
            }

            impl Deref for $name {
                type Target = $of;

                fn deref(&self) -> &$of {
                    &self.0
                }
            }

            impl Wrap for $of {
                type Blocking = $name;

                fn wrap(self) -> $name {
                    $name(self)
                }
            }
        )*
    };
}

shares! {
    MultiGuard = multi_lock::MultiGuard;
    QuorumGuard = quorum::guard::QuorumGuard;
    CachedReadGuard = cached::guard::CachedReadGuard;
    CachedWriteGuard = cached::guard::CachedWriteGuard;
}

/// Guards of several leases.
macro_rules! renew {
    ($($name:ident)*) => {
        $(
            impl $name {
                #[doc = concat!(
                    "As [`", stringify!($name), "::renew`](crate::", stringify!($name), "::renew)."
                )]
                ///
                /// # Errors
                ///
                /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a
                /// thread of a tokio runtime.
                pub fn renew(&self) -> Result<()> {
                    run(self.0.renew())?
                }
            }
        )*
    };
}

renew! { MultiGuard QuorumGuard }

impl CachedWriteGuard {
    /// As [`CachedWriteGuard::downgrade`](crate::CachedWriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime; the lock is then released in the background.
    pub fn downgrade(self) -> Result<CachedReadGuard> {
        run(self.0.downgrade())?.map(Wrap::wrap)
    }
}

impl WriteGuard {
    /// As [`WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime; the lock is then released in the background.
    pub fn downgrade(self) -> Result<ReadGuard> {
        run(self.guard.downgrade())?.map(Wrap::wrap)
    }
}

impl ReadGuard {
    /// As [`ReadGuard::upgrade`](crate::ReadGuard::upgrade).
    pub fn upgrade(self) -> Upgrade {
        Upgrade { guard: self, timeout: None }
    }

    /// As [`ReadGuard::try_upgrade`](crate::ReadGuard::try_upgrade).
    ///
    /// # Errors
    ///
    /// Those of the async method, and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a tokio
    /// runtime, with the guard.
    pub fn try_upgrade(self) -> Result<Result<WriteGuard, ReadGuard>, UpgradeError> {
        Ok(match self.changed(|guard| guard.try_upgrade())? {
            Ok(writing) => Ok(writing.wrap()),
            Err(reading) => Err(reading.wrap()),
        })
    }

    /// The outcome of a change that returns the guard if it fails.
    fn changed<T, F>(self, change: impl FnOnce(guard::ReadGuard) -> F) -> Result<T, UpgradeError>
    where
        F: IntoFuture<Output = Result<T, upgrade::UpgradeError>>,
    {
        match background() {
            Err(error) => Err(UpgradeError { error, guard: self }),
            Ok(background) => {
                background.block_on(change(self.guard).into_future()).map_err(|refused| {
                    let (error, guard) = refused.into_parts();
                    UpgradeError { error, guard: guard.wrap() }
                })
            }
        }
    }
}

/// [`UpgradeError`](crate::UpgradeError), with a blocking guard.
pub type UpgradeError = upgrade::UpgradeError<ReadGuard>;

/// [`Upgrade`](crate::Upgrade), sent by [`wait`](Self::wait).
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct Upgrade {
    guard: ReadGuard,
    timeout: Option<Duration>,
}

impl Upgrade {
    /// As [`Upgrade::timeout`](crate::Upgrade::timeout).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request, and waits for the write.
    ///
    /// # Errors
    ///
    /// As [`Upgrade`](crate::Upgrade), and [`Invalid`](crate::ErrorKind::Invalid) on a thread of a
    /// tokio runtime. The guard is in the error.
    pub fn wait(self) -> Result<WriteGuard, UpgradeError> {
        let Upgrade { guard, timeout } = self;
        let writing = guard.changed(|guard| match timeout {
            Some(timeout) => guard.upgrade().timeout(timeout),
            None => guard.upgrade(),
        })?;
        Ok(writing.wrap())
    }
}

impl Leadership {
    /// As [`Leadership::term`](crate::Leadership::term).
    pub fn term(&self) -> u64 {
        self.guard.term()
    }

    /// As [`Leadership::is_leading`](crate::Leadership::is_leading).
    pub fn is_leading(&self) -> bool {
        self.guard.is_leading()
    }
}
