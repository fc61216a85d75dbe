//! Users that acquire the same lock again while they hold it.

use std::time::Duration;

use fastrand::Rng;
use rwlease::{Lease, ReentrantOwner};

use crate::plan::LEASES_MS;
use crate::users::{HeldLock, Users, name};

impl Users {
    /// An actor of two levels, each of which acquires the same lock. The guards are dropped in any
    /// order.
    pub async fn reenter(&self, rng: &mut Rng, lock: usize) {
        let actor = self.locks.reentrant_owner();
        let held =
            HeldLock { lock, is_replicated: false, was_writer: false, since: self.book.now() };
        let rwlock = self.locks.rwlock(name(lock)).unwrap();
        let lease = Duration::from_millis(rng.u64(LEASES_MS));
        let timeout = Duration::from_millis(rng.u64(20..6_000));
        let wait_limit = self.wait_limit(rng, 1_000_000);
        if rng.bool() {
            let request = actor.write(&rwlock).lease(lease).timeout(timeout).into_future();
            if let Some(outer) = self.asked(&[lock], wait_limit, request).await {
                let number = self.enter(held, &outer);
                self.hold(rng, &outer, number, true).await;
                self.within_a_write(rng, &actor, held, number, outer).await;
            }
        } else {
            let request = actor.read(&rwlock).lease(lease).timeout(timeout).into_future();
            if let Some(outer) = self.asked(&[lock], wait_limit, request).await {
                let number = self.enter(held, &outer);
                self.hold(rng, &outer, number, false).await;
                if let Ok(inner) = actor.read(&rwlock).await {
                    self.census.count("held again");
                    self.hold(rng, &inner, number, false).await;
                    self.count(inner.release().await);
                }
                self.book.leave(number);
                self.count(outer.release().await);
            }
        }
    }

    async fn within_a_write(
        &self,
        rng: &mut Rng,
        actor: &ReentrantOwner,
        held: HeldLock,
        number: u64,
        outer: rwlease::guard::ReentrantWriteGuard,
    ) {
        let rwlock = self.locks.rwlock(name(held.lock)).unwrap();
        let Ok(inner) = actor.read(&rwlock).await else {
            self.book.leave(number);
            return self.count(outer.release().await);
        };
        self.census.count("held again");
        self.hold(rng, &inner, number, true).await;
        self.book.leave(number);
        if rng.bool() {
            self.count(inner.release().await);
            return self.count(outer.release().await);
        }
        // The last write guard is dropped, and a read guard stays.
        let held = HeldLock { was_writer: true, since: self.book.now(), ..held };
        let released = outer.release().await;
        let lease: &Lease = &inner;
        if released.is_ok() && lease.is_held() {
            self.census.count("the last write went before a read");
            let number = self.enter(held, lease);
            self.hold(rng, lease, number, false).await;
            self.book.leave(number);
        }
        self.count(released);
        self.count(inner.release().await);
    }
}
