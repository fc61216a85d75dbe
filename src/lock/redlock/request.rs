//! A request for a lock of a quorum: rounds until one has a majority.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rwlease_core::acquisition::{LeaseOptions, RenewalPolicy};
use rwlease_core::protocol::{LockKey, LockKind, LockMode};
use rwlease_core::time::LocalInstant;

use crate::client::config::check_options;
use crate::error::{AddContext, Error, Result};
use crate::lock::redlock::Redlock;
use crate::lock::redlock::guard::RedlockGuard;
use crate::lock::redlock::round::{Round, RoundOutcome};
use crate::lock::request::options;
use crate::lock::run_while_held::{output_of, until_lost};
use crate::lock::wait_options::{Cancel, WaitOptions};

/// The default timeout of a member is the lease divided by this, within the range below, plus the
/// time for confirmations.
const PARTS_FOR_A_MEMBER: u32 = 50;
const SHORTEST_FOR_A_MEMBER: Duration = Duration::from_millis(20);
const LONGEST_FOR_A_MEMBER: Duration = Duration::from_millis(500);

/// The least timeout of a member that a request may set.
const LEAST_FOR_A_MEMBER: Duration = Duration::from_millis(1);

/// A request for a lock of a [`Redlock`]. It is sent when awaited, and returns a [`RedlockGuard`].
///
/// # Cost
///
/// The time of one round trip for each try, to all members at once. A read/write lock takes one
/// more round trip to write its token back, and one more for each member with a wrong clock. A dead
/// or slow member adds as much time again as the majority took, at most the [member
/// timeout](Self::member_timeout).
///
/// # Fairness
///
/// None: there is no queue. Whoever tries first after the release wins.
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire); an error that no other try can mend, such as
/// [`Rejected`](crate::ErrorKind::Rejected), if the members without such an error are no majority.
/// [`Unavailable`](crate::ErrorKind::Unavailable) in two cases:
///
/// - Less than a majority of the members answered within the clients' call timeout. The source is
///   what one of the others reported.
/// - A member's clock is wrong, and less than a majority is left without it. The error names that
///   member, and how far its clock is ahead.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves nothing on any member that can be reached. On the
/// others, the lease ends the lock.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct RedlockAcquire {
    quorum: Redlock,
    locks: Result<Arc<[LockKey]>>,
    mode: LockMode,
    options: LeaseOptions,
    wait: WaitOptions,
    cancel: Cancel<'static>,
    member_timeout: Option<Duration>,
    drift: Option<Duration>,
}

impl RedlockAcquire {
    pub(super) fn new(quorum: &Redlock, kind: LockKind, name: &str, mode: LockMode) -> Self {
        let members = quorum.members.iter();
        let locks = members.map(|member| member.client.settings.lock_key(kind, name));
        RedlockAcquire {
            locks: locks.collect(),
            mode,
            options: LeaseOptions {
                is_member: true,
                ..quorum.members[0].client.settings.lease_options()
            },
            wait: WaitOptions::default(),
            cancel: Cancel::default(),
            member_timeout: None,
            drift: None,
            quorum: quorum.clone(),
        }
    }

    options!();

    /// Sets the timeout for one member in one try. Default: a fiftieth of the lease, from 20 ms to
    /// 500 ms, plus the time for confirmations: 250 ms with `min_replicas`, and 2 s with `fsync`.
    /// At least 1 ms, or the request fails with [`InvalidInput`](crate::ErrorKind::InvalidInput). A
    /// longer one than the lease counts as the lease.
    ///
    /// It should be far shorter than the lease, or a dead member uses the lease up.
    pub fn member_timeout(mut self, timeout: Duration) -> Self {
        self.member_timeout = Some(timeout);
        self
    }

    /// Sets how much earlier the lock ends here than at its members. Default: a hundredth of the
    /// lease plus 2 ms.
    ///
    /// It must be at most half of the first lease, or the request fails with
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): the lock would end before it is renewed.
    /// With [`RenewalPolicy::Manual`](crate::RenewalPolicy) it must only be shorter than the first
    /// lease.
    ///
    /// It covers different speeds of clocks. The clients'
    /// [margin](crate::ClientBuilder::safety_margin) applies if it is larger.
    pub fn drift(mut self, drift: Duration) -> Self {
        self.drift = Some(drift);
        self
    }

    /// Tries once on all members. Returns `None` if the lock is busy.
    ///
    /// # Errors, Cancel safety
    ///
    /// As when awaited, but never `TimedOut` or `AttemptsExhausted`. `Unavailable` at once if no
    /// majority answers. [`InvalidInput`](crate::ErrorKind::InvalidInput) also with
    /// [`retry_policy`](Self::retry_policy).
    pub async fn try_acquire(mut self) -> Result<Option<RedlockGuard>> {
        let cancel = std::mem::take(&mut self.cancel);
        cancel.or(pin!(Some(self.try_once()))).await
    }

    /// Holds the lock while `work` runs, and returns its output. `work` gets the guard: the stores
    /// that it writes to need [the token](RedlockGuard::fencing_token).
    ///
    /// When the lock is lost, `work` is cancelled: its future is dropped at its current await, and
    /// the result is [`LeaseLost`](crate::ErrorKind::LeaseLost). `Ok` means the same as in
    /// [`Acquire::run_while_held`](crate::Acquire::run_while_held). Tasks and threads that `work`
    /// started are not cancelled: they must watch [`RedlockGuard::ended`] or be told by `work`.
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let mut members = Vec::new();
    /// # for _ in 0..3 { members.push(rwlease::Client::embedded().await?); }
    /// let quorum = rwlease::Redlock::new(members)?;
    /// let total = quorum.write("order:{42}").run_while_held(async |guard| {
    ///     save("paid", guard.fencing_token()).await; // the store refuses older tokens
    ///     42
    /// }).await?;
    /// assert_eq!(total, 42);
    /// # Ok(()) }
    /// # async fn save(_: &str, _: Option<rwlease::FencingToken>) {}
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Acquire::run_while_held`](crate::Acquire::run_while_held).
    pub async fn run_while_held<T>(self, work: impl AsyncFnOnce(&RedlockGuard) -> T) -> Result<T> {
        let guard = self.await?;
        let output = until_lost(guard.ended(), || guard.is_held(), work(&guard)).await;
        let lock = guard.members.round.locks[0].clone();
        let released = guard.release().await;
        output_of(output, &released, &lock)
    }

    async fn try_once(&self) -> Result<Option<RedlockGuard>> {
        self.wait.check_try()?;
        let round = self.round()?;
        let limit = self.wait.timeout.unwrap_or(round.member_timeout).min(round.member_timeout);
        let until = self.quorum.members[0].client.clock.now().saturating_add(limit);
        match round.run(until).await? {
            RoundOutcome::Held(guard) => Ok(Some(guard)),
            RoundOutcome::Refused => Ok(None),
            RoundOutcome::Unreached(error) => Err(error),
        }
    }

    fn check(&self) -> Result<()> {
        check_options(&self.options)?;
        self.wait.check()?;
        let lease = self.options.first_lease();
        if let Some(drift) = self.drift {
            let is_manual = self.options.renewal == RenewalPolicy::Manual;
            // Renewals are due after three tenths of the lease.
            let (is_too_long, limit) = match is_manual {
                true => (drift >= lease, "shorter than"),
                false => (drift > lease / 2, "at most half of"),
            };
            Error::ensure(!is_too_long, || {
                format!("the drift must be {limit} the lease, {lease:?}, not {drift:?}")
            })?;
        }
        let timeout = self.member_timeout.unwrap_or(LEAST_FOR_A_MEMBER);
        Error::ensure(timeout >= LEAST_FOR_A_MEMBER, || {
            format!("`member_timeout` must be at least {LEAST_FOR_A_MEMBER:?}, not {timeout:?}")
        })
    }

    fn round(&self) -> Result<Round> {
        let lease = self.options.first_lease();
        let round_trip =
            (lease / PARTS_FOR_A_MEMBER).clamp(SHORTEST_FOR_A_MEMBER, LONGEST_FOR_A_MEMBER);
        let default = round_trip + self.options.confirmation.timeout();
        let locks = match &self.locks {
            Ok(locks) => locks,
            Err(error) => return Err(Error::new(error.kind(), error.to_string())),
        };
        self.check().map_err(|error| locks[0].add_context(error))?;
        Ok(Round {
            quorum: self.quorum.clone(),
            locks: locks.clone(),
            mode: self.mode,
            options: self.options.clone(),
            member_timeout: self.member_timeout.unwrap_or(default).min(lease),
            drift: self.drift.unwrap_or(lease / 100 + Duration::from_millis(2)),
        })
    }

    async fn run(&self) -> Result<RedlockGuard> {
        let round = self.round()?;
        let client = &self.quorum.members[0].client;
        let clock = &*client.clock;
        let retry = self.wait.retry.clone().unwrap_or_default();
        let mut tries = retry.begin(clock.now(), self.wait.timeout);
        let mut unreached_since: Option<LocalInstant> = None;
        loop {
            let began = clock.now();
            let until = tries.answer_by(began.saturating_add(round.member_timeout));
            let error = match round.run(until).await? {
                RoundOutcome::Held(guard) => return Ok(guard),
                RoundOutcome::Refused => {
                    unreached_since = None;
                    None
                }
                RoundOutcome::Unreached(_)
                    if unreached_since.is_none() && tries.was_cut_short(began, clock.now()) =>
                {
                    return Err(round.with_lock(tries.out_of_time()));
                }
                RoundOutcome::Unreached(error) => {
                    let since = *unreached_since.get_or_insert(clock.now());
                    if clock.now().saturating_duration_since(since)
                        >= client.settings.acquisition.call_timeout
                    {
                        return Err(error);
                    }
                    Some(error)
                }
            };
            tries
                .pause(clock)
                .await
                .map_err(|over| error.unwrap_or_else(|| round.with_lock(over)))?;
        }
    }
}

impl IntoFuture for RedlockAcquire {
    type Output = Result<RedlockGuard>;
    type IntoFuture = BoxFuture<'static, Result<RedlockGuard>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let cancel = std::mem::take(&mut self.cancel);
        Box::pin(async move { cancel.or(pin!(Some(self.run()))).await })
    }
}
