//! The actions of a client's users: request, wait, give up, hold, write, renew, release, forget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::future::{Either, select};
use rwlease::{
    Client, ErrorKind, Fairness, Lease, LockMode, ReadGuard, Redlock, ReleaseOutcome,
    RenewalPolicy, Slot, UpgradeAttempt, WriteGuard,
};
use testkit::SimulatedHost;

use crate::census::Census;
use crate::ledger::{Book, Claim};
use crate::plan::{Fault, LEASES_MS, Plan, SEMAPHORE};

/// The parts that all users of a client share.
#[derive(Clone)]
pub struct Users {
    pub plan: Arc<Plan>,
    pub locks: Client,
    /// A quorum of three members, if the run is about quorums.
    pub quorum: Option<Redlock>,
    pub host: SimulatedHost,
    pub book: Book,
    pub census: Census,
    pub stops: Arc<AtomicBool>,
}

/// A held lock.
#[derive(Clone, Copy)]
pub struct HeldLock {
    pub lock: usize,
    pub is_replicated: bool,
    /// It has kept the token that it had as a writer.
    pub was_writer: bool,
    /// When it was requested.
    pub since: Duration,
}

impl Users {
    /// Runs one user, until it is told to stop.
    pub async fn live(self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let caches = self.quorum.is_none() && rng.f64() < self.plan.caching;
        let cached = if caches { self.cached_handles() } else { Vec::new() };
        while !self.stops.load(Ordering::Relaxed) {
            self.host.sleep(Duration::from_micros(rng.u64(100..150_000))).await;
            let lock = rng.usize(0..self.plan.locks);
            if let Some(quorum) = &self.quorum {
                self.request_most(&mut rng, quorum, lock).await;
                continue;
            }
            match rng.u8(0..66) {
                5..40 if caches => self.use_cached(&mut rng, &cached[lock], lock).await,
                0 => self.crowd(&mut rng, lock).await,
                1..5 => self.several(&mut rng).await,
                40..45 => self.reenter(&mut rng, lock).await,
                45..48 => self.take_up(&mut rng).await,
                48..50 => self.campaign(&mut rng, lock).await,
                60.. => self.take_permits(&mut rng).await,
                _ => self.request(&mut rng, lock).await,
            }
        }
    }

    async fn request(&self, rng: &mut Rng, lock: usize) {
        let rwlock = self.locks.rwlock(name(lock)).unwrap();
        let lease = Duration::from_millis(rng.u64(LEASES_MS));
        let renewal = [
            RenewalPolicy::Automatic,
            RenewalPolicy::Automatic,
            RenewalPolicy::Limited(1),
            RenewalPolicy::Manual,
        ][rng.usize(0..4)];
        let fairness = if rng.u8(0..8) == 0 { Fairness::ReadersFirst } else { Fairness::PhaseFair };
        let timeout = Duration::from_millis(rng.u64(20..6_000));
        let replicas = u32::from(rng.f64() < self.plan.replicated);
        let longest = [2_000, 50_000, 1_000_000][rng.usize(0..3)];
        let wait_limit = self.wait_limit(rng, longest);
        let held = HeldLock {
            lock,
            is_replicated: replicas > 0,
            was_writer: false,
            since: self.book.now(),
        };
        match rng.u8(0..40) {
            0..4 => {
                let request = rwlock.try_read().lease(lease).renewal(renewal).fairness(fairness);
                let request = request.min_replicas(replicas).into_future();
                if let Some(guard) = self.tried(lock, LockMode::Read, wait_limit, request).await {
                    self.read(rng, held, guard).await;
                }
            }
            4..8 => {
                let request = rwlock.try_write().lease(lease).renewal(renewal);
                let request = request.min_replicas(replicas).into_future();
                if let Some(guard) = self.tried(lock, LockMode::Write, wait_limit, request).await {
                    self.write(rng, held, guard).await;
                }
            }
            8..24 => {
                let request = rwlock.read().lease(lease).renewal(renewal).fairness(fairness);
                let request = request.timeout(timeout).min_replicas(replicas).into_future();
                if let Some(guard) = self.asked(&[lock], wait_limit, request).await {
                    self.read(rng, held, guard).await;
                }
            }
            24..35 => {
                let request = rwlock.write().lease(lease).renewal(renewal).fairness(fairness);
                let request = request.timeout(timeout).min_replicas(replicas).into_future();
                if let Some(guard) = self.asked(&[lock], wait_limit, request).await {
                    self.write(rng, held, guard).await;
                }
            }
            35..38 => {
                let request = rwlock.write().lease(lease); // waits without a limit
                let request = request.into_future();
                if let Some(guard) = self.asked(&[lock], wait_limit, request).await {
                    self.write(rng, HeldLock { is_replicated: false, ..held }, guard).await;
                }
            }
            38 => {
                if let Ok(Some(_)) = rwlock.revoke().await {
                    self.census.count("revoked");
                }
            }
            _ => {
                if let Ok(Some(_)) = rwlock.force_release().await {
                    self.census.count("released by force");
                }
            }
        }
    }

    /// Requests a lock on most of the members.
    async fn request_most(&self, rng: &mut Rng, quorum: &Redlock, lock: usize) {
        let writes = rng.bool();
        let request = match writes {
            true => quorum.write(name_at_members(lock)),
            false => quorum.read(name_at_members(lock)),
        };
        let request = request
            .lease(Duration::from_millis(rng.u64(LEASES_MS)))
            .timeout(Duration::from_millis(rng.u64(20..6_000)));
        let wait_limit = self.wait_limit(rng, 1_000_000);
        let since = self.book.now();
        let Some(guard) = self.asked(&[lock], wait_limit, request.into_future()).await else {
            return;
        };
        self.census.count("most members were held");
        let guard = Arc::new(guard);
        let mode = if writes { LockMode::Write } else { LockMode::Read };
        let token = guard.fencing_token().map_or(0, u64::from);
        let claim = Claim { is_shared: writes, ..self.claim(lock, mode, token, since) };
        let number = self.book.enter(claim, Arc::clone(&guard));
        let longest = [300, 20_000, 400_000, 2_500_000][rng.usize(0..4)];
        self.host.sleep(Duration::from_micros(rng.u64(1..longest))).await;
        if writes {
            self.book.write(number);
        }
        self.book.leave(number);
        if let Some(guard) = Arc::into_inner(guard).filter(|_| !self.drops(rng)) {
            self.count(guard.release().await);
        }
    }

    /// Requests several locks, named in any order. Some requests wait without a limit. Two such
    /// requests must not wait for each other.
    async fn several(&self, rng: &mut Rng) {
        let mut locks: Vec<usize> = (0..self.plan.locks).collect();
        rng.shuffle(&mut locks);
        locks.truncate(rng.usize(1..=self.plan.locks));
        let mut request = self.locks.multi_lock().lease(Duration::from_millis(rng.u64(LEASES_MS)));
        for lock in &locks {
            request = match rng.bool() {
                true => request.read(name(*lock)),
                false => request.write(name(*lock)),
            };
        }
        if rng.bool() {
            request = request.timeout(Duration::from_millis(rng.u64(20..6_000)));
        }
        let wait_limit = self.wait_limit(rng, 1_000_000);
        let since = self.book.now();
        let guard = self.asked(&locks, wait_limit, request.into_future()).await;
        // Some may have been held meanwhile, and released again.
        locks.iter().for_each(|lock| self.book.attempted(*lock, since));
        let Some(guard) = guard else {
            return;
        };
        self.census.count("several were held");
        let numbers: Vec<u64> =
            guard.leases().map(|lease| self.enter_by_name(lease, since)).collect();
        for (number, lease) in numbers.iter().zip(guard.leases()) {
            self.hold(rng, lease, *number, lease.mode() == Some(LockMode::Write)).await;
        }
        numbers.into_iter().for_each(|number| self.book.leave(number));
        if !self.drops(rng) {
            self.count(guard.release().await);
        }
    }

    /// Requests many reads at once, and lets their leases end without a release.
    async fn crowd(&self, rng: &mut Rng, lock: usize) {
        let rwlock = self.locks.rwlock(name(lock)).unwrap();
        let lease = Duration::from_millis(rng.u64(LEASES_MS));
        let since = self.book.now();
        let requests = (0..rng.usize(20..50)).map(|_| {
            let request = rwlock.read().lease(lease).renewal(RenewalPolicy::Manual);
            request.timeout(Duration::from_millis(3_000)).into_future()
        });
        let asks = self.book.asks(&[lock]);
        let guards = futures::future::join_all(requests).await;
        self.book.has_asked(asks);
        self.book.attempted(lock, since);
        let held = HeldLock { lock, is_replicated: false, was_writer: false, since };
        let numbers: Vec<u64> =
            guards.iter().flatten().map(|guard| self.enter(held, guard)).collect();
        self.host.sleep(lease.mul_f64(rng.f64() * 1.5)).await;
        numbers.into_iter().for_each(|number| self.book.leave(number));
    }

    /// Waits for a request for these locks. Returns the guard, if it was granted.
    pub async fn asked<T>(
        &self,
        locks: &[usize],
        wait_limit: Option<Duration>,
        request: impl Future<Output = rwlease::Result<T>> + Send + Unpin,
    ) -> Option<T> {
        let (since, number) = (self.book.now(), self.book.asks(locks));
        let granted = self.within(wait_limit, request).await;
        self.book.has_asked(number);
        if granted.is_none() {
            locks.iter().for_each(|lock| self.book.attempted(*lock, since));
        }
        granted
    }

    /// Makes a try. Returns the guard, if it was granted.
    pub async fn tried<T>(
        &self,
        lock: usize,
        mode: LockMode,
        wait_limit: Option<Duration>,
        request: impl Future<Output = rwlease::Result<Option<T>>> + Send + Unpin,
    ) -> Option<T> {
        let since = self.book.now();
        let granted = self.asked(&[lock], wait_limit, request).await?;
        if granted.is_none() {
            self.book.refused(lock, mode, since, self.plan.caching > 0.0);
        }
        granted
    }

    /// The outcome of a request, unless its caller drops it first.
    pub async fn within<T>(
        &self,
        wait_limit: Option<Duration>,
        request: impl Future<Output = rwlease::Result<T>> + Send + Unpin,
    ) -> Option<T> {
        let outcome = match wait_limit {
            None => request.await,
            Some(wait_limit) => {
                match select(request, Box::pin(self.host.sleep(wait_limit))).await {
                    Either::Left((outcome, _)) => outcome,
                    Either::Right(_) => {
                        self.census.count(Fault::Cancel.name());
                        return None;
                    }
                }
            }
        };
        match outcome {
            Ok(got) => Some(got),
            Err(error) => {
                self.census.count(match error.kind() {
                    ErrorKind::TimedOut => "a wait timed out",
                    ErrorKind::Unavailable => "unavailable",
                    ErrorKind::Rejected => "refused by the server",
                    ErrorKind::Cancelled => "cancelled by shutdown",
                    ErrorKind::LeaseLost => "a ticket was refused",
                    _ => "another error",
                });
                None
            }
        }
    }

    async fn read(&self, rng: &mut Rng, held: HeldLock, guard: ReadGuard) {
        let number = self.enter(held, &guard);
        self.hold(rng, &guard, number, false).await;
        if rng.u8(0..6) == 0 {
            return self.upgrade(rng, held, number, guard).await;
        }
        let next = rng.u8(0..12);
        if next < 2 {
            self.book.keep(guard.id().to_string()); // its client forgets the acquisition
        }
        self.book.leave(number);
        match next {
            0 => return self.count_kept(guard.let_expire().await),
            1 => return self.hand_on(rng, held.lock, guard.into_transfer()).await,
            _ => {}
        }
        if !self.drops(rng) {
            self.give_back(guard.id().to_string(), guard.release()).await;
        }
    }

    /// Upgrades to a writer, if possible. The user still reads while the upgrade waits, and after a
    /// refusal.
    async fn upgrade(&self, rng: &mut Rng, held: HeldLock, number: u64, mut guard: ReadGuard) {
        for _ in 0..rng.u8(1..4) {
            let since = self.book.now();
            let held = HeldLock { was_writer: false, since, ..held };
            let asks = self.book.asks(&[held.lock]);
            match self.become_writer(rng, guard).await {
                Some(UpgradeAttempt::Upgraded(guard)) => {
                    self.book.has_asked(asks);
                    self.census.count("upgraded");
                    self.book.leave(number);
                    let number = self.enter(held, &guard);
                    self.hold(rng, &guard, number, true).await;
                    self.book.leave(number);
                    return self.give_back(guard.id().to_string(), guard.release()).await;
                }
                Some(UpgradeAttempt::OtherReaders(reading)) => guard = reading,
                None => {
                    self.book.has_asked(asks);
                    self.book.attempted(held.lock, since);
                    return self.book.leave(number);
                }
            }
            self.book.has_asked(asks);
            self.book.attempted(held.lock, since);
            self.census.count("read on after a refused upgrade");
            self.hold(rng, &guard, number, false).await;
        }
        self.book.leave(number);
        if !self.drops(rng) {
            self.give_back(guard.id().to_string(), guard.release()).await;
        }
    }

    /// Returns `None` if the user gave up, which drops its guard.
    async fn become_writer(&self, rng: &mut Rng, guard: ReadGuard) -> Option<UpgradeAttempt> {
        let refused = if rng.bool() {
            match guard.try_upgrade().await {
                Ok(outcome) => return Some(outcome),
                Err(refused) => refused,
            }
        } else {
            let timeout = Duration::from_millis(rng.u64(20..3_000));
            let request = guard.upgrade().timeout(timeout).into_future();
            let wait_limit = Duration::from_micros(rng.u64(100..1_000_000));
            let cancels = self.plan.has(Fault::Cancel) && rng.u8(0..4) == 0;
            let wait_limit = if cancels { wait_limit } else { Duration::MAX };
            match select(request, Box::pin(self.host.sleep(wait_limit))).await {
                Either::Left((Ok(guard), _)) => {
                    return Some(UpgradeAttempt::Upgraded(guard));
                }
                Either::Left((Err(refused), _)) => refused,
                Either::Right(_) => return None,
            }
        };
        self.census.count(match refused.kind() {
            ErrorKind::UpgradeConflict => "an upgrade had a rival",
            ErrorKind::LeaseRevoked => "a read that was revoked was not upgraded",
            _ => "an upgrade failed",
        });
        Some(UpgradeAttempt::OtherReaders(refused.into_guard()))
    }

    async fn write(&self, rng: &mut Rng, held: HeldLock, guard: WriteGuard) {
        let number = self.enter(held, &guard);
        self.hold(rng, &guard, number, true).await;
        let next = rng.u8(0..6);
        let (keeps, hands_on) = (next == 2 && rng.bool(), next == 3 && rng.bool());
        let id = guard.id().to_string();
        if keeps || hands_on {
            self.book.keep(id.clone());
        }
        self.book.leave(number);
        if next == 0 {
            self.to_and_fro(rng, held, guard).await;
        } else if next == 1 {
            let held = HeldLock { was_writer: true, since: self.book.now(), ..held };
            if let Ok(guard) = guard.downgrade().await {
                self.census.count("downgraded");
                let number = self.enter(held, &guard);
                if rng.u8(0..3) > 0 {
                    self.hold(rng, &guard, number, false).await;
                }
                if rng.bool() {
                    return self.upgrade(rng, held, number, guard).await;
                }
                self.book.leave(number);
                self.give_back(guard.id().to_string(), guard.release()).await;
            }
        } else if keeps {
            self.count_kept(guard.let_expire().await);
        } else if hands_on {
            self.hand_on(rng, held.lock, guard.into_transfer()).await;
        } else if !self.drops(rng) {
            self.give_back(id, guard.release()).await;
        }
    }

    /// Reads and writes in turn, so that late calls meet another token.
    async fn to_and_fro(&self, rng: &mut Rng, held: HeldLock, mut guard: WriteGuard) {
        for _ in 0..rng.u8(4..24) {
            let Ok(reading) = guard.downgrade().await else {
                return;
            };
            self.census.count("downgraded");
            let held = HeldLock { since: self.book.now(), ..held };
            let asks = self.book.asks(&[held.lock]);
            let upgraded = reading.upgrade().timeout(Duration::from_secs(1)).await;
            self.book.has_asked(asks);
            let Ok(writing) = upgraded else {
                return self.book.attempted(held.lock, held.since);
            };
            self.census.count("upgraded");
            guard = writing;
            let number = self.enter(held, &guard);
            self.host.sleep(Duration::from_micros(rng.u64(100..20_000))).await;
            self.book.write(number);
            self.book.leave(number);
        }
        self.give_back(guard.id().to_string(), guard.release()).await;
    }

    pub async fn hold(&self, rng: &mut Rng, lease: &Lease, number: u64, writes: bool) {
        let longest = [300, 20_000, 400_000, 2_500_000][rng.usize(0..4)];
        for _ in 0..rng.u8(1..4) {
            self.host.sleep(Duration::from_micros(rng.u64(1..longest))).await;
            self.census.count_if("a lease was lost", !lease.is_held());
            if writes {
                self.book.write(number);
            }
            if rng.u8(0..6) == 0 {
                let _ = lease.renew().await;
            }
        }
    }

    pub fn enter(&self, held: HeldLock, lease: &Lease) -> u64 {
        let mode = lease.mode().unwrap_or(LockMode::Read);
        let token = lease.fencing_token().map_or(0, u64::from);
        let claim = Claim {
            is_replicated: held.is_replicated,
            is_shared: held.was_writer || mode == LockMode::Write,
            ..self.claim(held.lock, mode, token, held.since)
        };
        self.book.enter(claim, lease.clone())
    }

    /// The claim of a user with a lease of its own.
    pub fn claim(&self, lock: usize, mode: LockMode, token: u64, since: Duration) -> Claim {
        Claim {
            lock,
            host: self.host.number(),
            mode,
            token,
            is_replicated: false,
            is_shared: false,
            is_handed: false,
            permits: 0,
            since,
        }
    }

    /// How long a caller waits that drops its request, in a quarter of the requests.
    pub fn wait_limit(&self, rng: &mut Rng, longest_us: u64) -> Option<Duration> {
        let cancels = self.plan.has(Fault::Cancel) && rng.u8(0..4) == 0;
        cancels.then(|| Duration::from_micros(rng.u64(1..longest_us)))
    }

    fn enter_by_name(&self, lease: &Lease, since: Duration) -> u64 {
        let lock = (0..self.plan.locks).find(|lock| name(*lock) == lease.name());
        let lock = lock.expect("one of those that were requested");
        let held = HeldLock { lock, is_replicated: false, was_writer: false, since };
        self.enter(held, lease)
    }

    pub fn drops(&self, rng: &mut Rng) -> bool {
        let drops = self.plan.has(Fault::Drop) && rng.u8(0..3) == 0;
        self.census.count_if(Fault::Drop.name(), drops);
        drops
    }

    fn count_kept(&self, kept: rwlease::Result<Duration>) {
        self.census.count(if kept.is_ok() { "kept to its end" } else { "could not be kept" });
    }

    /// Releases the lock of this acquisition.
    pub async fn give_back(
        &self,
        id: String,
        release: impl Future<Output = rwlease::Result<ReleaseOutcome>>,
    ) {
        let released = release.await;
        if matches!(released, Ok(ReleaseOutcome::Released)) {
            self.book.given_back(&id);
        }
        self.count(released);
    }

    pub fn count(&self, released: rwlease::Result<ReleaseOutcome>) {
        match released {
            Ok(ReleaseOutcome::Released) => self.census.count("released"),
            Ok(ReleaseOutcome::AlreadyLost) => self.census.count("released too late"),
            _ => self.census.count("release unknown"),
        }
    }
}

/// The name of a lock. Two locks share each slot. The semaphore shares that of the first lock.
pub fn name(lock: usize) -> String {
    if lock == SEMAPHORE {
        return "permits:{0}".into();
    }
    format!("{lock}:{{{}}}", lock / 2)
}

/// A lock's key.
pub fn key(lock: usize) -> String {
    format!("rwlease:{}", name(lock))
}

/// The prefixes of the keys of a quorum's members. The members are the masters of the one cluster.
pub const MEMBERS: [&str; 3] = ["m0:", "m1:", "m2:"];

/// The name of a lock in a quorum. Each member's key of it is on another master.
fn name_at_members(lock: usize) -> String {
    let master = |key: &str| usize::from(Slot::of(key.as_bytes()).get()) * MEMBERS.len() / 16_384;
    let is_apart = |name: &String| {
        (0..MEMBERS.len()).all(|at| master(&format!("{}{name}", MEMBERS[at])) == at)
    };
    let names = (0..).map(|number| format!("{lock}-{number}"));
    names.into_iter().find(is_apart).expect("one in 27")
}
