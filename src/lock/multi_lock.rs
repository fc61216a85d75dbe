use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, join_all, select, select_all, try_join_all};
use rwlease_core::acquisition::config::MIN_BLAMED_SILENCE;
use rwlease_core::acquisition::{AcquisitionEvent, LeaseOptions, RenewalPolicy, WaitPolicy};
use rwlease_core::protocol::{Confirmation, LockKey, LockKind, LockMode};
use rwlease_core::time::LocalInstant;

use crate::client::config::check_options;
use crate::client::{ClientHandle, ClientInner, acquire_task};
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::lock::guard::{Hold, ReleaseOutcome};
use crate::lock::lease::{Lease, LeaseState};
use crate::lock::request::options;
use crate::lock::retry::was_cut_short;
use crate::lock::run_while_held::{output_of, until_lost};
use crate::lock::wait_options::{Cancel, WaitOptions};

/// A request for several locks in any slots and modes. It acquires all locks, or no lock.
///
/// [`Client::multi_lock`](crate::Client::multi_lock) makes it. It is sent when awaited, and returns
/// a [`MultiLockGuard`].
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
/// # let client = rwlease::Client::embedded().await?;
/// let both = client.multi_lock().write("account:1").write("account:2").read("rates").await?;
/// assert!(both.is_held());
/// assert!(both.release().await?.was_held());
/// # Ok(()) }
/// # #[cfg(not(feature = "embedded"))] fn main() {}
/// ```
///
/// # Deadlock
///
/// Two such requests never wait for each other. A request waits for locks in the byte order of
/// their keys, not in the order of the calls. While it waits for one lock it holds only locks with
/// smaller keys. A task that holds a lock by another request and waits for this one can still
/// deadlock.
///
/// # Modes
///
/// Each lock keeps its mode until the release: the guard has no upgrade and no downgrade. Name a
/// lock by [`write`](MultiLock::write) if the work may have to write.
///
/// # Cost
///
/// All locks are tried at once: one command for each, in the time of one round trip. If one is
/// refused, the request keeps the locks before the first refused one, releases the others, and
/// waits for that one as [`Acquire`](crate::Acquire) waits. Then it tries the rest in the same way.
/// A lock whose server does not reply within the client's [call
/// timeout](crate::ClientBuilder::call_timeout) counts as refused: the request holds the locks
/// before it until that server replies or the [`timeout`](MultiLock::timeout) ends. With
/// [`retry_policy`](MultiLock::retry_policy) it holds no lock while it waits: it tries all locks at
/// once, and if one is busy, it releases all.
///
/// # Fairness
///
/// A request has the fairness of the lock in whose queue it waits. A try can hold some of the locks
/// for a moment and then release them. During that time, a try of another client can fail.
///
/// # Renewal
///
/// While the request waits for one lock or for a server, the client renews the locks that the
/// request already holds, even if [`renewal`](MultiLock::renewal) disables renewals. It does not
/// report losses of these locks: the request acquires them again. Limits of renewals and of the
/// hold count from when the guard is returned. If the request had to wait for a holder, and the
/// client does not renew the leases after that, all leases are renewed once more before the guard
/// is returned: one round trip.
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire), with the lock at which it failed;
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) if no lock was named, or one key was named as a
/// [`SetNxMutex`](crate::SetNxMutex) and as a read/write lock. After an error none of the locks is
/// held.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves no lock and no place in a queue.
#[must_use = "a request does nothing until it is awaited"]
pub struct MultiLock {
    client: Arc<ClientHandle>,
    named: Result<Vec<RequestedLock>>,
    options: LeaseOptions,
    wait: WaitOptions,
    cancel: Cancel<'static>,
}

type RequestedLock = (LockKey, LockMode);

impl MultiLock {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        let options = client.settings.lease_options();
        MultiLock {
            client,
            named: Ok(Vec::new()),
            options,
            wait: WaitOptions::default(),
            cancel: Cancel::default(),
        }
    }

    /// Adds a read/write lock, for reading. A lock that is also named for writing is held for
    /// writing.
    pub fn read(self, name: impl AsRef<str>) -> Self {
        self.want(LockKind::ReadWrite, name.as_ref(), LockMode::Read)
    }

    /// Adds a read/write lock, for writing. That is also how to add a [`Mutex`](crate::Mutex).
    pub fn write(self, name: impl AsRef<str>) -> Self {
        self.want(LockKind::ReadWrite, name.as_ref(), LockMode::Write)
    }

    /// Adds a [`SetNxMutex`](crate::SetNxMutex).
    pub fn set_nx_mutex(self, name: impl AsRef<str>) -> Self {
        self.want(LockKind::SetNxMutex, name.as_ref(), LockMode::Write)
    }

    options!();

    /// Acquires all locks, or returns `None` if another client blocks one of them, or if a lease is
    /// lost before the last lock is granted.
    ///
    /// A lock that another client only has [cached](crate::RwLock::cached) does not count as busy:
    /// the request waits for its recall for up to
    /// [`CacheConfig::try_wait`](crate::CacheConfig::try_wait), 50 ms by default. The time of one
    /// round trip; one more if a lock is not free.
    ///
    /// # Errors, Cancel safety
    ///
    /// As when awaited, but never `TimedOut` or `AttemptsExhausted`.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) also with
    /// [`retry_policy`](MultiLock::retry_policy).
    pub async fn try_acquire(mut self) -> Result<Option<MultiLockGuard>> {
        let cancel = std::mem::take(&mut self.cancel);
        let first = self.named.as_ref().ok().and_then(|named| named.first()).cloned();
        let tried = cancel.or(pin!(Some(self.try_once()))).await;
        tried.map_err(|error| with_a_lock(error, first.as_ref()))
    }

    async fn try_once(self) -> Result<Option<MultiLockGuard>> {
        check_options(&self.options)?;
        self.wait.check_try()?;
        let until = self.client.deadline(self.wait.timeout, self.options.confirmation);
        let (client, options, wanted) = (self.client, self.options, in_order(self.named?)?);
        let reserving = reserved(&options);
        let tried = try_each(&client, &wanted, &reserving, until).await?;
        let tried = tried.into_iter().collect::<Result<Vec<_>>>()?;
        // This drops what was acquired behind the first refusal. The others are waited for in the
        // order of their keys, so that no two requests wait for each other.
        let mut held: Vec<Hold> = tried.into_iter().map_while(|hold| hold).collect();
        let patience = client.clock.now().saturating_add(client.settings.cache.try_wait);
        for (lock, mode) in &wanted[held.len()..] {
            let for_cached = match lock.can_be_cached() {
                true => patience.saturating_duration_since(client.clock.now()),
                false => Duration::ZERO,
            };
            let policy = WaitPolicy::Try { deadline: until, cached_wait: for_cached };
            match acquire_task::acquire(&client, lock, *mode, &reserving, policy).await? {
                Some(taken) => held.push(Hold(Lease::new((*client).clone(), taken))),
                None => return Ok(None),
            }
        }
        Ok(begin_use(&mut held).then_some(MultiLockGuard(held)))
    }

    /// Acquires all locks, runs `work` while they are held, and releases them. `work` gets the
    /// guard: the stores that it writes to need [the tokens](MultiLockGuard::lease).
    ///
    /// When one of the locks is lost, `work` is cancelled: its future is dropped at its current
    /// await, and the result is [`LeaseLost`](crate::ErrorKind::LeaseLost), with that lock. `Ok`
    /// means the same for each lock as in
    /// [`Acquire::run_while_held`](crate::Acquire::run_while_held).
    ///
    /// ```
    /// # #[cfg(feature = "embedded")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> rwlease::Result<()> {
    /// # let client = rwlease::Client::embedded().await?;
    /// let both = client.multi_lock().write("account:1").write("account:2");
    /// let moved = both.run_while_held(async |locks| {
    ///     let token = |name| locks.lease(name).and_then(|lease| lease.fencing_token());
    ///     transfer(token("account:1"), token("account:2")).await
    /// }).await?;
    /// assert_eq!(moved, 10);
    /// # Ok(()) }
    /// # async fn transfer<T>(_from: Option<T>, _to: Option<T>) -> u32 { 10 }
    /// # #[cfg(not(feature = "embedded"))] fn main() {}
    /// ```
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Acquire::run_while_held`](crate::Acquire::run_while_held).
    pub async fn run_while_held<T>(
        self,
        work: impl AsyncFnOnce(&MultiLockGuard) -> T,
    ) -> Result<T> {
        let guard = self.await?;
        let output = until_lost(guard.ended(), || guard.is_held(), work(&guard)).await;
        let is_lost = |lease: &&Lease| !lease.is_held();
        // A release may find the loss first. Then any lease names the request.
        let lease = guard.leases().find(is_lost).or(guard.leases().next()).cloned();
        let released = guard.release().await;
        match lease {
            Some(lease) => output_of(output, &released, &lease.acquisition.lock),
            None => Err(Error::new(ErrorKind::LeaseLost, "the locks were lost")),
        }
    }

    fn want(mut self, kind: LockKind, name: &str, mode: LockMode) -> Self {
        let lock = self.client.settings.lock_key(kind, name);
        self.named = self.named.and_then(|mut named| {
            named.push((lock?, mode));
            Ok(named)
        });
        self
    }
}

impl IntoFuture for MultiLock {
    type Output = Result<MultiLockGuard>;
    type IntoFuture = BoxFuture<'static, Result<MultiLockGuard>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_options(&self.options)?;
            self.wait.check()?;
            let wanted = in_order(self.named?)?;
            let taking = async {
                match &self.wait.retry {
                    Some(_) => take_at_once(&self.client, &wanted, &self.options, &self.wait).await,
                    None => take_in_turn(&self.client, &wanted, &self.options, &self.wait).await,
                }
            };
            let taken = self.cancel.or(pin!(Some(taking))).await;
            taken.map(MultiLockGuard).map_err(|error| with_a_lock(error, wanted.first()))
        })
    }
}

/// An error that concerns all locks, as a cancelled wait does, has one of them to name the request.
fn with_a_lock(error: Error, lock: Option<&RequestedLock>) -> Error {
    match lock {
        Some((lock, _)) if error.lock().is_none() => lock.add_context(error),
        _ => error,
    }
}

/// The locks in the order of their keys, without duplicates.
fn in_order(mut named: Vec<RequestedLock>) -> Result<Vec<RequestedLock>> {
    Error::ensure(!named.is_empty(), || "no lock is named; name at least one")?;
    // The sort is stable. For one key the write comes first, and stands for both.
    named.sort_by(|(one, mode), (other, other_mode)| {
        let read_last = (*mode == LockMode::Read).cmp(&(*other_mode == LockMode::Read));
        one.key.cmp(&other.key).then(read_last)
    });
    let mixed =
        |pair: &[RequestedLock]| pair[0].0.key == pair[1].0.key && pair[0].0.kind != pair[1].0.kind;
    if let Some(pair) = named.windows(2).find(|pair| mixed(pair)) {
        let error = Error::invalid(
            "the key is named as a SetNxMutex and as a read/write lock; name it once",
        );
        return Err(pair[0].0.add_context(error));
    }
    named.dedup_by(|(one, _), (other, _)| one.key == other.key);
    Ok(named)
}

/// The options of leases that no guard has yet. [`begin_use`] hands them to the guard.
fn reserved(options: &LeaseOptions) -> LeaseOptions {
    LeaseOptions { reserved: true, ..options.clone() }
}

/// Tries all locks at the same time. Fails at once with an error that no other try can mend: all
/// but `Unavailable`.
async fn try_each(
    client: &Arc<ClientInner>,
    wanted: &[RequestedLock],
    options: &LeaseOptions,
    until: LocalInstant,
) -> Result<Vec<Result<Option<Hold>>>> {
    try_join_all(wanted.iter().map(async |(lock, mode)| {
        let policy = WaitPolicy::strict_try(until);
        match acquire_task::acquire(client, lock, *mode, options, policy).await {
            Err(error) if error.kind() != ErrorKind::Unavailable => Err(error),
            taken => Ok(taken.map(|taken| taken.map(|it| Hold(Lease::new(client.clone(), it))))),
        }
    }))
    .await
}

/// Keeps the locks before the first one that was not granted, and waits for that one.
async fn take_in_turn(
    client: &Arc<ClientInner>,
    wanted: &[RequestedLock],
    options: &LeaseOptions,
    wait: &WaitOptions,
) -> Result<Vec<Hold>> {
    let clock = &client.clock;
    let reserving = reserved(options);
    let mut waited = false;
    let ends = wait.timeout.map(|timeout| clock.now().saturating_add(timeout));
    let mut held: Vec<Hold> = Vec::new();
    loop {
        let began = clock.now();
        let by = client.call_deadline(options.confirmation);
        let until = ends.map_or(by, |ends| ends.min(by));
        let mut silence = None;
        // This drops, and so releases, what was acquired behind the first lock without a grant.
        for taken in try_each(client, &wanted[held.len()..], &reserving, until).await? {
            match taken {
                Ok(Some(hold)) => held.push(hold),
                Ok(None) => break,
                Err(error) => {
                    silence = Some(error);
                    break;
                }
            }
        }
        let mut has_replied = silence.is_none();
        // The time is up. Before that, the request waits for a silent server as for a holder.
        if let Some(error) = silence.filter(|_| ends.is_some_and(|ends| clock.now() >= ends)) {
            return Err(match waited && was_cut_short(ends, began, clock.now()) {
                true => out_of_time(&wanted[held.len()].0),
                false => error,
            });
        }
        keep_until_lost(&mut held);
        if held.len() == wanted.len() {
            if waited && options.renewal != RenewalPolicy::Automatic {
                // They may have been held for a while, and the client does not renew them later.
                renew_each(&held, ends).await?;
            }
            if begin_use(&mut held) {
                return Ok(held);
            }
            continue;
        }
        let (lock, mode) = &wanted[held.len()];
        waited = true;
        let next = loop {
            let began = clock.now();
            let turn = WaitOptions {
                timeout: ends.map(|ends| ends.saturating_duration_since(began)),
                retry: None,
            };
            let take = |policy| acquire_task::acquire(client, lock, *mode, &reserving, policy);
            let turn = std::pin::pin!(turn.for_lock(client, lock, options.confirmation, take));
            let error = match select(turn, std::pin::pin!(any_lost(&held))).await {
                Either::Left((Ok(taken), _)) => break Some(Lease::new(client.clone(), taken)),
                Either::Left((Err(error), _)) => error,
                Either::Right(_) => break None,
            };
            let now = clock.now();
            let is_unavailable = error.kind() == ErrorKind::Unavailable;
            if is_unavailable && has_replied && was_cut_short(ends, began, now) {
                return Err(out_of_time(lock));
            }
            // Tries of a silent server fail, where a place in a queue waits.
            let was_silent = lock.kind == LockKind::SetNxMutex
                && options.confirmation == Confirmation::default()
                && now.saturating_duration_since(began) >= MIN_BLAMED_SILENCE;
            if !is_unavailable || !was_silent || ends.is_some_and(|ends| now >= ends) {
                return Err(error);
            }
            has_replied = false;
        };
        held.extend(next.map(Hold));
        keep_until_lost(&mut held);
    }
}

/// Hands the reserved leases to their guard. Returns false if a lock was lost before that. The
/// locks before the lost one stay reserved.
fn begin_use(held: &mut Vec<Hold>) -> bool {
    let count = held.len();
    keep_until_lost(held);
    if held.len() < count {
        return false;
    }
    for hold in &*held {
        hold.0.client.apply(&hold.0.acquisition, AcquisitionEvent::BeginUse);
    }
    true
}

/// Renews the leases. A lease that cannot be renewed now is still held, or is waited for again.
/// Fails if a server does not reply before the time is up.
async fn renew_each(held: &[Hold], ends: Option<LocalInstant>) -> Result<()> {
    let renewals = held.iter().map(async |Hold(lease)| {
        let over = async {
            match ends {
                Some(ends) => lease.client.clock.sleep_until(ends).await,
                None => std::future::pending().await,
            }
        };
        match select(pin!(lease.renew()), pin!(over)).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(out_of_time(&lease.acquisition.lock)),
        }
    });
    try_join_all(renewals).await.map(drop)
}

/// Tries until it has all locks, and holds no lock between tries.
async fn take_at_once(
    client: &Arc<ClientInner>,
    wanted: &[RequestedLock],
    options: &LeaseOptions,
    wait: &WaitOptions,
) -> Result<Vec<Hold>> {
    let retry = wait.retry.clone().unwrap_or_default();
    let reserving = reserved(options);
    let mut tries = retry.begin(client.clock.now(), wait.timeout);
    loop {
        let began = client.clock.now();
        let until = tries.answer_by(client.call_deadline(options.confirmation));
        let tried = try_each(client, wanted, &reserving, until).await?;
        if let Some(silent) = tried.iter().position(Result::is_err)
            && tries.was_cut_short(began, client.clock.now())
        {
            return Err(wanted[silent].0.add_context(tries.out_of_time()));
        }
        let tried = tried.into_iter().collect::<Result<Vec<_>>>()?;
        let mut held: Vec<Hold> = tried.into_iter().map_while(|hold| hold).collect();
        if held.len() == wanted.len() && begin_use(&mut held) {
            return Ok(held);
        }
        let missing = &wanted[held.len()].0;
        drop(held); // so that the request holds no lock while it pauses
        let pause = tries.pause(&*client.clock).await;
        pause.map_err(|error| missing.add_context(error))?;
    }
}

/// The error of a time limit that passed soon after the last call for this lock was sent.
fn out_of_time(lock: &LockKey) -> Error {
    let message = "timed out: the time was up soon after the last call was sent";
    lock.add_context(Error::new(ErrorKind::TimedOut, message))
}

/// Releases the locks from the first lost one on. The request must wait for the lost lock again, in
/// the order of the keys.
fn keep_until_lost(held: &mut Vec<Hold>) {
    let lost = held.iter().position(|hold| !hold.0.is_held());
    held.truncate(lost.unwrap_or(held.len()));
}

async fn any_lost(held: &[Hold]) {
    match held {
        [] => std::future::pending().await,
        held => drop(select_all(held.iter().map(|hold| Box::pin(hold.0.ended()))).await),
    }
}

debug_fields!(|request| MultiLock {
    locks: request.named,
    options: request.options,
    wait: request.wait,
    ..
});

/// Several locks held together.
///
/// Dropping it releases all locks in the background.
#[must_use = "dropped at once, the locks are released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct MultiLockGuard(Vec<Hold>);

impl MultiLockGuard {
    /// Returns the leases, in the order of the locks' keys. Each has its own
    /// [token](Lease::fencing_token). No round trip.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = &Lease> {
        self.0.iter().map(|hold| &hold.0)
    }

    /// Returns the lease of the read/write lock with this name.
    pub fn lease(&self, name: &str) -> Option<&Lease> {
        self.lease_of(LockKind::ReadWrite, name)
    }

    /// Returns the lease of the [`SetNxMutex`](crate::SetNxMutex) with this name.
    pub fn set_nx_mutex_lease(&self, name: &str) -> Option<&Lease> {
        self.lease_of(LockKind::SetNxMutex, name)
    }

    /// Releases all locks, in the time of one round trip.
    ///
    /// Returns [`Released`](ReleaseOutcome::Released) if all were held until now,
    /// [`AlreadyLost`](ReleaseOutcome::AlreadyLost) if one was known to be lost before, and
    /// otherwise [`Unknown`](ReleaseOutcome::Unknown).
    ///
    /// # Errors
    ///
    /// [`Rejected`](crate::ErrorKind::Rejected) and [`WrongType`](crate::ErrorKind::WrongType) when
    /// a server refuses and no lock is known to be lost. The other locks are released.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the releases are finished in the background.
    pub async fn release(self) -> Result<ReleaseOutcome> {
        let releases: Vec<_> = self.0.into_iter().map(Hold::begin_release).collect();
        let released = join_all(releases).await;
        // A loss comes first: the error of another lock must not hide it.
        if released.iter().any(|outcome| matches!(outcome, Ok(ReleaseOutcome::AlreadyLost))) {
            return Ok(ReleaseOutcome::AlreadyLost);
        }
        let released: Vec<ReleaseOutcome> = released.into_iter().collect::<Result<_>>()?;
        Ok(if released.contains(&ReleaseOutcome::Unknown) {
            ReleaseOutcome::Unknown
        } else {
            ReleaseOutcome::Released
        })
    }

    fn lease_of(&self, kind: LockKind, name: &str) -> Option<&Lease> {
        self.leases().find(|lease| lease.acquisition.lock.kind == kind && lease.name() == name)
    }

    /// Returns the worst state of the leases, computed now.
    pub fn state(&self) -> LeaseState {
        let states = || self.leases().map(Lease::state);
        if states().any(|state| state == LeaseState::Lost) {
            LeaseState::Lost
        } else if states().any(|state| state == LeaseState::Uncertain) {
            LeaseState::Uncertain
        } else {
            LeaseState::Held
        }
    }

    /// Returns whether all locks are held, computed now.
    pub fn is_held(&self) -> bool {
        self.state() != LeaseState::Lost
    }

    /// Returns the time left of the lease that ends first, computed now.
    pub fn remaining(&self) -> Duration {
        self.leases().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Completes when one of the locks is lost. The others are still held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn ended(&self) {
        any_lost(&self.0).await;
    }

    /// Completes when one of the leases is at risk, or has ended. See [`Lease::at_risk`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn at_risk(&self) {
        drop(select_all(self.leases().map(|lease| Box::pin(lease.at_risk()))).await);
    }

    /// Extends all leases to their requested lengths, in the time of one round trip. Needed only
    /// for leases that are not [renewed](crate::RenewalPolicy) by the client.
    ///
    /// # Errors, Cancel safety
    ///
    /// As [`Lease::renew`], for the first that is lost, or otherwise for the first that failed.
    pub async fn renew(&self) -> Result<()> {
        let renewed = join_all(self.leases().map(Lease::renew)).await;
        let failures = renewed.into_iter().filter_map(Result::err);
        let worst = failures.min_by_key(|error| error.kind() != ErrorKind::LeaseLost);
        worst.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
