//! Users of cached locks.

use std::time::Duration;

use fastrand::Rng;
use rwlease::guard::{CachedReadGuard, CachedWriteGuard, LeaseWatcher};
use rwlease::{CachedRwLock, LockMode};

use crate::ledger::Claim;
use crate::plan::Fault;
use crate::users::{Users, name};

/// One use of a cached lock, and when it was requested.
#[derive(Clone, Copy)]
struct CachedUse<'a> {
    handle: &'a CachedRwLock,
    lock: usize,
    since: Duration,
}

impl Users {
    /// The cached handles of a user.
    pub fn cached_handles(&self) -> Vec<CachedRwLock> {
        let cached = |lock| self.locks.rwlock(name(lock)).unwrap().cached().unwrap();
        (0..self.plan.locks).map(cached).collect()
    }

    /// Uses one lock a few times with short pauses, so that it is cached.
    pub async fn use_cached(&self, rng: &mut Rng, handle: &CachedRwLock, lock: usize) {
        for _ in 0..rng.u8(1..12) {
            let cancels = self.plan.has(Fault::Cancel) && rng.u8(0..6) == 0;
            let wait_limit = cancels.then(|| Duration::from_micros(rng.u64(1..300_000)));
            let timeout = Duration::from_millis(rng.u64(20..6_000));
            let used = CachedUse { handle, lock, since: self.book.now() };
            let choice = rng.u8(0..12);
            if matches!(choice, 0 | 2..8) {
                let guard = match choice {
                    0 => self.tried(lock, LockMode::Read, wait_limit, handle.try_read()).await,
                    _ => self.asked(&[lock], wait_limit, handle.read().timeout(timeout)).await,
                };
                if let Some(guard) = guard {
                    self.check_contact(used);
                    self.read_cached(rng, used, guard).await;
                }
            } else {
                let guard = match choice {
                    1 => self.tried(lock, LockMode::Write, wait_limit, handle.try_write()).await,
                    _ => self.asked(&[lock], wait_limit, handle.write().timeout(timeout)).await,
                };
                if let Some(guard) = guard {
                    self.check_contact(used);
                    self.write_cached(rng, used, guard).await;
                }
            }
            let pause = [1, 1_000, 30_000, 400_000][rng.usize(0..4)];
            self.host.sleep(Duration::from_micros(rng.u64(0..pause))).await;
        }
    }

    async fn read_cached(&self, rng: &mut Rng, used: CachedUse<'_>, guard: CachedReadGuard) {
        let (number, watch) = self.believe(used, LockMode::Read, guard.watch());
        self.hold_cached(rng, used.handle, &watch, number, false).await;
        self.book.leave(number);
        if self.drops(rng) {
            drop(guard);
        } else {
            self.count(guard.release().await);
        }
        self.book.check_over(&watch);
    }

    async fn write_cached(&self, rng: &mut Rng, used: CachedUse<'_>, guard: CachedWriteGuard) {
        let (number, watch) = self.believe(used, LockMode::Write, guard.watch());
        self.hold_cached(rng, used.handle, &watch, number, true).await;
        self.book.leave(number);
        if rng.u8(0..5) == 0 {
            let used = CachedUse { since: self.book.now(), ..used };
            if let Ok(guard) = guard.downgrade().await {
                self.census.count("a cached write was downgraded");
                self.read_cached(rng, used, guard).await;
            }
        } else if self.drops(rng) {
            drop(guard);
        } else {
            self.count(guard.release().await);
        }
        self.book.check_over(&watch);
    }

    fn check_contact(&self, used: CachedUse<'_>) {
        self.book.check_contact(used.lock, used.since, &self.locks.client_id());
    }

    fn believe(
        &self,
        CachedUse { handle, lock, since }: CachedUse<'_>,
        mode: LockMode,
        watch: LeaseWatcher,
    ) -> (u64, LeaseWatcher) {
        let local = handle.cache_status();
        self.census.count_if("granted by a cached lease", local.hold.is_some());
        if local.uncached_reason.is_some() {
            self.census.count("a cached lock was plain for a while");
        }
        self.census.count_if("local requests waited", local.waiting > 0);
        let token = watch.fencing_token().get();
        let claim = Claim { is_shared: true, ..self.claim(lock, mode, token, since) };
        self.book.check_token(&claim);
        (self.book.enter(claim, watch.clone()), watch)
    }

    async fn hold_cached(
        &self,
        rng: &mut Rng,
        handle: &CachedRwLock,
        watch: &LeaseWatcher,
        number: u64,
        writes: bool,
    ) {
        let longest = [10, 300, 20_000, 400_000, 2_500_000][rng.usize(0..5)];
        for _ in 0..rng.u8(1..3) {
            self.host.sleep(Duration::from_micros(rng.u64(1..longest))).await;
            if !watch.is_held() {
                self.census.count("a cached lease was lost with a guard out");
                if handle.cache_status().hold.is_some() {
                    self.census.count("a cached lease was there beside guards of a lost one");
                }
            }
            if writes {
                self.book.write(number);
            }
        }
    }
}
