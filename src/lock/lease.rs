//! A lease as its holder sees it: it can be read, watched and made longer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::client::acquisition::{Acquisition, Event, Holding, Transition};
use crate::client::request::WaitPolicy;
use crate::client::{acquire, renewal};
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::Mode;
use crate::slot::Slot;

/// How a lease stands, as far as this client can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease is good, and so were its renewals.
    Held,
    /// The lease is good, but it is not being made longer: renewals fail or are late, it was
    /// revoked, or it is being released. It may be lost soon.
    Uncertain,
    /// The lease has ended, or the server says that it is another's. Stop: the fencing token is
    /// stale.
    Lost,
}

/// A lease on a lock, as its holder sees it. Guards have it; a clone can be passed to other code,
/// and does not keep the lock.
///
/// It is counted by a clock that also runs while the machine is suspended, from the moment the
/// request that was granted was sent, less a margin: so it ends here before it ends at the server,
/// whatever the network did. A process that is stopped learns of its loss only when it runs again;
/// what protects the data then is the [token](Lease::token).
///
/// That clock is `CLOCK_BOOTTIME` on Linux and Android, and that of [`std::time::Instant`]
/// elsewhere, which may stand still during a suspend. The assumption is that it counts all time
/// that passes. It does not in a virtual machine whose clocks stand still while the hypervisor has
/// it paused or restores it: there a lease seems good for as much longer, and again the token is
/// what protects.
///
/// The [margin](crate::Builder::margin) covers two things that this client cannot see: the local
/// clock and the server's do not run at exactly the same speed (a clock that is off by 200 parts in
/// a million, which is bad, loses 6 ms in a lease of 30 s), and when a lock moves to another
/// server, by a failover or with its slot, the deadline is judged by that server's clock. So two
/// servers' clocks may differ by the margin at most.
#[derive(Clone)]
pub struct Lease {
    pub(crate) client: Arc<Client>,
    pub(crate) acquisition: Arc<Acquisition>,
}

impl Lease {
    pub(crate) fn new(client: Arc<Client>, acquisition: Arc<Acquisition>) -> Self {
        Lease { client, acquisition }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.acquisition.lock.name
    }

    /// The id of this acquisition, by which the server knows it: what a [`Status`](crate::Status)
    /// names, and the value of a [`Mutex`](crate::Mutex). It is never used again.
    pub fn id(&self) -> &str {
        self.acquisition.id.as_str()
    }

    /// The lock's slot.
    pub fn slot(&self) -> Slot {
        self.acquisition.lock.slot
    }

    /// The fencing token: greater than every one that this lock gave out before. Hand it to the
    /// store that the lock protects, and have it refuse writes with a lower token than the greatest
    /// it has seen. Zero once the guard is gone, and for a [`Mutex`](crate::Mutex), which has none.
    pub fn token(&self) -> u64 {
        self.with(|holding| holding.token).unwrap_or(0)
    }

    /// Whether it is held for reading or for writing, nothing once the guard is gone. Permits of a
    /// [`Semaphore`](crate::Semaphore) are shared: they count as [`Mode::Read`].
    pub fn mode(&self) -> Option<Mode> {
        self.with(|holding| holding.mode)
    }

    /// The time that is left of the lease, less the margin, computed now. Zero if it is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.client.clock.now();
        self.with(
            |holding| if holding.is_lost() { Duration::ZERO } else { holding.ends.since(now) },
        )
        .unwrap_or_default()
    }

    /// Whether the lease is good, computed now: [`Held`](LeaseState::Held) or
    /// [`Uncertain`](LeaseState::Uncertain).
    pub fn is_held(&self) -> bool {
        self.state() != LeaseState::Lost
    }

    /// How the lease stands, computed now.
    pub fn state(&self) -> LeaseState {
        let now = self.client.clock.now();
        self.with(|holding| match holding {
            lost if !lost.is_held(now) => LeaseState::Lost,
            shaky if shaky.is_shaky(now) => LeaseState::Uncertain,
            _ => LeaseState::Held,
        })
        .unwrap_or(LeaseState::Lost)
    }

    /// Ends when the lease is lost or given back: before the server lets the next one in, for as
    /// long as the runtime runs.
    ///
    /// It is a timer of the runtime that wakes it, which is good to a millisecond: with a lease of
    /// less than some 40 ms, whose margin is less than two milliseconds, it can come after the
    /// server's deadline. [`state`](Lease::state) and [`remaining`](Lease::remaining) read the
    /// clock, and do not depend on that.
    ///
    /// A lease is also lost when a renewal is answered with another token, or when the server says
    /// to an upgrade or a downgrade that it has no lease with this token: if it has another one of
    /// the same acquisition, that is released.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            let mut changed = std::pin::pin!(self.acquisition.changed.notified());
            changed.as_mut().enable();
            let Some((ends, lost)) = self.with(|holding| (holding.ends, holding.is_lost())) else {
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

    /// A token that is cancelled when the lease is lost or given back: for tasks that must not
    /// outlive it.
    ///
    /// Cancelling it stops nobody else, and does not give the lease back.
    pub fn cancellation(&self) -> CancellationToken {
        let token = self.acquisition.cancellation().child_token();
        if !self.is_held() {
            token.cancel();
        }
        token
    }

    /// Makes the lease as long again as it was requested, counted from now. Needed only for leases
    /// that nobody else renews. One round trip.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when it is lost or was revoked;
    /// [`Unavailable`](ErrorKind::Unavailable) when the server did not answer, and
    /// [`Refused`](ErrorKind::Refused) when it said no, with the lease as it was.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the renewal may or may not be carried out; the lease here is as it was.
    pub async fn renew(&self) -> Result<()> {
        renewal::renew(&self.client, &self.acquisition).await.map(drop)
    }

    /// True when it is a write, false when it was a try and others read.
    pub(crate) async fn become_writer(&self, policy: WaitPolicy) -> Result<bool> {
        acquire::upgrade(&self.client, &self.acquisition, policy).await
    }

    /// Whether it is a write and remains one. A downgrade that was not sent yet is called off.
    pub(crate) fn stays_writer(&self) -> bool {
        self.client.on(&self.acquisition, Event::StayWriter);
        self.with(|holding| holding.mode == Mode::Write && holding.pending().is_none())
            .unwrap_or(false)
    }

    /// Waits until the worker has turned the write into a read, or that was called off.
    pub(crate) async fn downgraded(&self) -> Result<()> {
        self.free_of(|pending| pending == Transition::Downgrade).await
    }

    /// Waits until the worker has given a part of the permits back.
    pub(crate) async fn shrunk(&self) -> Result<()> {
        self.free_of(|pending| pending == Transition::Shrink).await
    }

    /// Waits until the worker has nothing to change about it.
    pub(crate) async fn unencumbered(&self) -> Result<()> {
        self.free_of(|_| true).await
    }

    async fn free_of(&self, concerns: impl Fn(Transition) -> bool) -> Result<()> {
        let Lease { client, acquisition } = self;
        let until = client.clock.now().after(client.settings.call_timeout);
        let failed = |kind, message| Err(acquisition.lock.with_lock(Error::new(kind, message)));
        loop {
            let changed = std::pin::pin!(acquisition.changed.notified());
            let under_way = self.with(|holding| holding.pending().is_some_and(&concerns));
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

    /// How much before the server's its end is here.
    pub(crate) fn margin(&self) -> Duration {
        self.with(|holding| holding.margin).unwrap_or_default()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&Holding) -> T) -> Option<T> {
        self.acquisition.holding(look)
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
