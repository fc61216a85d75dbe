//! Why a lease was lost, as far as this process can tell.

use std::time::{Duration, SystemTime};

use rwlease::{Error, ErrorKind, Lease};
use tokio::task::JoinHandle;

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
    pub async fn reason(self) -> String {
        let answered = self.renewal.map(|renewal| (renewal.is_finished(), renewal));
        match answered {
            _ if self.early => TAKEN.to_owned(),
            Some((true, renewal)) => match renewal.await {
                // A renewal that is answered after the release says only that there is no lease.
                Ok(Err(error)) if !is_bare(&error) => reasons(&error),
                _ => LATE.to_owned(),
            },
            Some((false, _)) => LATE.to_owned(),
            None if self.stood_still => STOOD_STILL.to_owned(),
            None => TAKEN.to_owned(),
        }
    }
}

/// Whether it says that the lease is lost, and not why.
fn is_bare(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost && !error.to_string().ends_with(REVOKED)
}

/// The end of the library's error for a revoked lease, which has no kind of its own.
const REVOKED: &str = "the lease was revoked, and ends at its deadline";
const TAKEN: &str = "the servers have it no more, as after a forced release or a deleted key";
const LATE: &str = "no renewal was answered in time";
const STOOD_STILL: &str = "`rwlease` or the machine stood still until it had ended";
