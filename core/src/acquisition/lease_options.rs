use std::time::Duration;

use crate::acquisition::deadline::RenewalBudget;
use crate::protocol::{Confirmation, Fairness, PermitRequest};
use crate::time::LocalInstant;

/// The options of an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseOptions {
    pub lease: Duration,
    pub fairness: Fairness,
    pub renewal: RenewalPolicy,
    /// The longest hold, with all renewals.
    pub max_hold: Option<Duration>,
    /// The shortest time for which the lock stays taken, counted from the grant.
    pub at_least: Option<Duration>,
    /// What must confirm the lease and each renewal.
    pub confirmation: Confirmation,
    /// Whether the server may recall the lease.
    pub is_cacheable: bool,
    /// Whether no guard has the lease yet: it is renewed, and its loss is reported to nobody.
    pub reserved: bool,
    /// Whether it is one of the leases of a Redlock, which reports its own risk and loss.
    pub is_member: bool,
    /// The permits wanted of a semaphore.
    pub permits: Option<PermitRequest>,
}

impl LeaseOptions {
    /// The limits of the renewals of a lease that is in use from `now` on. A reserved lease has
    /// none.
    pub fn renewals(&self, now: LocalInstant) -> RenewalBudget {
        if self.reserved {
            return RenewalBudget { renewals_left: None, hold_deadline: None, kept_until: None };
        }
        let left = match self.renewal {
            RenewalPolicy::Automatic => None,
            RenewalPolicy::Limited(most) => Some(most),
            RenewalPolicy::Manual => Some(0),
        };
        RenewalBudget {
            renewals_left: left,
            hold_deadline: self.max_hold.map(|hold| now.saturating_add(hold)),
            kept_until: self.at_least.map(|least| now.saturating_add(least)),
        }
    }

    /// The lease to request: at most the longest hold.
    pub fn first_lease(&self) -> Duration {
        self.max_hold.map_or(self.lease, |hold| self.lease.min(hold))
    }

    /// The lease that covers the shortest time, too.
    pub fn covering_lease(&self) -> Duration {
        self.lease.max(self.at_least.unwrap_or_default())
    }
}

/// Who renews a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewalPolicy {
    /// The client, while the guard lives.
    #[default]
    Automatic,
    /// The client, at most this many times. Then the lease expires.
    Limited(u32),
    /// Only the caller, by `Lease::renew`.
    Manual,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitPolicy {
    /// Not for others, except for `for_cached` if only cached holders are in the way. `until`
    /// limits the wait for the server's answer.
    Try { deadline: LocalInstant, cached_wait: Duration },
    /// In the queue, until a moment or without a limit.
    Queue { deadline: Option<LocalInstant> },
}

impl WaitPolicy {
    /// Not at all, whoever holds the lock.
    pub fn strict_try(until: LocalInstant) -> WaitPolicy {
        WaitPolicy::Try { deadline: until, cached_wait: Duration::ZERO }
    }

    pub fn deadline(self) -> Option<LocalInstant> {
        match self {
            WaitPolicy::Try { deadline: until, .. } => Some(until),
            WaitPolicy::Queue { deadline: until } => until,
        }
    }
}
