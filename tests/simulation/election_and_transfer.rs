//! Users that follow one another: leaders of an election, and users that hand their lock on.

use std::time::Duration;

use fastrand::Rng;
use rwlease::{LeaseTransfer, LockMode};

use crate::ledger::Claim;
use crate::plan::LEASES_MS;
use crate::users::{HeldLock, Users, name};

impl Users {
    /// Campaigns in the lock's election, and leads: a leader is a writer, beside the other users.
    /// If a server names a leader, its term is a token that the server has minted.
    pub async fn campaign(&self, rng: &mut Rng, lock: usize) {
        let leader = self.locks.election(name(lock)).unwrap();
        let lease = Duration::from_millis(rng.u64(LEASES_MS));
        let wait_limit = self.wait_limit(rng, 1_000_000);
        let since = self.book.now();
        let lead = if rng.u8(0..4) == 0 {
            let request = leader.try_campaign().lease(lease);
            self.tried(lock, LockMode::Write, wait_limit, request.into_future()).await
        } else {
            let timeout = Duration::from_millis(rng.u64(20..6_000));
            let request = leader.campaign().lease(lease).timeout(timeout);
            self.asked(&[lock], wait_limit, request.into_future()).await
        };
        let Some(lead) = lead else { return };
        self.census.count("led");
        let held = HeldLock { lock, is_replicated: false, was_writer: false, since };
        let number = self.enter(held, &lead);
        self.hold(rng, &lead, number, true).await;
        if rng.u8(0..3) == 0
            && let Ok(Some(current)) = leader.leader().await
        {
            self.census.count("a leader was named");
            self.book.check_term(lock, current.term.get());
        }
        self.book.leave(number);
        if !self.drops(rng) {
            self.count(lead.resign().await);
        }
    }

    /// Hands the lock on to any user, unless the call is cancelled first.
    pub async fn hand_on(
        &self,
        rng: &mut Rng,
        lock: usize,
        handing: impl Future<Output = rwlease::Result<LeaseTransfer>> + Send,
    ) {
        let wait_limit = self.wait_limit(rng, 50_000);
        if let Some(ticket) = self.within(wait_limit, Box::pin(handing)).await {
            self.census.count("handed on");
            self.book.post(lock, ticket);
        }
    }

    /// Takes up a lock that a user of any client has handed on. A copy of the ticket may be used
    /// again, and is refused.
    pub async fn take_up(&self, rng: &mut Rng) {
        let Some((lock, ticket)) = self.book.ticket(rng.u8(0..4) == 0) else {
            return;
        };
        let since = self.book.now();
        let wait_limit = self.wait_limit(rng, 50_000);
        let request =
            self.locks.accept_transfer(&ticket).lease(Duration::from_millis(rng.u64(LEASES_MS)));
        let taken = self.asked(&[lock], wait_limit, request.into_future()).await;
        // It continues the history of the lease that was handed on.
        self.book.attempted(lock, since);
        let Some(guard) = taken else {
            return;
        };
        self.census.count("taken up");
        let claim = self.claim(lock, ticket.mode(), ticket.fencing_token().get(), since);
        let claim = Claim { is_shared: true, is_handed: true, ..claim };
        let number = self.book.enter(claim, (*guard).clone());
        self.hold(rng, &guard, number, ticket.mode() == LockMode::Write).await;
        let hands_on = rng.u8(0..4) == 0;
        if hands_on {
            self.book.keep(guard.id().to_string());
        }
        self.book.leave(number);
        if hands_on {
            return self.hand_on(rng, lock, guard.into_transfer()).await;
        }
        if !self.drops(rng) {
            self.count(guard.release().await);
        }
    }
}
