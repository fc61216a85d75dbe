//! The guard of a lock that a quorum granted.

use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::{Hold, Released};
use crate::lock::lease::{Lease, LeaseState};
use crate::protocol::{AHEAD, RaiseToken, Raised};

/// The guard of a lock that a majority of a [`Quorum`](crate::Quorum)'s members granted.
///
/// Dropping it releases the lock in the background on all members.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct QuorumGuard {
    pub(super) holds: Vec<Hold>,
    pub(super) majority: usize,
    pub(super) drift: Duration,
    pub(super) member_timeout: Duration,
    pub(super) token: Option<u64>,
}

impl QuorumGuard {
    /// The fencing token of a read/write lock, and `None` for a mutex.
    ///
    /// It is the greatest token that the members gave. Before the guard was returned, a majority of
    /// them confirmed that token, so the majority of the next holder has a member that gives a
    /// greater one. This assumes that members keep what they acknowledged. If the lock was idle and
    /// forgotten in between, it also assumes that the members' clocks differ by less than the grace
    /// of ten seconds. Members whose clocks are more than a minute apart do not accept each other's
    /// tokens: see [`Quorum`](crate::Quorum).
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// The leases at the members that granted the lock.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = &Lease> {
        self.holds.iter().map(|hold| &hold.0)
    }

    /// The time for which a majority of the leases is valid, less the drift, computed now. Zero if
    /// the lock is lost.
    pub fn remaining(&self) -> Duration {
        let mut left: Vec<Duration> = self
            .leases()
            .map(|lease| {
                lease.remaining().saturating_sub(self.drift.saturating_sub(lease.margin()))
            })
            .collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        left.get(self.majority - 1).copied().unwrap_or_default()
    }

    /// Whether the lock is held, computed now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// The state of the lock, computed now. It is [`Uncertain`](LeaseState::Uncertain) when less
    /// than a majority of the leases is [`Held`](LeaseState::Held).
    pub fn state(&self) -> LeaseState {
        let sound = self.leases().filter(|lease| lease.state() == LeaseState::Held).count();
        if !self.is_held() {
            LeaseState::Lost
        } else if sound < self.majority {
            LeaseState::Uncertain
        } else {
            LeaseState::Held
        }
    }

    /// Completes when the lock is lost: when less than a majority of the leases is valid, less the
    /// drift.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            let clock = self.clock();
            let ends = clock.sleep_until(clock.now().after(left));
            let held = self.leases().filter(|lease| lease.is_held());
            let each_lost: Vec<_> = held.map(|lease| Box::pin(lease.lost())).collect();
            // All may have ended since.
            if each_lost.is_empty() {
                return;
            }
            drop(select(ends, select_all(each_lost)).await);
        }
    }

    /// Extends the leases to their requested length, on a majority of the members, in the time of
    /// one round trip. Needed only for leases that are not [renewed](crate::Renewal) by the client.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when the lock is lost; [`Revoked`](ErrorKind::Revoked) when so
    /// many leases were revoked that the others are no majority;
    /// [`Unavailable`](ErrorKind::Unavailable) when less than a majority was renewed: then the lock
    /// is unchanged.
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::renew`].
    pub async fn renew(&self) -> Result<()> {
        let renewals = self.leases().map(|lease| self.in_time(lease.renew()));
        let renewals: Vec<_> = join_all(renewals).await.into_iter().flatten().collect();
        let renewed = renewals.iter().filter(|renewal| renewal.is_ok()).count();
        let failures = renewals.iter().filter_map(|renewal| renewal.as_ref().err());
        let revoked = failures.filter(|error| error.kind() == ErrorKind::Revoked).count();
        let error = |kind, message| {
            Err(self.holds[0].0.acquisition.lock.with_lock(Error::new(kind, message)))
        };
        if !self.is_held() {
            error(ErrorKind::Lost, "the lock is lost")
        } else if self.holds.len() - revoked < self.majority {
            error(ErrorKind::Revoked, "the lock was revoked, and ends at its deadline")
        } else if renewed < self.majority {
            error(ErrorKind::Unavailable, "less than a majority of the members renewed it")
        } else {
            Ok(())
        }
    }

    /// Releases the lock on all members, in the time of one round trip. Members that do not answer
    /// in time are released in the background.
    ///
    /// Returns [`Released`](Released::Released) if a majority confirms that the lock was held until
    /// now, [`AlreadyLost`](Released::AlreadyLost) if so many report the opposite that there was no
    /// majority, and otherwise [`Unknown`](Released::Unknown).
    ///
    /// # Errors
    ///
    /// [`Refused`](ErrorKind::Refused) and [`Foreign`](ErrorKind::Foreign) when so many members
    /// refuse that the others are no majority.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the releases are finished in the background.
    pub async fn release(mut self) -> Result<Released> {
        let was_held = self.is_held();
        let holds = std::mem::take(&mut self.holds);
        let (held, majority) = (holds.len(), self.majority);
        let clock = holds[0].0.client.clock.clone();
        let policy = self.member_timeout;
        let holds: Vec<_> = holds.into_iter().map(Hold::begin_release).collect();
        let releases = holds.into_iter().map(async |hold| {
            let until = clock.now().after(policy);
            match select(std::pin::pin!(hold.send()), clock.sleep_until(until)).await {
                Either::Left((released, _)) => released,
                Either::Right(_) => Ok(Released::Unknown),
            }
        });
        let (mut released, mut lost, mut refused) = (0, 0, None);
        for outcome in join_all(releases).await {
            match outcome {
                Ok(Released::Released) => released += 1,
                Ok(Released::AlreadyLost) => lost += 1,
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            _ if released >= majority => Ok(Released::Released),
            _ if held - lost < majority || !was_held => Ok(Released::AlreadyLost),
            Some(error) => Err(error),
            None => Ok(Released::Unknown),
        }
    }

    /// The outcome of writing the greatest token back, if so many members must refuse it that no
    /// majority can accept it. Then the token is not sent: each member that accepts it gives tokens
    /// from then on that the members that refused it refuse as well.
    pub(super) fn foresee(&self) -> Option<Written> {
        let token = self.leases().map(Lease::token).max()?;
        // A member's token is not behind its clock.
        let by = |lease: &Lease| Duration::from_micros(token - lease.token());
        let ahead = self.leases().map(by).enumerate();
        let refused: Vec<_> = ahead.filter(|(_, by)| *by > AHEAD).collect();
        let count = self.holds.len() - refused.len();
        (count < self.majority).then_some(Written { token, count, refused })
    }

    /// Writes the greatest of the members' tokens back to the members.
    pub(super) async fn write_token_back(&self) -> Option<Written> {
        let token = self.leases().map(Lease::token).max()?;
        let raised = self.leases().map(async |lease| match lease.token() == token {
            true => Some(Raised::Done),
            false => self.in_time(raise(lease, token)).await.flatten(),
        });
        let mut written = Written { token, count: 0, refused: Vec::new() };
        for (place, raised) in join_all(raised).await.into_iter().enumerate() {
            match raised {
                Some(Raised::Done) => written.count += 1,
                Some(Raised::Ahead(by)) => written.refused.push((place, by)),
                Some(Raised::Lost) | None => {}
            }
        }
        Some(written)
    }

    /// The outcome of `work` within the time that a member has, or `None`.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let clock = self.clock();
        match select(
            std::pin::pin!(work),
            clock.sleep_until(clock.now().after(self.member_timeout)),
        )
        .await
        {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.holds[0].0.client.clock
    }
}

/// The outcome of writing a token back.
pub(super) struct Written {
    pub(super) token: u64,
    /// How many members have it now.
    pub(super) count: usize,
    /// The positions of the members for which it is too far ahead, and by how much.
    pub(super) refused: Vec<(usize, Duration)>,
}

/// The member's answer to that token, if it answers.
async fn raise(lease: &Lease, token: u64) -> Option<Raised> {
    let Lease { client, acquisition } = lease;
    let id = acquisition.id;
    let raise = RaiseToken { id, token };
    let reply =
        client.query(&acquisition.lock, &raise.call(client.scripts, &acquisition.lock)).await;
    raise.read(reply.ok()?).ok()
}
