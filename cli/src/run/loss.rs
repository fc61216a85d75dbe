//! Why a lease was lost, as far as this process can tell.

use std::time::{Duration, SystemTime};

use rwlease::{ErrorKind, Lease};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::GIVING_BACK;
use crate::exit::reasons;

/// Watches a lease for what ends it.
pub struct Watch<'a> {
    pub lease: &'a Lease,
    /// The end of the lease when it was last seen valid. By the wall clock, which also runs while
    /// the machine is suspended; a step of it makes a message wrong, and nothing else.
    ends: SystemTime,
    /// When the lease was first seen lost.
    lost_at: Option<SystemTime>,
    /// A renewal that was sent because the worker's brought nothing. Its failure is the reason.
    renewal: Option<JoinHandle<rwlease::Result<()>>>,
}

impl<'a> Watch<'a> {
    pub fn new(lease: &'a Lease) -> Self {
        Watch { lease, ends: SystemTime::now(), lost_at: None, renewal: None }
    }

    /// What is left of the lease.
    pub fn left(&mut self) -> Duration {
        let (left, now) = (self.lease.remaining(), SystemTime::now());
        if !left.is_zero() {
            self.ends = now + left;
        } else {
            self.lost_at.get_or_insert(now);
        }
        left
    }

    /// Asks the servers why the lease is not being extended.
    pub fn ask(&mut self) {
        let lease = self.lease.clone();
        self.renewal = Some(tokio::spawn(async move { lease.renew().await }));
    }

    /// What to find the reason in, once the lease is over.
    pub fn clues(self) -> Clues {
        let early = self.lost_at.is_some_and(|lost_at| lost_at < self.ends);
        Clues { early, stood_still: self.lost_at.is_some() && !early, renewal: self.renewal }
    }
}

/// What is known of the end of a lease.
pub struct Clues {
    /// Whether it was lost before its time.
    early: bool,
    /// Whether its time was up.
    stood_still: bool,
    renewal: Option<JoinHandle<rwlease::Result<()>>>,
}

impl Clues {
    /// `is_gone`: whether the servers did not have the lease any more when it was given back.
    pub async fn reason(self, is_gone: bool) -> String {
        if self.early {
            return TAKEN.to_owned();
        }
        let Some(renewal) = self.renewal else {
            let reason = match (self.stood_still, is_gone) {
                (true, _) => STOOD_STILL,
                (_, true) => TAKEN,
                _ => LATE,
            };
            return reason.to_owned();
        };
        match timeout(GIVING_BACK, renewal).await {
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Revoked => REVOKED.to_owned(),
            // A renewal that is answered after the release says only that there is no lease.
            Ok(Ok(Err(error))) if error.kind() != ErrorKind::Lost => reasons(&error),
            Ok(Ok(Ok(()))) => TOO_LATE.to_owned(),
            _ => LATE.to_owned(),
        }
    }
}

const TAKEN: &str = "the servers have it no more, as after a forced release or a deleted key";
const REVOKED: &str = "it was revoked";
const LATE: &str = "no renewal was answered in time";
const TOO_LATE: &str = "no renewal was made in time, as if `rwlease` had stood still";
const STOOD_STILL: &str = "`rwlease` or the machine stood still until it had ended";
