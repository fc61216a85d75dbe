//! Guards, which release the lease.

use std::ops::Deref;
use std::time::Duration;

use crate::client::acquire_task;
use crate::client::acquisition::AcquisitionEvent;
use crate::client::lease_options::WaitPolicy;
use crate::client::script_result::parse_reply;
use crate::client::telemetry;
use crate::client::transfer::renew_and_drain;
use crate::clock::LocalInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lease::Lease;
use crate::lock::request::Acquire;
use crate::protocol::{LockMode, ReleaseReply, ReleaseRequest};

/// The outcome of a release. It says whether the lock was held until the release.
#[must_use = "the lease may have ended before the release, and the work may have overlapped"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now: the lease had not ended by the client's clock when the release
    /// was sent, and the server had granted the lock to nobody else.
    ///
    /// This is also the outcome if the first answer was lost, the second says that nothing is held,
    /// and the lease has not ended. In that case a [forced release](crate::RwLock::force_release),
    /// or a failover that lost the lock, may have come first.
    ///
    /// A release cannot see that after one of these two a late duplicate of the acquire was granted
    /// anew, unless a renewal has reported it. The release ends that grant.
    Released,
    /// The lease had ended before. Somebody else may have held the lock since.
    AlreadyLost,
    /// The lock was released in time, or the lease ended before: the first answer was lost and the
    /// lease has ended since, or the server could not be reached. The client goes on trying to
    /// release what may be left until its lease has ended.
    Unknown,
}

impl Released {
    /// Whether the lock was held until the release for certain: the outcome is
    /// [`Released`](Self::Released). If not, another holder's work may have overlapped with that
    /// under this lease, and only a [token](crate::Lease::token) that the store checks protects it.
    pub fn was_held(self) -> bool {
        self == Released::Released
    }
}

/// Releases the lease when dropped, on any thread: the client's worker sends the release.
#[derive(Debug)]
pub(crate) struct Hold(pub(crate) Lease);

impl Hold {
    pub(crate) async fn release(self) -> Result<Released> {
        self.begin_release().send().await
    }

    /// Ends the lease for every observer. Nothing is sent yet.
    pub(crate) fn begin_release(self) -> HoldRelease {
        let Lease { client, acquisition } = &self.0;
        let began = client.apply(acquisition, AcquisitionEvent::ReleaseStarted).now;
        HoldRelease { hold: self, began }
    }

    /// Renews the lease, once nothing earlier can change it any more, and then leaves the lock to
    /// it. Whether that succeeds or fails, the lease is not released.
    pub(crate) async fn keep(self) -> Result<Duration> {
        let Lease { client, acquisition } = &self.0;
        // Pending changes come first: nobody would make them later, and the lease would be kept in
        // the wrong mode.
        let renewed = match self.0.unencumbered().await {
            Ok(()) => renew_and_drain(client, acquisition).await.map(drop),
            Err(error) => Err(error),
        };
        let left = self.0.remaining();
        client.apply(acquisition, AcquisitionEvent::LetExpire); // so the drop has nothing to release
        renewed.map(|()| left)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Lease { client, acquisition } = &self.0;
        if !acquisition.is_ended() {
            client.apply(acquisition, AcquisitionEvent::Abandon);
        }
    }
}

/// A hold whose lease has ended for every observer, and whose release is still to be sent. If it is
/// dropped, the worker sends the release.
#[derive(Debug)]
pub(crate) struct HoldRelease {
    hold: Hold,
    began: LocalInstant,
}

impl HoldRelease {
    /// Sends the release and waits for its outcome. A lease that was lost before is left to the
    /// worker, because the outcome is known.
    pub(crate) async fn send(self) -> Result<Released> {
        let Lease { client, acquisition } = &self.hold.0;
        let lock = &acquisition.lock;
        let held = acquisition.with_lease(|holding| (holding.deadline, holding.is_lost()));
        // Without a holding, the client was shut down.
        let Some((ends, false)) = held else {
            return Ok(Released::AlreadyLost);
        };
        let call = ReleaseRequest { wait_only: false }.call(client.scripts, acquisition.id, lock);
        let until = self.began.saturating_add(client.settings.call_timeout);
        let outcome = parse_reply(client.transport.call(&call, until).await, ReleaseRequest::read);
        let told = match outcome {
            Ok(told) => told,
            Err(failure) => return self.not_answered(failure.into()),
        };
        let (ended, repeated, received) = (told.body, told.in_doubt.is_some(), told.received_at);
        let is_good = received < ends;
        // Other clients may have taken over a key of a two-key lock.
        #[cfg(feature = "legacy")]
        let is_good = is_good && lock.second_key.is_none();
        // If anything may still arrive, the drop at the end hands it to the worker, which sends one
        // more release later.
        client.apply(acquisition, AcquisitionEvent::ReleaseReply(told));
        Ok(match ended {
            ReleaseReply::Released if self.began < ends => Released::Released,
            ReleaseReply::NotFound if repeated && is_good => Released::Released,
            ReleaseReply::NotFound if repeated => Released::Unknown,
            _ => Released::AlreadyLost,
        })
    }

    fn not_answered(&self, error: Error) -> Result<Released> {
        let lock = &self.hold.0.acquisition.lock;
        telemetry::emit_release_failed(&lock.name, lock.slot, &error);
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Cancelled => {
                Ok(Released::Unknown)
            }
            _ => Err(lock.add_context(error)),
        }
    }
}

/// What a request returns: [`ReadGuard`], [`WriteGuard`], [`MutexGuard`], [`SemaphoreGuard`], and
/// the guards of a [`Reentrant`](crate::Reentrant).
pub trait Guard: sealed::Guard {}

pub(crate) mod sealed {
    use super::{Acquire, Lease, Released, Result, WaitPolicy};

    pub trait Guard: Sized + Send {
        /// `None` if the request was a try and others are in the way.
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
        /// The guard derefs to its [`Lease`], for [`token`](Lease::token),
        /// [`remaining`](Lease::remaining), [`state`](Lease::state) and [`lost`](Lease::lost).
        ///
        /// Dropping it releases the lock in the background. The drop never blocks, and works
        /// outside of a runtime. After the runtime is shut down nothing can be sent, and the lock
        /// stays taken until its lease ends.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(pub(crate) Hold);

        impl $name {
            /// Releases the lock and returns the outcome. One round trip; none if the lease is
            /// known to be lost, and then the release is sent in the background.
            ///
            /// The lease ends for every clone of its [`Lease`] before anything is sent.
            ///
            /// # Errors
            ///
            /// [`Refused`](ErrorKind::Refused) and [`Foreign`](ErrorKind::Foreign) when the server
            /// refuses. An unreachable server is not an error but [`Released::Unknown`].
            ///
            /// # Cancel safety
            ///
            /// Cancel safe: if the future is dropped, the release is finished in the background.
            pub async fn release(self) -> Result<Released> {
                self.0.release().await
            }
        }

        impl $name {
            /// Leaves the lock to its lease: the lock is not released, and stays taken until the
            /// lease ends. Use it for what must not happen again too soon, such as a job that the
            /// first of many machines runs, or a limit of once an hour.
            ///
            /// The lease is renewed to its full length, counted from now. Then the client stops
            /// tracking it: nothing renews it, and neither a drop nor
            /// [`shutdown`](crate::Locks::shutdown) releases it. Only
            /// [`force_release`](crate::RwLock::force_release) ends it sooner. Returns a lower
            /// bound of the time it has left.
            ///
            /// One round trip. If this read has given up an upgrade and the server has not yet
            /// confirmed that, one or two more, so that what is kept stays a read. If an attempt to
            /// acquire or to upgrade had no answer, it also takes the time until the server would
            /// refuse that attempt (two seconds).
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
            /// [`Lost`](ErrorKind::Lost) when the lease is lost; [`Revoked`](ErrorKind::Revoked)
            /// when it was revoked; [`Refused`](ErrorKind::Refused) when the server refused;
            /// [`Unavailable`](ErrorKind::Unavailable) when the server did not answer within the
            /// client's call timeout, or could not end an upgrade that was given up. After each of
            /// them the lock is left to its current lease. Such an upgrade may still be granted.
            /// Then a write is left, until the same lease or a claim window ends.
            ///
            /// # Cancel safety
            ///
            /// If the future is dropped, the lock is released.
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
                let taken = acquire_task::acquire(client, lock, $mode, options, policy).await?;
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
    /// A lock held for reading, shared with other readers.
    ReadGuard, LockMode::Read
}

guard! {
    /// A lock held for writing, exclusively.
    WriteGuard, LockMode::Write
}

guard! {
    /// A held [`Mutex`](crate::Mutex).
    MutexGuard, LockMode::Write
}

guard! {
    /// Held permits of a [`Semaphore`](crate::Semaphore).
    SemaphoreGuard, LockMode::Read
}

impl WriteGuard {
    /// Turns the write into a read without releasing the lock in between. The token stays the same,
    /// and waiting readers are granted the lock. The [mode](Lease::mode) is a read before anything
    /// is sent.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when the lease is lost; [`Unavailable`](ErrorKind::Unavailable)
    /// when the server does not answer within the client's call timeout. After either, the lock is
    /// released.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.client.apply(&self.acquisition, AcquisitionEvent::Downgrade);
        self.downgraded().await?;
        Ok(ReadGuard(self.0))
    }
}
