//! Why a lease was lost, as this process sees it.

use std::time::{Duration, Instant, SystemTime};

use rwlease::{ErrorKind, Lease};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::RELEASE_TIMEOUT;
use crate::exit::error_chain_without_lock;

/// A longer time between two looks at the lease means that this process stood still.
const STILL: Duration = Duration::from_secs(1);

/// Watches a lease for the reason of its loss.
pub struct LeaseMonitor<'a> {
    pub lease: &'a Lease,
    /// The end of the lease when it was last seen valid, by the wall clock. The wall clock also
    /// runs while the machine is suspended. A step of the clock affects only the text of a message.
    ends: SystemTime,
    /// When the lease was first seen lost.
    lost_at: Option<SystemTime>,
    looked_at: Instant,
    /// Whether this process stood still for a while.
    stood_still: bool,
    /// A renewal that was sent because the worker's brought nothing. Its failure is the reason.
    renewal: Option<JoinHandle<rwlease::Result<()>>>,
}

impl<'a> LeaseMonitor<'a> {
    pub fn new(lease: &'a Lease) -> Self {
        let (ends, looked_at) = (SystemTime::now(), Instant::now());
        LeaseMonitor { lease, ends, lost_at: None, looked_at, stood_still: false, renewal: None }
    }

    /// Returns the time left of the lease.
    pub fn remaining(&mut self) -> Duration {
        let (left, now) = (self.lease.remaining(), SystemTime::now());
        if !left.is_zero() {
            self.ends = now + left;
        } else {
            self.lost_at.get_or_insert(now);
        }
        let looked_at = std::mem::replace(&mut self.looked_at, Instant::now());
        self.stood_still |= looked_at.elapsed() > STILL;
        left
    }

    /// Asks the servers why the lease is not being extended.
    pub fn probe(&mut self) {
        let lease = self.lease.clone();
        self.renewal = Some(tokio::spawn(async move { lease.renew().await }));
    }

    /// Collects the evidence for the reason, before the lease is released.
    pub async fn clues(self) -> LossEvidence {
        let early = self.lost_at.is_some_and(|lost_at| lost_at < self.ends);
        let answer = match self.renewal {
            Some(renewal) => Answer::to(renewal).await,
            None => Answer::Unasked,
        };
        LossEvidence {
            lost_before_deadline: early,
            timed_out: self.lost_at.is_some() && !early,
            deadline_passed: self.stood_still,
            answer,
        }
    }
}

/// The evidence for the reason of a loss.
pub struct LossEvidence {
    lost_before_deadline: bool,
    /// Whether its time was up.
    timed_out: bool,
    deadline_passed: bool,
    answer: Answer,
}

/// The answer to a renewal near the end of the lease.
enum Answer {
    Unasked,
    Silence,
    Renewed,
    Revoked,
    Failure(String),
}

impl Answer {
    async fn to(renewal: JoinHandle<rwlease::Result<()>>) -> Answer {
        let Ok(Ok(answer)) = timeout(RELEASE_TIMEOUT, renewal).await else {
            return Answer::Silence;
        };
        match answer {
            Ok(()) => Answer::Renewed,
            Err(error) => match error.kind() {
                ErrorKind::LeaseRevoked => Answer::Revoked,
                // It was answered after the end, and says only that there is no lease.
                ErrorKind::LeaseLost => Answer::Silence,
                _ => Answer::Failure(error_chain_without_lock(&error)),
            },
        }
    }
}

impl LossEvidence {
    /// Returns why the lease was lost. `is_gone` means that the release found no lease at the
    /// servers. `answers` tells whether the servers reply now.
    pub async fn reason(self, is_gone: bool, answers: impl AsyncFnOnce() -> bool) -> String {
        let reason = match self.answer {
            _ if self.lost_before_deadline => NOT_HELD,
            Answer::Unasked if self.timed_out => PROCESS_STALLED,
            Answer::Unasked if is_gone => NOT_HELD,
            Answer::Renewed if self.deadline_passed => NO_RENEWAL_SENT,
            Answer::Revoked => REVOKED,
            Answer::Failure(reason) => return reason,
            Answer::Unasked | Answer::Renewed | Answer::Silence => match answers().await {
                true => UNCONFIRMED,
                false => UNANSWERED,
            },
        };
        reason.to_owned()
    }
}

const NOT_HELD: &str = "the servers no longer have it, as after a forced release or a deleted key";
const REVOKED: &str = "it was revoked";
const UNANSWERED: &str = "no renewal was answered in time";
const UNCONFIRMED: &str = "the servers reply, but the replicas confirmed no renewal in time";
const NO_RENEWAL_SENT: &str = "no renewal was made in time, because `rwlease` stood still";
const PROCESS_STALLED: &str = "`rwlease` or the machine stood still until it had ended";
