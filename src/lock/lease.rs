//! A lease as its holder reads, watches and renews it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use rwlease_core::acquisition::{
    AcquisitionError, AcquisitionEvent, ChangeKind, HeldLease, WaitPolicy,
};
use rwlease_core::protocol::{CallError, Confirmation, Doubt, LockMode};
use rwlease_core::slot::Slot;
use rwlease_core::time::LocalInstant;
use tokio_util::sync::CancellationToken;

use crate::client::acquisition::Acquisition;
use crate::client::{ClientInner, acquire_task, manual_renewal};
use crate::error::{AddContext, Error, ErrorKind, Result};
use crate::fencing_token::FencingToken;
use crate::health::catch;
use crate::telemetry::callback_panicked;

/// The state of a lease, as this client sees it.
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

/// A lease on a lock: what guards deref to.
///
/// A clone can be passed to other code, and does not keep the lock.
///
/// For every clone the lease ends when its guard is released or dropped, before anything is sent:
/// the server may grant the lock to others before its answer arrives. A downgrade likewise makes
/// the mode of every clone a read before anything is sent.
///
/// The deadline counts from the moment when the granted request was sent, less a margin, by a clock
/// that also runs while the machine is suspended. The deadline of a pushed grant comes from a bound
/// of the server's clock, less the margin. So the lease ends here before it ends at the server,
/// even if the network delays messages. A stopped process learns of the loss only when it runs
/// again; until then only the [token](Lease::fencing_token) protects the data.
///
/// The clock is `CLOCK_BOOTTIME` on Linux and Android. On other systems it is the clock of
/// [`std::time::Instant`], which may stop during a suspend. The library assumes that the clock
/// counts all time that passes. In a virtual machine that a hypervisor pauses or restores, it may
/// not: then a lease seems valid for that much longer, and again only the token protects the data.
///
/// The [margin](crate::ClientBuilder::safety_margin) covers two differences that the client cannot
/// see:
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

    /// Returns the fencing token: greater than all tokens that this lock gave out before.
    ///
    /// Pass it to the store that the lock protects: see [`FencingToken`].
    ///
    /// `None` once the guard is gone, and for a [`SetNxMutex`](crate::SetNxMutex), which has no
    /// tokens. The guards of other locks have a token always: see
    /// [`WriteGuard::fencing_token`](crate::WriteGuard::fencing_token).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.with(|holding| FencingToken::from_wire(holding.token)).flatten()
    }

    /// Returns whether the lease is valid, computed now: [`Held`](LeaseState::Held) or
    /// [`Uncertain`](LeaseState::Uncertain). No round trip.
    pub fn is_held(&self) -> bool {
        self.state() != LeaseState::Lost
    }

    /// Returns the state of the lease, computed now. No round trip.
    pub fn state(&self) -> LeaseState {
        self.with(|holding| {
            // Read while the state is locked, like the time of each event, so that no observer says
            // held after another one has said lost.
            let now = self.client.clock.now();
            match holding {
                lost if !lost.is_held(now) => LeaseState::Lost,
                shaky if shaky.is_uncertain(now) => LeaseState::Uncertain,
                _ => LeaseState::Held,
            }
        })
        .unwrap_or(LeaseState::Lost)
    }

    /// Returns the time left of the lease, less the margin, computed now. Zero if it is lost.
    ///
    /// After a wait it can be as short as the [claim window](crate::ClientBuilder::claim_timeout)
    /// less the margin, 1 s by default. The first renewal is sent when the guard is returned, and
    /// makes it a full lease one round trip later.
    pub fn remaining(&self) -> Duration {
        self.with(|holding| match holding.is_lost() {
            true => Duration::ZERO,
            false => holding.deadline.saturating_duration_since(self.client.clock.now()),
        })
        .unwrap_or_default()
    }

    /// Completes when the lease is lost, or when its guard begins to release it.
    ///
    /// While the runtime runs and the server keeps the lease, that is before the server grants the
    /// lock to another client. If the server no longer has the lease (a failover, a restart, a
    /// forced release, a deleted or evicted key), this completes at the next renewal at the latest,
    /// a third of the lease later. Another client may hold the lock by then.
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
    pub async fn ended(&self) {
        self.reached(|holding| holding.deadline).await;
    }

    /// Completes when the lease is at risk: a renewal has failed or is late, and less than half of
    /// the lease is left. It completes before [`ended`](Lease::ended), or with it if the lease ends
    /// without having been at risk.
    ///
    /// A renewal is late if it has no answer a sixth of the lease after it was due. A lease of 30 s
    /// is at risk some 15 s after its last renewal, and has 14 s left. The client continues to try.
    ///
    /// Use this time to bring the work to an end that another holder can continue from: begin
    /// nothing long, finish or write down what is done, tell an operator. The lock is still held.
    /// If a later renewal succeeds, it was a false alarm: [`state`](Lease::state) is
    /// [`Held`](LeaseState::Held) again, and this method waits for the next alarm. Servers that do
    /// not answer for half of a lease cause false alarms, such as a failover, and so does a runtime
    /// that stands still.
    ///
    /// The lease of a grant that was pushed to a waiter lasts for the [claim
    /// window](crate::ClientBuilder::claim_timeout) until its first renewal is answered. If no
    /// answer comes, and the window is shorter than a sixth of the requested lease, it ends without
    /// an alarm before.
    ///
    /// A lease that was [revoked](crate::RwLock::revoke) or that nobody renews (the end of
    /// [`max_hold`](crate::Acquire::max_hold), [`RenewalPolicy::Manual`](crate::RenewalPolicy)
    /// without a failure) is not at risk: it ends as it was meant to.
    ///
    /// ```no_run
    /// # async fn example(lock: rwlease::RwLock, pages: Vec<u32>) -> rwlease::Result<()> {
    /// # async fn work(_: u32) {}
    /// let guard = lock.write().await?;
    /// for page in pages {
    ///     tokio::select! {
    ///         biased;
    ///         () = guard.at_risk() => break, // another holder continues with this page
    ///         () = work(page) => {}
    ///     }
    /// }
    /// # let _ = guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// No round trip.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn at_risk(&self) {
        self.reached(risk_or_end).await;
    }

    /// Whether it is at risk or has ended.
    pub(crate) fn is_at_risk(&self) -> bool {
        let now = self.client.clock.now();
        self.with(|holding| holding.is_lost() || now >= risk_or_end(holding)).unwrap_or(true)
    }

    /// Waits for a moment, which may change, or for the end of the lease.
    async fn reached(&self, moment: impl Fn(&HeldLease) -> LocalInstant) {
        loop {
            let mut changed = std::pin::pin!(self.acquisition.changed.notified());
            changed.as_mut().enable();
            let Some((at, lost)) = self.with(|holding| (moment(holding), holding.is_lost())) else {
                return;
            };
            if lost || self.client.clock.now() >= at {
                return;
            }
            let sleep = self.client.clock.sleep_until(at);
            if let Either::Left((_, sleep)) = select(changed, sleep).await {
                drop(sleep);
            }
        }
    }

    /// Returns a token that is cancelled when the lease is lost or its guard begins to release it,
    /// for tasks that must not outlive the lease.
    ///
    /// Cancelling it yourself affects nobody else, and does not release the lease.
    pub fn cancellation_token(&self) -> CancellationToken {
        let token = self.acquisition.cancellation_token().child_token();
        if !self.is_held() {
            token.cancel();
        }
        token
    }

    /// Calls `callback` when the lease is lost, but not if its release has begun before.
    ///
    /// The call runs in a task of the client, which also keeps other leases, so it must not block.
    /// It can wake the thread that works under the lock. If it panics, nothing else is affected.
    /// For the losses of all leases of a client, use
    /// [`ClientBuilder::on_lease_lost`](crate::ClientBuilder::on_lease_lost).
    pub fn on_lease_lost(&self, callback: impl FnOnce() + Send + 'static) {
        let lease = self.clone();
        self.client.spawn("callback of a lost lease", async move {
            lease.ended().await;
            // The guard may have been dropped between the loss and here.
            let is_lost = lease.was_lost();
            // What the callback owns is the caller's code as well: it is dropped within.
            let call = move || {
                if is_lost {
                    callback()
                }
            };
            if let Err(panic) = catch(call) {
                callback_panicked("Lease::on_lease_lost", &panic);
            }
        });
    }

    /// Extends the lease to its requested length, counted from now. One round trip.
    ///
    /// Only leases that the client does not [renew](crate::RenewalPolicy) need it.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](ErrorKind::LeaseLost) when the lease is lost;
    /// [`LeaseRevoked`](ErrorKind::LeaseRevoked) when it was revoked, and ends at its deadline.
    /// After [`Unavailable`](ErrorKind::Unavailable), when the server did not answer, and
    /// [`Rejected`](ErrorKind::Rejected), when it refused, the lease is unchanged.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the server may or may not carry out the renewal. The lease here is
    /// unchanged.
    pub async fn renew(&self) -> Result<()> {
        manual_renewal::renew(&self.client, &self.acquisition).await.map(drop)
    }

    /// Returns whether the lock is held for reading or for writing, or `None` once the guard is
    /// released or dropped.
    ///
    /// Permits of a [`Semaphore`](crate::Semaphore) are shared, so they count as
    /// [`LockMode::Read`].
    ///
    /// From the call of a downgrade on it is a read. The write guard of a
    /// [`ReentrantOwner`](crate::ReentrantOwner) that is dropped while read guards are left begins
    /// a downgrade, too. If the same owner writes again before the downgrade is sent, it is
    /// cancelled and the mode is a write again. No other client held the lock in between.
    pub fn mode(&self) -> Option<LockMode> {
        self.with(HeldLease::visible_mode)
    }

    /// Returns the lock's name, as given.
    pub fn name(&self) -> &str {
        &self.acquisition.lock.name
    }

    /// Returns the id of this acquisition on the server. It is never used again.
    ///
    /// A [`LockStatus`](crate::LockStatus) names it, and it is the value of a
    /// [`SetNxMutex`](crate::SetNxMutex).
    pub fn id(&self) -> &str {
        self.acquisition.id.as_str()
    }

    /// Returns the slot of the lock's key.
    pub fn slot(&self) -> Slot {
        self.acquisition.lock.slot
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

    /// Waits until the worker has released some of the permits.
    pub(crate) async fn shrunk(&self) -> Result<()> {
        self.free_of(|pending| pending == ChangeKind::ReleasePermits).await
    }

    /// Waits until no change is pending.
    pub(crate) async fn unencumbered(&self) -> Result<()> {
        self.free_of(|_| true).await
    }

    /// Whether the lease was lost, also if it was released since, and if the worker has not noticed
    /// the loss yet.
    pub(super) fn was_lost(&self) -> bool {
        let now = self.client.clock.now();
        self.acquisition.was_lost() || self.with(|holding| holding.has_lapsed(now)).unwrap_or(false)
    }

    /// Waits until no such change is pending. Fails if the server refuses the change after the
    /// call. The worker repeats the change even then.
    async fn free_of(&self, concerns: impl Fn(ChangeKind) -> bool) -> Result<()> {
        let Lease { client, acquisition } = self;
        let began = client.clock.now();
        let until = client.call_deadline(Confirmation::default());
        let failed = |error: Error| Err(acquisition.lock.add_context(client.failure_or(error)));
        let refusal = |holding: &HeldLease| {
            let refusal = holding.change_refusal().filter(|it| it.refused_at > began)?;
            Some(CallError::new(refusal.reason.clone(), Doubt::None))
        };
        let under_way = |holding: &HeldLease| {
            holding.pending_change().is_some_and(&concerns).then(|| refusal(holding))
        };
        loop {
            let changed = std::pin::pin!(acquisition.changed.notified());
            let pending = self.with(under_way).flatten();
            if !self.is_held() {
                return failed(AcquisitionError::LeaseLost.into());
            }
            match pending {
                None => return Ok(()),
                Some(Some(refusal)) => return failed(refusal.into()),
                Some(None) if client.clock.now() >= until => {
                    let message =
                        "the change of the lease did not complete within the call timeout";
                    return failed(Error::new(ErrorKind::Unavailable, message));
                }
                Some(None) => {}
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

/// When a lease is at risk, or ends without an alarm.
fn risk_or_end(holding: &HeldLease) -> LocalInstant {
    holding.at_risk_from().map_or(holding.deadline, |from| from.min(holding.deadline))
}

debug_fields!(|lease| Lease {
    name: lease.name(),
    mode: lease.mode(),
    fencing_token: lease.fencing_token(),
    state: lease.state(),
    ..
});
