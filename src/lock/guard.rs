use std::ops::Deref;
use std::time::Duration;

use rwlease_core::acquisition::{AcquisitionEvent, WaitPolicy};
use rwlease_core::protocol::{LockMode, ReleaseReply, ReleaseRequest, parse_reply};
use rwlease_core::time::LocalInstant;

use crate::client::transfer::renew_and_drain;
use crate::client::{acquire_task, telemetry};
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::lease::Lease;
use crate::lock::request::Acquire;
use crate::lock::upgrade::{self, Upgrade, UpgradeAttempt, UpgradeError};

/// The outcome of a release. It says whether the lock was held until the release.
#[must_use = "the lease may have ended before the release, and the work may have overlapped"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now: the lease had not ended by the client's clock when the release
    /// was sent, and the server had not granted the lock to another client.
    ///
    /// This is also the outcome if the first answer was lost, the second says that nothing is held,
    /// and the lease has not ended. In that case a [forced release](crate::RwLock::force_release),
    /// or a failover that lost the lock, may have come first.
    ///
    /// A release cannot see that after one of these two a late duplicate of the acquire was granted
    /// anew, unless a renewal has reported it. The release ends that grant.
    Released,
    /// The lease had ended before. Another client may have held the lock since then.
    AlreadyLost,
    /// The outcome is unknown: the server did not reply within the client's call timeout, or the
    /// first answer was lost and the second came when the lease had ended. The client retries the
    /// release until the lease has ended at the server.
    Unknown,
}

impl ReleaseOutcome {
    /// Returns whether the lock was held until the release for certain: the outcome is
    /// [`Released`](Self::Released).
    ///
    /// If not, another holder's work may have overlapped with that under this lease, and only a
    /// [token](crate::FencingToken) that the store checks protects it.
    pub fn was_held(self) -> bool {
        self == ReleaseOutcome::Released
    }
}

/// Releases the lease when dropped, on any thread: the client's worker sends the release.
#[derive(Debug)]
pub(crate) struct Hold(pub(crate) Lease);

impl Hold {
    pub(crate) async fn release(self) -> Result<ReleaseOutcome> {
        self.begin_release().await
    }

    /// Ends the lease for every observer. Nothing is sent yet: the future sends the release and
    /// waits for its outcome. If it is dropped, the worker sends the release.
    pub(crate) fn begin_release(self) -> impl Future<Output = Result<ReleaseOutcome>> {
        let Lease { client, acquisition } = &self.0;
        let began = client.apply(acquisition, AcquisitionEvent::ReleaseStarted).now;
        self.send_release(began)
    }

    /// A lease that was lost before is left to the worker, because the outcome is known.
    async fn send_release(self, began: LocalInstant) -> Result<ReleaseOutcome> {
        let Lease { client, acquisition } = &self.0;
        let lock = &acquisition.lock;
        let held = acquisition
            .with_lease(|holding| (holding.deadline, holding.release_request(), holding.is_lost()));
        // Without a holding, the client was shut down.
        let Some((ends, release, false)) = held else {
            return Ok(ReleaseOutcome::AlreadyLost);
        };
        let call = release.call(acquisition.id, lock);
        let until = began.saturating_add(client.settings.acquisition.call_timeout);
        let outcome = parse_reply(client.transport.call(&call, until).await, ReleaseRequest::read);
        let reply = match outcome {
            Ok(reply) => reply,
            Err(failure) => return self.not_answered(failure.into()),
        };
        let (ended, repeated, received) =
            (reply.body, !reply.in_doubt.is_none(), reply.received_at);
        let is_good = received < ends;
        // Other clients may have taken over a key of a two-key lock.
        let is_good = is_good && lock.second_key.is_none();
        // If anything may still arrive, the drop at the end hands it to the worker, which sends one
        // more release later.
        client.apply(acquisition, AcquisitionEvent::ReleaseReply(reply));
        Ok(match ended {
            ReleaseReply::Released | ReleaseReply::Kept(_) if began < ends => {
                ReleaseOutcome::Released
            }
            ReleaseReply::NotFound if repeated && is_good => ReleaseOutcome::Released,
            ReleaseReply::NotFound if repeated => ReleaseOutcome::Unknown,
            _ => ReleaseOutcome::AlreadyLost,
        })
    }

    fn not_answered(&self, error: Error) -> Result<ReleaseOutcome> {
        let lock = &self.0.acquisition.lock;
        telemetry::emit_release_failed(&lock.name, lock.slot, &error);
        match error.kind() {
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Cancelled => {
                Ok(ReleaseOutcome::Unknown)
            }
            _ => Err(lock.add_context(error)),
        }
    }

    /// Renews the lease when no earlier call can change it, and then stops tracking it. The lease
    /// is not released, even if the renewal fails.
    pub(crate) async fn let_expire(self) -> Result<Duration> {
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

/// What a request returns: [`ReadGuard`], [`WriteGuard`], [`MutexGuard`], [`SetNxMutexGuard`],
/// [`SemaphorePermit`], and the guards of a [`ReentrantOwner`](crate::ReentrantOwner).
pub trait Guard: sealed::Guard {}

pub(crate) mod sealed {
    use super::{Acquire, Lease, ReleaseOutcome, Result, WaitPolicy};

    pub trait Guard: Sized + Send {
        /// Whether a request may say for how long the lock stays taken at least.
        const HAS_AT_LEAST: bool;

        /// `None` if a try found the lock busy.
        fn acquire(
            request: &Acquire<'_, Self>,
            policy: WaitPolicy,
        ) -> impl Future<Output = Result<Option<Self>>> + Send;

        fn as_lease(&self) -> &Lease;

        fn give_back(self) -> impl Future<Output = Result<ReleaseOutcome>> + Send;
    }
}

// The methods that several guards have, for their `impl` blocks: a page of rustdoc lists methods in
// the order of the source.

macro_rules! fencing_token {
    () => {
        /// Returns the fencing token: greater than all tokens that this lock gave out before.
        ///
        /// Pass it to the store that the lock protects: see [`FencingToken`](crate::FencingToken).
        ///
        /// The guard has it also after the lease is lost. No round trip.
        pub fn fencing_token(&self) -> $crate::fencing_token::FencingToken {
            $crate::fencing_token::FencingToken::of_grant(self.acquisition.fencing_token())
        }
    };
}
pub(crate) use fencing_token;

macro_rules! release {
    () => {
        /// Releases the lock and returns whether it was held until now.
        ///
        /// One round trip. If the lease is known to be lost, none: then the release is sent in the
        /// background.
        ///
        /// The lease ends for every clone of its [`Lease`](crate::Lease) before anything is sent.
        ///
        /// # Errors
        ///
        /// [`Rejected`](crate::ErrorKind::Rejected) and [`WrongType`](crate::ErrorKind::WrongType)
        /// when the server refuses. For an unreachable server the outcome is
        /// [`Unknown`](crate::ReleaseOutcome::Unknown), and no error.
        ///
        /// # Cancel safety
        ///
        /// Cancel safe: if the future is dropped, the release is finished in the background.
        pub async fn release(self) -> $crate::error::Result<$crate::lock::guard::ReleaseOutcome> {
            self.0.release().await
        }
    };
}
pub(crate) use release;

macro_rules! into_transfer {
    () => {
        /// Turns the held lock into a [`LeaseTransfer`](crate::LeaseTransfer), with which another
        /// client can hold it. The lock is not free in between.
        ///
        /// The other client needs the same servers and the same
        /// [prefix](crate::ClientBuilder::key_prefix).
        /// [`Client::accept_transfer`](crate::Client::accept_transfer) has an example.
        ///
        /// The lease is renewed to its full length, counted from now. The transfer must be
        /// [accepted](crate::Client::accept_transfer) in that time. After that, this client does
        /// not renew or release the lease, not even at its [`shutdown`](crate::Client::shutdown).
        /// Tasks that wait for [`ended`](crate::Lease::ended) are notified at once.
        ///
        /// Stop all work under the lock first. The token stays the same, so a store cannot
        /// distinguish late writes of this holder from writes of the next holder.
        ///
        /// One round trip. If this read has given up an upgrade and the server has not yet
        /// confirmed that, that comes first. If an attempt to acquire the lock had no answer,
        /// this waits until the server refuses the attempt: two to three seconds after the
        /// attempt, with `min_replicas` or `fsync` up to five and a half. A server whose clock
        /// was set back since may carry it out later, when its turn comes. No client uses the
        /// lease that it gets, and the lease expires.
        ///
        /// # Errors
        ///
        /// [`LeaseLost`](crate::ErrorKind::LeaseLost) when the lease is lost;
        /// [`LeaseRevoked`](crate::ErrorKind::LeaseRevoked) when the lease was revoked;
        /// [`Unavailable`](crate::ErrorKind::Unavailable) when the server did not answer, or
        /// too few replicas confirmed; [`Rejected`](crate::ErrorKind::Rejected) when the server
        /// refuses. After any of them, the lock is released in the background.
        ///
        /// # Cancel safety
        ///
        /// If the future is dropped, the lock is released.
        pub async fn into_transfer(
            self,
        ) -> $crate::error::Result<$crate::lock::transfer::LeaseTransfer> {
            self.0.into_transfer().await
        }
    };
}

macro_rules! cancel_at_least {
    () => {
        /// Cancels [`at_least`](crate::Acquire::at_least): a release or a drop frees the lock at
        /// once. Use it if the work has not begun, so that another holder can do it.
        ///
        /// Without `at_least` it has no effect. A dead holder's lock still stays taken until its
        /// time, because the server has the lease already. No round trip.
        ///
        /// ```
        /// # #[cfg(feature = "embedded")]
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
        /// # let client = rwlease::Client::embedded().await?;
        /// # fn begin() -> Result<(), std::io::Error> { Err(std::io::ErrorKind::NotFound.into()) }
        /// use std::time::Duration;
        ///
        /// let report = client.rwlock("report")?;
        /// if let Some(turn) = report.try_write().at_least(Duration::from_secs(50)).await? {
        ///     if begin().is_err() {
        ///         turn.cancel_at_least();
        ///     }
        ///     assert!(turn.release().await?.was_held());
        /// }
        /// assert!(report.try_write().await?.is_some());
        /// # Ok(()) }
        /// # #[cfg(not(feature = "embedded"))] fn main() {}
        /// ```
        pub fn cancel_at_least(&self) {
            self.client.apply(&self.acquisition, AcquisitionEvent::CancelAtLeast);
        }
    };
}

macro_rules! let_expire {
    () => {
        /// Renews the lease once more, and leaves the lock to it: it stays taken for a whole lease
        /// from now.
        ///
        /// Use it for work that must not repeat too soon after its end. For a job once per period
        /// use `at_least` of a write, which counts from the acquisition.
        ///
        /// After that the client does not track the lease: it is not renewed, and a drop or
        /// [`shutdown`](crate::Client::shutdown) does not release it. Only
        /// [`force_release`](crate::RwLock::force_release) ends it sooner. Returns a lower bound of
        /// the time it has left.
        ///
        /// One round trip. If this read has abandoned an upgrade and the server has not
        /// confirmed that yet, it takes one or two more, so that the lease stays a read. If an
        /// attempt to acquire or to upgrade had no answer, it also takes the time until the
        /// server would refuse that attempt (two to three seconds, with `min_replicas` or `fsync`
        /// up to five and a half).
        ///
        /// ```
        /// # #[cfg(feature = "embedded")]
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
        /// # let client = rwlease::Client::embedded().await?;
        /// use std::time::Duration;
        ///
        /// let hourly = client.rwlock("report")?;
        /// if let Some(turn) = hourly.try_write().lease(Duration::from_secs(3600)).await? {
        ///     // the report
        ///     turn.let_expire().await?;
        /// }
        /// assert!(hourly.try_write().await?.is_none()); // for an hour from the end of the report
        /// # Ok(()) }
        /// # #[cfg(not(feature = "embedded"))] fn main() {}
        /// ```
        ///
        /// # Errors
        ///
        /// [`LeaseLost`](crate::ErrorKind::LeaseLost) when the lease is lost;
        /// [`LeaseRevoked`](crate::ErrorKind::LeaseRevoked) when the lease was revoked;
        /// [`Rejected`](crate::ErrorKind::Rejected) when the server refused;
        /// [`Unavailable`](crate::ErrorKind::Unavailable) when the server did not answer within the
        /// client's call timeout, or could not end an upgrade that was given up. After each of
        /// them the lock is left to its current lease. Such an upgrade may still be granted.
        /// Then a write is left, until the same lease or a claim window ends.
        ///
        /// # Cancel safety
        ///
        /// If the future is dropped, the lock is released.
        pub async fn let_expire(self) -> $crate::error::Result<std::time::Duration> {
            self.0.let_expire().await
        }
    };
}
pub(crate) use let_expire;

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr, $has_at_least:expr) => {
        $(#[$doc])*
        ///
        /// The guard derefs to its [`Lease`], for
        /// [`remaining`](Lease::remaining), [`state`](Lease::state) and [`ended`](Lease::ended).
        ///
        /// Dropping it releases the lock in the background. The drop never blocks, and works
        /// outside of a runtime. After the runtime is shut down nothing can be sent, and the lock
        /// stays taken until its lease ends.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(pub(crate) Hold);

        guard_impls!($name, $mode, $has_at_least);
    };
}

/// What every guard of one lease implements.
macro_rules! guard_impls {
    ($name:ident, $mode:expr, $has_at_least:expr) => {
        guard_impls!($name, $has_at_least, |guard| &guard.0.0, |request, policy| {
            let Acquire { client, lock, options, .. } = request;
            let taken = acquire_task::acquire(client, lock, $mode, options, policy).await?;
            Ok(taken.map(|acquisition| $name(Hold(Lease::new(client.0.clone(), acquisition)))))
        });
    };
    (
        $name:ident, $has_at_least:expr,
        |$guard:ident| $lease:expr, |$request:ident, $policy:ident| $acquire:expr
    ) => {
        impl Deref for $name {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                let $guard = self;
                $lease
            }
        }

        impl sealed::Guard for $name {
            const HAS_AT_LEAST: bool = $has_at_least;

            async fn acquire(
                $request: &Acquire<'_, Self>,
                $policy: WaitPolicy,
            ) -> Result<Option<Self>> {
                $acquire
            }

            fn as_lease(&self) -> &Lease {
                self
            }

            async fn give_back(self) -> Result<ReleaseOutcome> {
                self.0.release().await
            }
        }

        impl Guard for $name {}
    };
}
pub(crate) use guard_impls;

guard! {
    /// A lock held for reading, shared with other readers.
    ///
    /// [`RwLock::read`](crate::RwLock::read) and [`try_read`](crate::RwLock::try_read) return it.
    ReadGuard, LockMode::Read, false
}

guard! {
    /// A lock held for writing, exclusively.
    ///
    /// [`RwLock::write`](crate::RwLock::write) and [`try_write`](crate::RwLock::try_write) return
    /// it.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # async fn save(_: &str, _: rwlease::FencingToken) {}
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// let guard = order.write().await?;
    /// tokio::select! {
    ///     () = save("paid", guard.fencing_token()) => {}
    ///     () = guard.ended() => println!("the lease is lost: stop"),
    /// }
    /// if !guard.release().await?.was_held() {
    ///     println!("another holder may have worked at the same time");
    /// }
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    WriteGuard, LockMode::Write, true
}

guard! {
    /// A held [`Mutex`](crate::Mutex).
    ///
    /// [`Mutex::lock`](crate::Mutex::lock) and [`try_lock`](crate::Mutex::try_lock) return it.
    MutexGuard, LockMode::Write, true
}

guard! {
    /// A held [`SetNxMutex`](crate::SetNxMutex), without a fencing token.
    ///
    /// [`SetNxMutex::lock`](crate::SetNxMutex::lock) and
    /// [`try_lock`](crate::SetNxMutex::try_lock) return it.
    SetNxMutexGuard, LockMode::Write, false
}

guard! {
    /// Held permits of a [`Semaphore`](crate::Semaphore).
    ///
    /// [`Semaphore::acquire`](crate::Semaphore::acquire) and
    /// [`try_acquire`](crate::Semaphore::try_acquire) return it.
    SemaphorePermit, LockMode::Read, false
}

impl ReadGuard {
    fencing_token!();
    release!();

    /// Turns the read into a write, with a new token. It waits until the other readers have
    /// released, without a limit unless [`timeout`](Upgrade::timeout) sets one.
    ///
    /// An upgrade goes before all waiting writers, and no new reader is admitted while it waits.
    ///
    /// Only one reader can wait for an upgrade. A second one fails at once with
    /// [`UpgradeConflict`](ErrorKind::UpgradeConflict), since each would wait for the other's
    /// release. [`Upgrade`] documents the errors and the cancel safety.
    ///
    /// ```no_run
    /// # async fn example(reading: rwlease::ReadGuard) -> rwlease::Result<()> {
    /// use rwlease::ErrorKind;
    ///
    /// let writing = match reading.upgrade().await {
    ///     Ok(writing) => writing,
    ///     Err(refused) if refused.kind() == ErrorKind::UpgradeConflict => {
    ///         let _ = refused.into_guard().release().await?; // the other one goes first
    ///         return Ok(());
    ///     }
    ///     Err(refused) => return Err(refused.into()),
    /// };
    /// # assert!(writing.release().await?.was_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(self) -> Upgrade {
        Upgrade::new(self)
    }

    /// Turns the read into a write if nobody else reads. One round trip.
    ///
    /// ```no_run
    /// # async fn example(reading: rwlease::ReadGuard) -> rwlease::Result<()> {
    /// use rwlease::UpgradeAttempt;
    ///
    /// match reading.try_upgrade().await? {
    ///     UpgradeAttempt::Upgraded(writing) => drop(writing),
    ///     UpgradeAttempt::OtherReaders(reading) => drop(reading), // it still reads
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Upgrade`]. [`TimedOut`](ErrorKind::TimedOut) only if this read has given up an upgrade,
    /// or has a downgrade under way, and the server does not confirm the end of that within the
    /// client's call timeout. Until then no new upgrade can begin.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the read is released.
    pub async fn try_upgrade(self) -> Result<UpgradeAttempt, UpgradeError> {
        upgrade::try_upgrade(self).await
    }

    into_transfer!();
    let_expire!();
}

impl WriteGuard {
    fencing_token!();
    release!();
    cancel_at_least!();

    /// Turns the write into a read without releasing the lock in between. One round trip.
    ///
    /// The token stays the same, and waiting readers are granted the lock. The [mode](Lease::mode)
    /// is a read before anything is sent.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let order = rwlease::Client::embedded().await?.rwlock("order:{42}")?;
    /// let writing = order.write().await?;
    /// let reading = writing.downgrade().await?;
    /// assert!(order.try_read().await?.is_some());
    /// # assert!(reading.release().await?.was_held());
    /// # Ok(()) }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](ErrorKind::LeaseLost) when the lease is lost;
    /// [`Rejected`](ErrorKind::Rejected) when the server refuses;
    /// [`Unavailable`](ErrorKind::Unavailable) when the server does not answer within the client's
    /// call timeout. After each of them, the lock is released.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.client.apply(&self.acquisition, AcquisitionEvent::Downgrade);
        self.downgraded().await?;
        Ok(ReadGuard(self.0))
    }

    into_transfer!();
    let_expire!();
}

impl MutexGuard {
    fencing_token!();
    release!();
    cancel_at_least!();
    into_transfer!();
    let_expire!();
}

impl SetNxMutexGuard {
    release!();
    let_expire!();
}
