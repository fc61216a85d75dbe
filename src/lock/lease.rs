//! A lease as its holder reads, watches and renews it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tokio_util::sync::CancellationToken;

use crate::client::ClientInner;
use crate::client::acquisition::{Acquisition, AcquisitionEvent, ChangeKind, HeldLease};
use crate::client::lease_options::WaitPolicy;
use crate::client::{acquire_task, manual_renewal};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::LockMode;
use crate::slot::Slot;

/// The state of a lease, as far as this client can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease is valid, and its renewals succeed.
    Held,
    /// The lease is valid but is not being extended: renewals fail or are late, or it was revoked.
    /// It may be lost soon.
    Uncertain,
    /// The lease has ended, its guard has begun to release it, or the server says that another
    /// acquisition holds the lock. Stop: the fencing token is stale.
    Lost,
}

/// A lease on a lock. Guards deref to it. A clone can be passed to other code, and does not keep
/// the lock.
///
/// For every clone the lease ends when its guard is released or dropped, before anything is sent:
/// the server may grant the lock to others before its answer arrives. A downgrade likewise makes
/// the mode of every clone a read before anything is sent.
///
/// The deadline counts from the moment when the granted request was sent, less a margin, by a clock
/// that also runs while the machine is suspended. That of a pushed grant comes from a bound of the
/// server's clock, less the margin. So the lease ends here before it ends at the server, whatever
/// the network did. A stopped process learns of the loss only when it runs again; until then only
/// the [token](Lease::token) protects the data.
///
/// The clock is `CLOCK_BOOTTIME` on Linux and Android. Elsewhere it is that of
/// [`std::time::Instant`], which may stand still during a suspend. The library assumes that the
/// clock counts all time that passes. In a virtual machine that a hypervisor pauses or restores, it
/// may not: then a lease seems valid for that much longer, and again only the token protects the
/// data.
///
/// The [margin](crate::Builder::margin) covers two differences that the client cannot see:
///
/// - The local clock and the server's run at slightly different speeds. A bad clock, off by 200
///   parts in a million, loses 6 ms in a lease of 30 s.
/// - When a lock moves to another server, by a failover or with its slot, that server's clock
///   judges the deadline. The clocks of two servers may differ by at most the margin.
#[derive(Clone)]
pub struct Lease {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) acquisition: Arc<Acquisition>,
}

impl Lease {
    pub(crate) fn new(client: Arc<ClientInner>, acquisition: Arc<Acquisition>) -> Self {
        Lease { client, acquisition }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.acquisition.lock.name
    }

    /// The id of this acquisition on the server. A [`Status`](crate::Status) names it, and it is
    /// the value of a [`Mutex`](crate::Mutex). It is never used again.
    pub fn id(&self) -> &str {
        self.acquisition.id.as_str()
    }

    /// The lock's slot.
    pub fn slot(&self) -> Slot {
        self.acquisition.lock.slot
    }

    /// The fencing token: greater than all tokens that this lock gave out before.
    ///
    /// Pass it to the store that the lock protects. The store must refuse writes with a token lower
    /// than the greatest it has seen. Zero once the guard is gone, and for a
    /// [`Mutex`](crate::Mutex), which has no tokens.
    pub fn token(&self) -> u64 {
        self.with(|holding| holding.token).unwrap_or(0)
    }

    /// Whether the lock is held for reading or for writing, or `None` once the guard is released or
    /// dropped. Permits of a [`Semaphore`](crate::Semaphore) are shared, so they count as
    /// [`LockMode::Read`].
    ///
    /// From the call of a downgrade on it is a read. The write guard of a
    /// [`Reentrant`](crate::Reentrant) that is dropped while read guards are left begins a
    /// downgrade, too. If the same owner writes again before the downgrade is sent, it is cancelled
    /// and the mode is a write again. Nobody else had the lock meanwhile.
    pub fn mode(&self) -> Option<LockMode> {
        self.with(HeldLease::visible_mode)
    }

    /// The time left of the lease, less the margin, computed now. Zero if it is lost.
    ///
    /// After a wait it can be as short as the [claim window](crate::Builder::claim_window) less the
    /// margin, 1 s by default. The first renewal is sent when the guard is returned, and makes it a
    /// full lease one round trip later.
    pub fn remaining(&self) -> Duration {
        self.with(|holding| match holding.is_lost() {
            true => Duration::ZERO,
            false => holding.deadline.saturating_duration_since(self.client.clock.now()),
        })
        .unwrap_or_default()
    }

    /// Whether the lease is valid, computed now: [`Held`](LeaseState::Held) or
    /// [`Uncertain`](LeaseState::Uncertain).
    pub fn is_held(&self) -> bool {
        self.state() != LeaseState::Lost
    }

    /// The state of the lease, computed now.
    pub fn state(&self) -> LeaseState {
        self.with(|holding| {
            // Read while the state is locked, like the time of each event, so that no observer says
            // held after another one has said lost.
            let now = self.client.clock.now();
            match holding {
                lost if !lost.is_held(now) => LeaseState::Lost,
                shaky if shaky.is_at_risk(now) => LeaseState::Uncertain,
                _ => LeaseState::Held,
            }
        })
        .unwrap_or(LeaseState::Lost)
    }

    /// Completes when the lease is lost, or when its guard begins to release it. While the runtime
    /// runs, that is before the server grants the lock to anybody else.
    ///
    /// A timer of the runtime wakes it, which is accurate to a millisecond. The margin of a lease
    /// below some 40 ms is less than two milliseconds, so with such a lease it can complete after
    /// the server's deadline. [`state`](Lease::state) and [`remaining`](Lease::remaining) read the
    /// clock and do not have this limit.
    ///
    /// A lease is also lost when a renewal is answered with another token, or when the server
    /// answers an upgrade or a downgrade that it has no lease with this token. If the server has
    /// another lease of the same acquisition, the client releases that.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            let mut changed = std::pin::pin!(self.acquisition.changed.notified());
            changed.as_mut().enable();
            let Some((ends, lost)) = self.with(|holding| (holding.deadline, holding.is_lost()))
            else {
                return;
            };
            if lost || self.client.clock.now() >= ends {
                return;
            }
            let sleep = self.client.clock.sleep_until(ends);
            if let Either::Left((_, sleep)) = select(changed, sleep).await {
                drop(sleep);
            }
        }
    }

    /// A token that is cancelled when the lease is lost or its guard begins to release it, for
    /// tasks that must not outlive the lease.
    ///
    /// Cancelling it yourself affects nobody else, and does not release the lease.
    pub fn cancellation(&self) -> CancellationToken {
        let token = self.acquisition.cancellation().child_token();
        if !self.is_held() {
            token.cancel();
        }
        token
    }

    /// Extends the lease to its requested length, counted from now. Needed only for leases that are
    /// not [renewed](crate::RenewalPolicy) by the client. One round trip.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when the lease is lost; [`Revoked`](ErrorKind::Revoked) when it
    /// was revoked, and ends at its deadline. After [`Unavailable`](ErrorKind::Unavailable), when
    /// the server did not answer, and [`Refused`](ErrorKind::Refused), when it refused, the lease
    /// is unchanged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may or may not carry out the renewal. The lease here is
    /// unchanged.
    pub async fn renew(&self) -> Result<()> {
        manual_renewal::renew(&self.client, &self.acquisition).await.map(drop)
    }

    /// Upgrades to a write. False if it was a try and others read.
    pub(crate) async fn become_writer(&self, policy: WaitPolicy) -> Result<bool> {
        acquire_task::upgrade(&self.client, &self.acquisition, policy).await
    }

    /// Whether it is a write and stays one. A downgrade that has not been sent is cancelled.
    pub(crate) fn stays_writer(&self) -> bool {
        self.client.apply(&self.acquisition, AcquisitionEvent::CancelDowngrade);
        self.with(|holding| holding.mode == LockMode::Write && holding.pending_change().is_none())
            .unwrap_or(false)
    }

    /// Waits until the worker has turned the write into a read, or the downgrade was cancelled.
    pub(crate) async fn downgraded(&self) -> Result<()> {
        self.free_of(|pending| pending == ChangeKind::Downgrade).await
    }

    /// Waits until the worker has given back some of the permits.
    pub(crate) async fn shrunk(&self) -> Result<()> {
        self.free_of(|pending| pending == ChangeKind::ReleasePermits).await
    }

    /// Waits until no change is pending.
    pub(crate) async fn unencumbered(&self) -> Result<()> {
        self.free_of(|_| true).await
    }

    async fn free_of(&self, concerns: impl Fn(ChangeKind) -> bool) -> Result<()> {
        let Lease { client, acquisition } = self;
        let until = client.clock.now().saturating_add(client.settings.call_timeout);
        let failed = |kind, message| {
            let error = client.failure_or(Error::new(kind, message));
            Err(acquisition.lock.add_context(error))
        };
        loop {
            let changed = std::pin::pin!(acquisition.changed.notified());
            let under_way = self.with(|holding| holding.pending_change().is_some_and(&concerns));
            if !self.is_held() {
                return failed(ErrorKind::Lost, "the lease is lost");
            } else if under_way != Some(true) {
                return Ok(());
            } else if client.clock.now() >= until {
                return failed(ErrorKind::Unavailable, "the slot could not be served in time");
            }
            select(changed, client.clock.sleep_until(until)).await;
        }
    }

    /// How much earlier the lease ends here than at the server.
    pub(crate) fn margin(&self) -> Duration {
        self.with(|holding| holding.margin).unwrap_or_default()
    }

    /// `None` once the guard has begun to release the lease.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&HeldLease) -> T) -> Option<T> {
        self.acquisition
            .with_lease(|holding| (!holding.is_releasing()).then(|| look(holding)))
            .flatten()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name())
            .field("mode", &self.mode())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
