//! One lock of a `ReentrantOwner`: the lease, and the shares that its guards have.

use std::sync::{Arc, Mutex, Weak};

use rwlease_core::acquisition::AcquisitionEvent;
use rwlease_core::protocol::LockMode;
use rwlease_core::time::LocalInstant;

use crate::client::acquisition::Acquisition;
use crate::error::{ErrorKind, Result};
use crate::lock::guard::{Hold, ReleaseOutcome};
use crate::lock::lease::Lease;
use crate::locks::lock;

/// One lock of a `ReentrantOwner`.
#[derive(Debug, Default)]
pub(super) struct OwnedLock {
    /// Locked by the request that calls the server.
    pub(super) request_turn: tokio::sync::Mutex<()>,
    /// The last request at the server.
    request: Mutex<Weak<Acquisition>>,
    held: Mutex<Option<SharedLease>>,
}

/// A lease, and the number of guards that share it.
#[derive(Debug)]
struct SharedLease {
    hold: Hold,
    reads: usize,
    writes: usize,
    /// Requests that are upgrading the lease: until they count as a write, or give up.
    upgrades: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareKind {
    Read,
    Write,
    Upgrade,
}

/// The shares that are left after one is released.
enum RemainingShares {
    None(Hold),
    /// Only reads: the lease becomes a read.
    Readers,
    Others {
        is_held: bool,
    },
    /// The lease was lost and has been replaced.
    Replaced,
}

impl SharedLease {
    fn count(&mut self, kind: ShareKind) -> &mut usize {
        match kind {
            ShareKind::Read => &mut self.reads,
            ShareKind::Write => &mut self.writes,
            ShareKind::Upgrade => &mut self.upgrades,
        }
    }

    fn is_of(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.hold.0.acquisition, &lease.acquisition)
    }
}

/// One share of a lease.
#[derive(Debug)]
pub(super) struct Share {
    owned: Arc<OwnedLock>,
    pub(super) lease: Lease,
    kind: ShareKind,
    is_released: bool,
}

impl OwnedLock {
    pub(super) fn set_request(&self, acquisition: &Arc<Acquisition>) {
        *lock(&self.request) = Arc::downgrade(acquisition);
    }

    /// Whether the server does not answer the request whose turn it is.
    pub(super) fn is_server_silent(&self, now: LocalInstant) -> bool {
        let request = lock(&self.request).upgrade();
        request.is_some_and(|request| request.is_server_silent(now))
    }

    /// Shares the current lease, if it allows this kind.
    pub(super) fn join(self: &Arc<Self>, kind: ShareKind) -> Option<Share> {
        let mut held = lock(&self.held);
        let held = held.as_mut()?;
        let lease = held.hold.0.clone();
        if !lease.is_held() || (kind == ShareKind::Write && !lease.stays_writer()) {
            return None;
        }
        *held.count(kind) += 1;
        Some(self.share(lease, kind))
    }

    /// Starts with a new lease.
    pub(super) fn begin(self: &Arc<Self>, lease: Lease, kind: ShareKind) -> Share {
        let mut new = SharedLease { hold: Hold(lease.clone()), reads: 0, writes: 0, upgrades: 0 };
        *new.count(kind) += 1;
        let lost = lock(&self.held).replace(new);
        drop(lost);
        self.share(lease, kind)
    }

    fn share(self: &Arc<Self>, lease: Lease, kind: ShareKind) -> Share {
        Share { owned: self.clone(), lease, kind, is_released: false }
    }

    fn remove_share(&self, lease: &Lease, kind: ShareKind) -> RemainingShares {
        let mut current = lock(&self.held);
        let Some(held) = current.as_mut().filter(|held| held.is_of(lease)) else {
            return RemainingShares::Replaced;
        };
        *held.count(kind) -= 1;
        if held.reads + held.writes + held.upgrades == 0 {
            return current
                .take()
                .map_or(RemainingShares::Replaced, |held| RemainingShares::None(held.hold));
        }
        // An upgrade that was just granted does not count as a write yet. Its request is about to
        // turn its share into a write, or to drop it.
        if held.writes + held.upgrades == 0 && lease.mode() == Some(LockMode::Write) {
            lease.client.apply(&lease.acquisition, AcquisitionEvent::Downgrade);
            return RemainingShares::Readers;
        }
        RemainingShares::Others { is_held: lease.is_held() }
    }
}

impl Share {
    /// Turns this share into one of another kind, of the same lease.
    pub(super) fn turn_into(mut self, kind: ShareKind) -> Share {
        if let Some(held) = lock(&self.owned.held).as_mut().filter(|held| held.is_of(&self.lease)) {
            *held.count(self.kind) -= 1;
            *held.count(kind) += 1;
        }
        self.kind = kind;
        self
    }

    pub(super) async fn release(mut self) -> Result<ReleaseOutcome> {
        self.is_released = true;
        match self.owned.remove_share(&self.lease, self.kind) {
            RemainingShares::None(hold) => hold.release().await,
            RemainingShares::Readers => match self.lease.downgraded().await {
                Ok(()) => Ok(ReleaseOutcome::Released),
                // The lease has ended meanwhile: it was lost, or another share was the last one.
                Err(error) if error.kind() == ErrorKind::LeaseLost => {
                    Ok(match self.lease.was_lost() {
                        true => ReleaseOutcome::AlreadyLost,
                        false => ReleaseOutcome::Released,
                    })
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::Rejected | ErrorKind::WrongType) =>
                {
                    Err(error)
                }
                Err(_) => Ok(ReleaseOutcome::Unknown),
            },
            RemainingShares::Others { is_held: true } => Ok(ReleaseOutcome::Released),
            RemainingShares::Others { is_held: false } | RemainingShares::Replaced => {
                Ok(ReleaseOutcome::AlreadyLost)
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.is_released {
            drop(self.owned.remove_share(&self.lease, self.kind));
        }
    }
}
