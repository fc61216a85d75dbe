//! Users of the semaphore. In some of the runs they change its limit.

use std::time::Duration;

use fastrand::Rng;
use rwlease::{LockMode, RenewalPolicy, Semaphore, SemaphorePermit};

use crate::ledger::Claim;
use crate::plan::{LEASES_MS, SEMAPHORE};
use crate::users::{Users, name};

impl Users {
    /// Makes some requests at once, so that a queue forms.
    pub async fn take_permits(&self, rng: &mut Rng) {
        let seeds: Vec<u64> = (0..rng.usize(1..5)).map(|_| rng.u64(..)).collect();
        let requests = seeds.into_iter().map(async |seed| {
            self.request_permits(&mut Rng::with_seed(seed)).await;
        });
        futures::future::join_all(requests).await;
    }

    /// Acquires permits, and holds them.
    async fn request_permits(&self, rng: &mut Rng) {
        let Some(semaphore) = self.semaphore(rng).await else { return };
        let lease = Duration::from_millis(rng.u64(LEASES_MS));
        let renewal = [RenewalPolicy::Automatic, RenewalPolicy::Limited(1), RenewalPolicy::Manual]
            [rng.usize(0..3)];
        let replicas = u32::from(rng.f64() < self.plan.replicated);
        let timeout = Duration::from_millis(rng.u64(20..6_000));
        let wait_limit = self.wait_limit(rng, 1_000_000);
        let (permits, tries) = (rng.u32(1..=semaphore.limit()), rng.u8(0..4) == 0);
        let request =
            semaphore.acquire(permits).lease(lease).renewal(renewal).min_replicas(replicas);
        let since = self.book.now();
        let guard = if tries {
            let request = semaphore.try_acquire(permits).lease(lease).renewal(renewal);
            self.asked(&[SEMAPHORE], wait_limit, request.min_replicas(replicas).into_future())
                .await
                .flatten()
        } else {
            let request = request.timeout(timeout).into_future();
            self.asked(&[SEMAPHORE], wait_limit, request).await
        };
        let Some(guard) = guard else { return };
        let token = guard.fencing_token().get();
        let claim = self.claim(SEMAPHORE, LockMode::Read, token, since);
        let claim = Claim { is_replicated: replicas > 0, permits, ..claim };
        let number = self.book.enter(claim, (*guard).clone());
        self.hold_permits(rng, number, guard).await;
    }

    /// A handle with the semaphore's limit, unless the limit changes meanwhile, or with a guessed
    /// one. `None` if the user has changed the limit instead.
    async fn semaphore(&self, rng: &mut Rng) -> Option<Semaphore> {
        let [low, high] = self.plan.limits();
        let guess = if rng.bool() { low } else { high };
        let guessed = self.locks.semaphore(name(SEMAPHORE), guess).unwrap();
        match rng.u8(0..12) {
            0 => {
                let (from, to) = if rng.bool() { (low, high) } else { (high, low) };
                drop(self.within(None, Box::pin(guessed.set_limit(from, to))).await);
                None
            }
            1 => Some(guessed),
            _ => {
                let known = guessed.status().await.ok().and_then(|status| status.limit);
                let limit = known.unwrap_or(guessed.limit());
                Some(self.locks.semaphore(name(SEMAPHORE), limit).unwrap())
            }
        }
    }

    /// Holds permits and releases them, sometimes in parts.
    async fn hold_permits(&self, rng: &mut Rng, number: u64, mut guard: SemaphorePermit) {
        self.hold(rng, &guard, number, false).await;
        while guard.num_permits() > 1 && rng.u8(0..3) > 0 {
            let back = rng.u32(1..guard.num_permits());
            self.book.release_permits(number, guard.num_permits() - back);
            if guard.release_permits(back).await.is_err() {
                self.census.count("a part was not given back");
            }
            self.hold(rng, &guard, number, false).await;
        }
        self.book.leave(number);
        if !self.drops(rng) {
            self.give_back(guard.id().to_string(), guard.release()).await;
        }
    }
}
