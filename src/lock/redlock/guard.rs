use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select};
use rwlease_core::protocol::{MAX_TOKEN_LEAD, RaiseTokenReply};
use tokio::task::AbortHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::fencing_token::FencingToken;
use crate::lock::guard::{Hold, ReleaseOutcome};
use crate::lock::lease::{Lease, LeaseState};
use crate::lock::redlock::member_leases::MemberLeases;

/// The guard of a lock that a majority of a [`Redlock`](crate::Redlock)'s members granted.
///
/// Dropping it releases the lock in the background on all members.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct RedlockGuard {
    pub(super) members: Arc<MemberLeases>,
    token: Option<u64>,
    /// The task that looks after the leases.
    watch: Option<AbortHandle>,
}

impl RedlockGuard {
    pub(super) fn new(members: MemberLeases) -> Self {
        RedlockGuard { members: Arc::new(members), token: None, watch: None }
    }

    /// Sets the token of the majority, and starts to look after the leases.
    pub(super) fn begin(&mut self, token: Option<u64>) {
        self.token = token;
        self.members.begin(token);
        let client = &self.members.round.quorum.members[0].client;
        self.watch = Some(client.spawn("watch of a quorum", self.members.clone().watch(token)));
    }

    /// Returns the fencing token of a read/write lock, and `None` for a mutex.
    ///
    /// It is the greatest token that the members gave. Before the guard was returned, a majority of
    /// them confirmed that token, so the majority of the next holder has a member that gives a
    /// greater one. This assumes that members keep what they acknowledged. If the lock was idle and
    /// forgotten in between, it also assumes that the members' clocks differ by less than the grace
    /// of ten seconds. Members whose clocks are more than a minute apart do not accept each other's
    /// tokens: see [`Redlock`](crate::Redlock).
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token.and_then(FencingToken::from_wire)
    }

    /// Releases the lock on all members, in the time of one round trip. Members that do not answer
    /// in time are released in the background.
    ///
    /// Returns [`ReleaseOutcome`](ReleaseOutcome::Released) if a majority confirms that the lock
    /// was held until now, [`AlreadyLost`](ReleaseOutcome::AlreadyLost) if it was lost here or the
    /// reports of members rule out a majority, and otherwise [`Unknown`](ReleaseOutcome::Unknown).
    ///
    /// # Errors
    ///
    /// [`Rejected`](ErrorKind::Rejected) and [`WrongType`](ErrorKind::WrongType) when the members
    /// that do not refuse are no majority.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the releases are finished in the background.
    pub async fn release(self) -> Result<ReleaseOutcome> {
        let was_held = self.is_held();
        let releases: Vec<_> = self.end().into_iter().map(Hold::begin_release).collect();
        let (held, majority) = (releases.len(), self.majority());
        let releases = releases.into_iter().map(async |release| {
            self.members.in_time(release).await.unwrap_or(Ok(ReleaseOutcome::Unknown))
        });
        let (mut released, mut lost, mut refusals) = (0, 0, Vec::new());
        for outcome in join_all(releases).await {
            match outcome {
                Ok(ReleaseOutcome::Released) => released += 1,
                Ok(ReleaseOutcome::AlreadyLost) => lost += 1,
                Ok(_) => {}
                Err(error) => refusals.push(error),
            }
        }
        let is_refused = held - refusals.len() < majority;
        match refusals.pop() {
            _ if held - lost < majority || !was_held => Ok(ReleaseOutcome::AlreadyLost),
            _ if released >= majority => Ok(ReleaseOutcome::Released),
            Some(error) if is_refused => Err(error),
            _ => Ok(ReleaseOutcome::Unknown),
        }
    }

    /// Returns the current leases at the members that granted the lock. After the lock is
    /// reacquired at a member, the new lease replaces the lost lease. Empty once the leases were
    /// given up after a loss.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = Lease> + use<> {
        self.members.leases().into_iter().map(|(_, lease)| lease)
    }

    /// Returns the time for which a majority of the leases is valid, less the drift, computed now.
    /// Zero if the lock is lost, which is final.
    pub fn remaining(&self) -> Duration {
        self.members.remaining()
    }

    /// Returns whether the lock is held, computed now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the state of the lock, computed now. It is [`Uncertain`](LeaseState::Uncertain) when
    /// less than a majority of the leases is [`Held`](LeaseState::Held).
    pub fn state(&self) -> LeaseState {
        let sound = self.leases().filter(|lease| lease.state() == LeaseState::Held).count();
        if !self.is_held() {
            LeaseState::Lost
        } else if sound < self.majority() {
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
    pub async fn ended(&self) {
        self.members.ended().await;
    }

    /// Completes when the lock is at risk: when less than a majority of the leases is held and not
    /// [at risk](Lease::at_risk). It completes before [`ended`](RedlockGuard::ended), or with it if
    /// the lock ends without an alarm. The client continues to renew the leases, and to reacquire
    /// the lock at missing members.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it can be dropped and called again.
    pub async fn at_risk(&self) {
        let (ended, at_risk) = (pin!(self.members.ended()), pin!(self.members.at_risk()));
        select(ended, at_risk).await;
    }

    /// Extends the leases to their requested length, on a majority of the members. Needed only for
    /// leases that are not [renewed](crate::RenewalPolicy) by the client.
    ///
    /// The lock is reacquired at members that did not grant it or have lost it, if the lock is held
    /// without them. It takes one round trip, and one or two more if a member is missing.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`](ErrorKind::LeaseLost) when the lock is lost;
    /// [`LeaseRevoked`](ErrorKind::LeaseRevoked) when the leases that are not revoked are no
    /// majority; [`Unavailable`](ErrorKind::Unavailable) when less than a majority was renewed:
    /// then the lock is unchanged.
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::renew`].
    pub async fn renew(&self) -> Result<()> {
        let leases: Vec<Lease> = self.leases().collect();
        let renewals = leases.iter().map(|lease| self.members.in_time(lease.renew()));
        let renewals: Vec<_> = join_all(renewals).await.into_iter().flatten().collect();
        let retaken = self.members.retake_missing(self.token).await;
        let renewed = renewals.iter().filter(|renewal| renewal.is_ok()).count() + retaken;
        let failures = renewals.iter().filter_map(|renewal| renewal.as_ref().err());
        let revoked = failures.filter(|error| error.kind() == ErrorKind::LeaseRevoked).count();
        let error =
            |kind, message: &str| Err(self.members.round.with_lock(Error::new(kind, message)));
        if !self.is_held() {
            error(ErrorKind::LeaseLost, "the lock is lost; stop the work that it protects")
        } else if leases.len() + retaken - revoked < self.majority() {
            error(
                ErrorKind::LeaseRevoked,
                "the lock was revoked and cannot be extended; finish and release it before its deadline",
            )
        } else if renewed < self.majority() {
            let message = format!(
                "{renewed} of the {} members that form a majority renewed the lease; \
                 renew it again, or finish before its deadline",
                self.majority()
            );
            error(ErrorKind::Unavailable, &message)
        } else {
            Ok(())
        }
    }

    /// The outcome of writing the greatest token back, if no majority can accept the token. Then
    /// the token is not sent: each member that accepts it gives tokens from then on that the
    /// members that refused it refuse as well.
    pub(super) fn foresee(&self) -> Option<TokenWriteBack> {
        let leases = self.members.leases();
        let token = leases.iter().map(|(_, lease)| lease.acquisition.fencing_token()).max()?;
        // A member's token is not behind its clock.
        let by = |lease: &Lease| Duration::from_micros(token - lease.acquisition.fencing_token());
        let ahead = leases.iter().map(|(place, lease)| (*place, by(lease)));
        let refused: Vec<_> = ahead.filter(|(_, by)| *by > MAX_TOKEN_LEAD).collect();
        let count = leases.len() - refused.len();
        (count < self.majority()).then_some(TokenWriteBack { token, count, refused })
    }

    /// Writes the greatest of the members' tokens back to the members.
    pub(super) async fn write_token_back(&self) -> Option<TokenWriteBack> {
        let leases = self.members.leases();
        let token = leases.iter().map(|(_, lease)| lease.acquisition.fencing_token()).max()?;
        let raised = leases.iter().map(async |(place, lease)| {
            match lease.acquisition.fencing_token() == token {
                true => (*place, Some(RaiseTokenReply::Raised)),
                false => (*place, self.members.raise(lease, token).await),
            }
        });
        let mut written = TokenWriteBack { token, count: 0, refused: Vec::new() };
        for (place, raised) in join_all(raised).await {
            match raised {
                Some(RaiseTokenReply::Raised) => written.count += 1,
                Some(RaiseTokenReply::TooFarAhead(by)) => written.refused.push((place, by)),
                Some(RaiseTokenReply::NotHeld) | None => {}
            }
        }
        Some(written)
    }

    pub(super) fn majority(&self) -> usize {
        self.members.round.quorum.majority()
    }

    /// Ends the lock here, and returns its leases.
    fn end(&self) -> Vec<Hold> {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
        self.members.report_loss();
        self.members.end()
    }
}

impl Drop for RedlockGuard {
    fn drop(&mut self) {
        drop(self.end());
    }
}

pub(super) struct TokenWriteBack {
    pub(super) token: u64,
    /// How many members have it now.
    pub(super) count: usize,
    /// The positions of the members for which the token is too far ahead, and by how much.
    pub(super) refused: Vec<(usize, Duration)>,
}
