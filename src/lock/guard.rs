//! What a holder has: guards that give the lease back.

use std::ops::Deref;
use std::time::Duration;

use crate::client::acquire;
use crate::client::acquisition::Event;
use crate::client::reply::read;
use crate::client::request::WaitPolicy;
use crate::client::telemetry;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lease::Lease;
use crate::lock::request::Acquire;
use crate::protocol::{Ended, Mode, Release};

/// How a release went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now: the lease had not ended by the client's bound when the release
    /// was sent, and the server had granted the lock to nobody else. Also if the first answer was
    /// lost, the second says that nothing is held, and the lease has not ended: then only a [forced
    /// release](crate::RwLock::force_release), or a failover that lost the lock, could have been
    /// before. Nor does a release see that after one of these a late duplicate of the acquire was
    /// granted anew, of which no renewal has told yet: it ends what that was granted.
    Released,
    /// The lease had ended before: somebody else may have held the lock since.
    AlreadyLost,
    /// The first answer was lost and the lease has ended since, or the server could not be reached:
    /// it may have been released in time, or have run out. If something is left there, the client
    /// goes on trying to release it until its lease has ended.
    Unknown,
}

/// Gives the lease back when dropped: the client's own task releases it, whatever thread this is.
#[derive(Debug)]
pub(crate) struct Hold(pub(crate) Lease);

impl Hold {
    pub(crate) async fn release(self) -> Result<Released> {
        let Lease { client, acquisition } = &self.0;
        let lock = &acquisition.lock;
        let sent = client.clock.now();
        client.on_at(sent, acquisition, Event::Release);
        let held = acquisition.holding(|holding| (holding.ends, holding.is_replaced()));
        let Some((ends, replaced)) = held else {
            return Ok(Released::AlreadyLost); // its client was shut down, and the worker sees to it
        };
        let call = Release { only_wait: false }.call(client.scripts, acquisition.id, lock);
        let until = sent.after(client.settings.call_timeout);
        let outcome = read(client.router.call(&call, until).await, Release::read);
        let told = match outcome {
            Ok(told) => told,
            Err(failure) => return self.not_answered(failure.into()),
        };
        let (ended, repeated, received) = (told.what, told.in_doubt.is_some(), told.received);
        let is_good = received < ends;
        // Of a lock in two keys others may have taken the key.
        #[cfg(feature = "legacy")]
        let is_good = is_good && lock.other_key.is_none();
        // If anything may still arrive, the drop at the end hands it to the worker, which sends a
        // last release later.
        client.on_at(received, acquisition, Event::GivenBack(told));
        Ok(match ended {
            _ if replaced => Released::AlreadyLost, // what was released now is another lease
            Ended::Released if sent < ends => Released::Released,
            Ended::Absent if repeated && is_good => Released::Released,
            Ended::Absent if repeated => Released::Unknown,
            _ => Released::AlreadyLost,
        })
    }

    fn not_answered(&self, error: Error) -> Result<Released> {
        let lock = &self.0.acquisition.lock;
        telemetry::release_failed(&lock.name, lock.slot, &error);
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Cancelled => {
                Ok(Released::Unknown)
            }
            _ => Err(lock.with_lock(error)),
        }
    }

    /// Makes the lease whole, and leaves the lock to it. Whatever comes of that, the lease is not
    /// released.
    pub(crate) async fn keep(self) -> Result<Duration> {
        let Lease { client, acquisition } = &self.0;
        // What is still to be changed comes first: nobody would do it later, and the lease would be
        // kept as something else.
        let renewed = match self.0.unencumbered().await {
            Ok(()) => self.0.renew().await,
            Err(error) => Err(error),
        };
        let left = self.0.remaining();
        client.on(acquisition, Event::Keep); // and so the drop finds nothing to release
        renewed.map(|()| left)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Lease { client, acquisition } = &self.0;
        if !acquisition.is_over() {
            client.on(acquisition, Event::Drop);
        }
    }
}

/// What a request gives: [`ReadGuard`], [`WriteGuard`], [`MutexGuard`], [`SemaphoreGuard`], and
/// those of a [`Reentrant`](crate::Reentrant).
pub trait Guard: sealed::Guard {}

pub(crate) mod sealed {
    use super::{Acquire, Lease, Released, Result, WaitPolicy};

    pub trait Guard: Sized + Send {
        /// Nothing if it was a try, and others are in the way.
        fn acquire(
            request: &Acquire<'_, Self>,
            policy: WaitPolicy,
        ) -> impl Future<Output = Result<Option<Self>>> + Send;

        fn as_lease(&self) -> &Lease;

        fn give_back(self) -> impl Future<Output = Result<Released>> + Send;
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// It derefs to its [`Lease`]: [`token`](Lease::token), [`remaining`](Lease::remaining),
        /// [`state`](Lease::state), [`lost`](Lease::lost). Dropped, it is released in the
        /// background: the drop never blocks, and works outside of a runtime. After the runtime is
        /// shut down nothing can be sent any more; then the lease ends it.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(pub(crate) Hold);

        impl $name {
            /// Releases the lock, and says truly how that went. One round trip.
            ///
            /// # Errors
            ///
            /// [`Refused`](ErrorKind::Refused) and [`Foreign`](ErrorKind::Foreign) when the server
            /// refuses. That it cannot be reached is no error but [`Released::Unknown`].
            ///
            /// # Cancel safety
            ///
            /// Dropped, the release is finished in the background.
            pub async fn release(self) -> Result<Released> {
                self.0.release().await
            }
        }

        impl $name {
            /// Leaves the lock to its lease: it is not released, and stays taken until the lease
            /// ends. For what must not happen again too soon: a job that the first of many runs, a
            /// limit of once in an hour.
            ///
            /// The lease is made as long again as it was requested, counted from now, and then this
            /// client has no more to do with it: it is renewed no more, and neither a drop nor
            /// [`shutdown`](crate::Locks::shutdown) releases it. Gives what is left of it, at
            /// least. Only [`force_release`](crate::RwLock::force_release) ends it sooner. One
            /// round trip.
            ///
            /// If an upgrade of this read was given up and the server has not been told yet, that
            /// is done first, so that what is kept stays a read; it takes a round trip more or two,
            /// and where an attempt of the upgrade had no answer, the time until the server would
            /// refuse it (two seconds).
            ///
            /// ```
            /// # #[cfg(feature = "embedded")]
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
            /// # let locks = rwlease::Locks::embedded().await?;
            /// use std::time::Duration;
            ///
            /// let hourly = locks.rwlock("report")?;
            /// if let Some(turn) = hourly.try_write().lease(Duration::from_secs(3600)).await? {
            ///     // the report
            ///     turn.keep().await?;
            /// }
            /// assert!(hourly.try_write().await?.is_none()); // for an hour
            /// # Ok(()) }
            /// # #[cfg(not(feature = "embedded"))] fn main() {}
            /// ```
            ///
            /// # Errors
            ///
            /// [`Lost`](ErrorKind::Lost) when the lease is lost or was revoked.
            /// [`Unavailable`](ErrorKind::Unavailable) when the server did not answer, or could not
            /// end an upgrade that was given up, for the client's call timeout: then the lock is
            /// left to its lease as it was. Such an upgrade may still be granted, and then it is a
            /// write that is left, until that same lease or a claim window ends.
            ///
            /// # Cancel safety
            ///
            /// Dropped, the lock is released.
            pub async fn keep(self) -> Result<Duration> {
                self.0.keep().await
            }
        }

        impl Deref for $name {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                &self.0.0
            }
        }

        impl sealed::Guard for $name {
            async fn acquire(
                request: &Acquire<'_, Self>,
                policy: WaitPolicy,
            ) -> Result<Option<Self>> {
                let Acquire { client, lock, options, .. } = request;
                let taken = acquire::take(client, lock, $mode, options, policy).await?;
                Ok(taken.map(|acquisition| $name(Hold(Lease::new(client.0.clone(), acquisition)))))
            }

            fn as_lease(&self) -> &Lease {
                self
            }

            async fn give_back(self) -> Result<Released> {
                self.release().await
            }
        }

        impl Guard for $name {}
    };
}

guard! {
    /// A lock held for reading, together with other readers.
    ReadGuard, Mode::Read
}

guard! {
    /// A lock held for writing, alone.
    WriteGuard, Mode::Write
}

guard! {
    /// A [`Mutex`](crate::Mutex) that is held.
    MutexGuard, Mode::Write
}

guard! {
    /// Permits of a [`Semaphore`](crate::Semaphore) that are held.
    SemaphoreGuard, Mode::Read
}

impl WriteGuard {
    /// Turns the write into a read, with no moment in between at which nothing is held. The token
    /// stays, the readers that wait are let in.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when the lease is lost; [`Unavailable`](ErrorKind::Unavailable)
    /// when the server does not answer for the client's call timeout. Either way the lock is given
    /// up.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock is released.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.client.on(&self.acquisition, Event::Downgrade);
        self.downgraded().await?;
        Ok(ReadGuard(self.0))
    }
}
