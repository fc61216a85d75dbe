//! What one holds: a lease that can be asked, and guards that give it back.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use crate::acquisition::{Acquisition, Holding, State};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::protocol::{Ended, Mode, Release, Renew};
use crate::router::Slot;
use crate::worker;

/// How a lease stands, as far as this client can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseState {
    /// The lease is good, and so were its renewals.
    Held,
    /// The lease is good, but it is not being made longer: renewals fail, or it was revoked. It may be lost soon.
    Uncertain,
    /// The lease has ended, or the server says that it is another's. Stop: the fencing token is stale.
    Lost,
}

/// How a release went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now.
    Released,
    /// The lease had ended before: somebody else may have held the lock since.
    AlreadyLost,
    /// The first answer was lost and the lease has ended since, or the server could not be reached: it may have been released in time, or have run out. If
    /// something is left there, the client goes on trying to release it until its lease has ended.
    Unknown,
}

/// A lease on a lock, as its holder sees it. Guards have it; a clone can be handed to whom it concerns, and does not keep the lock.
///
/// It is counted by a clock that also runs while the machine is suspended, from the moment the request that was
/// granted was sent, less a margin: so it ends here before it ends at the server, whatever the network did. A process that is stopped
/// learns of its loss only when it runs again; what protects the data then is the [token](Lease::token).
#[derive(Clone)]
pub struct Lease {
    client: Arc<Client>,
    acquisition: Arc<Acquisition>,
}

impl Lease {
    pub(crate) fn new(client: Arc<Client>, acquisition: Arc<Acquisition>) -> Self {
        Lease { client, acquisition }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.acquisition.lock.name
    }

    /// The id of this acquisition, by which the server knows it: what a [`Status`](crate::Status) names, and the value of a
    /// [`Mutex`](crate::Mutex). It is never used again.
    pub fn owner(&self) -> &str {
        self.acquisition.owner.as_str()
    }

    /// The lock's slot.
    pub fn slot(&self) -> Slot {
        self.acquisition.lock.slot
    }

    /// The fencing token: greater than every one that this lock gave out before. Hand it to the store that the lock protects, and have it
    /// refuse writes with a lower token than the greatest it has seen. Zero once the guard is gone, and for a
    /// [`Mutex`](crate::Mutex), which has none.
    pub fn token(&self) -> u64 {
        self.with(|holding| holding.token).unwrap_or(0)
    }

    /// Whether it is held for reading or for writing, nothing once the guard is gone.
    pub fn mode(&self) -> Option<Mode> {
        self.with(|holding| holding.mode)
    }

    /// The time that is left of the lease, less the margin, computed now. Zero if it is lost.
    pub fn remaining(&self) -> Duration {
        let now = self.client.clock.now();
        self.with(|holding| {
            if holding.lost {
                Duration::ZERO
            } else {
                holding.ends.since(now)
            }
        })
        .unwrap_or_default()
    }

    /// Whether the lease is good, computed now: [`Held`](LeaseState::Held) or [`Uncertain`](LeaseState::Uncertain).
    pub fn is_held(&self) -> bool {
        self.state() != LeaseState::Lost
    }

    /// How the lease stands, computed now.
    pub fn state(&self) -> LeaseState {
        let now = self.client.clock.now();
        self.with(|holding| match holding {
            lost if !lost.is_held(now) => LeaseState::Lost,
            shaky if shaky.failing || shaky.revoked => LeaseState::Uncertain,
            _ => LeaseState::Held,
        })
        .unwrap_or(LeaseState::Lost)
    }

    /// Ends when the lease is lost or given back: before the server lets the next one in, for as long as the runtime runs.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            let mut changed = std::pin::pin!(self.acquisition.changed.notified());
            changed.as_mut().enable();
            let Some((ends, lost)) = self.with(|holding| (holding.ends, holding.lost)) else {
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

    /// Makes the lease as long again as it was asked for, counted from now. Needed only for leases that nobody else
    /// renews. One round trip.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when it is lost or was revoked; [`Unavailable`](ErrorKind::Unavailable) when the server did not
    /// answer, with the lease as it was.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the renewal may or may not be carried out; the lease here is as it was.
    pub async fn renew(&self) -> Result<()> {
        let lock = &self.acquisition.lock;
        let lost = || lock.blame(Error::new(ErrorKind::Lost, "the lease is lost"));
        let now = self.client.clock.now();
        let (ends, lease) = self
            .with(|holding| (holding.ends, holding.renewals.lease(now, holding.lease)))
            .filter(|(ends, _)| now < *ends)
            .ok_or_else(lost)?;
        let call = Renew {
            owner: self.acquisition.owner,
            lease,
        }
        .call(self.client.scripts, lock);
        let until = ends.min(now.after(self.client.settings.call_timeout));
        let result = self.client.router.call(&call, until).await;
        let failed = result.as_ref().err().map(|error| error.to_string());
        worker::apply_renewal(&self.client, &self.acquisition, result);
        match (self.state(), failed) {
            (LeaseState::Lost, _) => Err(lost()),
            (_, Some(why)) => Err(lock.blame(Error::new(ErrorKind::Unavailable, why))),
            _ if self.with(|holding| holding.revoked) == Some(true) => Err(lock.blame(Error::new(
                ErrorKind::Lost,
                "the lease was revoked, and ends at its deadline",
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn acquisition(&self) -> &Acquisition {
        &self.acquisition
    }

    /// What its end here lies before the server's.
    pub(crate) fn margin(&self) -> Duration {
        self.with(|holding| holding.margin).unwrap_or_default()
    }

    fn with<T>(&self, look: impl FnOnce(&Holding) -> T) -> Option<T> {
        match &*self.acquisition.state() {
            State::Held(holding) => Some(look(holding)),
            _ => None,
        }
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

/// Gives the lease back when dropped: the client's own task releases it, whatever thread this is.
#[derive(Debug)]
pub(crate) struct Hold(pub(crate) Lease);

impl Hold {
    pub(crate) async fn release(self) -> Result<Released> {
        let Lease { client, acquisition } = &self.0;
        let lock = &acquisition.lock;
        let now = client.clock.now();
        let ends = self.0.with(|holding| holding.ends).unwrap_or(now);
        let call = Release {
            owner: acquisition.owner,
            only_wait: false,
        }
        .call(client.scripts, lock);
        let until = now.after(client.settings.call_timeout);
        let result = client.router.call(&call, until).await;
        let loose = self.0.with(|holding| holding.loose).flatten();
        match worker::ended(result) {
            Ok((envelope, ended, retried)) => {
                if envelope.more {
                    client.pump(lock);
                }
                if loose.is_none() {
                    client.forget(acquisition); // else the drop below hands it to the worker, which sends a last one later
                }
                Ok(match ended {
                    Ended::Released => Released::Released,
                    Ended::Absent if retried && client.clock.now() < ends => Released::Released,
                    Ended::Absent if retried => Released::Unknown,
                    _ => Released::AlreadyLost,
                })
            }
            Err(error) => {
                let error = Error::from(error);
                match error.kind() {
                    ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Cancelled => Ok(Released::Unknown),
                    _ => Err(lock.blame(error)),
                }
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.client.abandon(&self.0.acquisition);
    }
}

/// What a request gives: [`ReadGuard`], [`WriteGuard`] or [`MutexGuard`].
pub trait Guard: sealed::Guard {}

pub(crate) mod sealed {
    use super::{Lease, Mode};

    pub trait Guard: Sized {
        const MODE: Mode;

        fn from_lease(lease: Lease) -> Self;
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident, $mode:expr) => {
        $(#[$doc])*
        ///
        /// It derefs to its [`Lease`]: [`token`](Lease::token), [`remaining`](Lease::remaining), [`state`](Lease::state),
        /// [`lost`](Lease::lost). Dropped, it is released in the background: the drop never blocks, and works outside of a
        /// runtime. After the runtime is shut down nothing can be sent any more; then the lease ends it.
        #[must_use = "dropped at once, the lock is released at once"]
        #[clippy::has_significant_drop]
        #[derive(Debug)]
        pub struct $name(Hold);

        impl $name {
            /// Releases the lock, and says truly how that went. One round trip.
            ///
            /// # Errors
            ///
            /// [`Refused`](ErrorKind::Refused) and [`Foreign`](ErrorKind::Foreign) when the server refuses. That it cannot be
            /// reached is no error but [`Released::Unknown`].
            ///
            /// # Cancel safety
            ///
            /// Dropped, the release is finished in the background.
            pub async fn release(self) -> Result<Released> {
                self.0.release().await
            }
        }

        impl Deref for $name {
            type Target = Lease;

            fn deref(&self) -> &Lease {
                &self.0.0
            }
        }

        impl sealed::Guard for $name {
            const MODE: Mode = $mode;

            fn from_lease(lease: Lease) -> Self {
                $name(Hold(lease))
            }
        }

        impl Guard for $name {}
    };
}

guard! {
    /// A lock held for reading, together with other readers.
    ReadGuard, Mode::Read
}

guard! {
    /// A lock held for writing, alone.
    WriteGuard, Mode::Write
}

guard! {
    /// A [`Mutex`](crate::Mutex) that is held.
    MutexGuard, Mode::Write
}
