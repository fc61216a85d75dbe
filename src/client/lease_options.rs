//! The options of an acquire, and how long it waits.

use std::time::Duration;

use crate::client::config::{ClientConfig, MIN_LEASE, check_lease};
use crate::client::deadline::RenewalBudget;
use crate::clock::LocalInstant;
use crate::error::{Error, Result};
use crate::protocol::{Fairness, PermitRequest};

/// The options of an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseOptions {
    pub(crate) lease: Duration,
    pub(crate) fairness: Fairness,
    pub(crate) renewal: RenewalPolicy,
    /// The longest hold, with all renewals.
    pub(crate) max_hold: Option<Duration>,
    /// How many replicas must confirm the lease and each renewal.
    pub(crate) min_replicas: u32,
    /// Whether the server may recall the lease.
    pub(crate) is_cacheable: bool,
    /// Whether no guard has the lease yet: it is renewed, and its loss is reported to nobody.
    pub(crate) reserved: bool,
    /// The permits wanted of a semaphore.
    pub(crate) permits: Option<PermitRequest>,
}

impl LeaseOptions {
    /// The options that the client's settings give.
    pub(crate) fn from_config(settings: &ClientConfig) -> Self {
        LeaseOptions {
            lease: settings.lease,
            fairness: settings.fairness,
            renewal: RenewalPolicy::Automatic,
            max_hold: None,
            min_replicas: 0,
            is_cacheable: false,
            reserved: false,
            permits: None,
        }
    }

    /// The limits of the renewals of a lease that is in use from `now` on. A reserved lease has
    /// none.
    pub(crate) fn renewals(&self, now: LocalInstant) -> RenewalBudget {
        if self.reserved {
            return RenewalBudget { renewals_left: None, hold_deadline: None };
        }
        let left = match self.renewal {
            RenewalPolicy::Automatic => None,
            RenewalPolicy::Limited(most) => Some(most),
            RenewalPolicy::Manual => Some(0),
        };
        RenewalBudget {
            renewals_left: left,
            hold_deadline: self.max_hold.map(|hold| now.saturating_add(hold)),
        }
    }

    /// The lease to request: at most the longest hold.
    pub(crate) fn first_lease(&self) -> Duration {
        self.max_hold.map_or(self.lease, |hold| self.lease.min(hold))
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_lease(self.lease)?;
        match self.permits {
            Some(PermitRequest { count: 0, .. }) => {
                return Err(Error::invalid("the number of permits must not be zero"));
            }
            Some(PermitRequest { count, limit }) if count > limit => {
                return Err(Error::invalid(format!(
                    "{count} permits are more than the semaphore's limit, which is {limit}"
                )));
            }
            _ => {}
        }
        match self.max_hold.filter(|hold| *hold < MIN_LEASE) {
            Some(hold) => Err(Error::invalid(format!(
                "the longest hold must be at least {MIN_LEASE:?}, not {hold:?}"
            ))),
            None => Ok(()),
        }
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
    /// Only the caller, by [`Lease::renew`](crate::Lease::renew).
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
    pub(crate) fn strict_try(until: LocalInstant) -> WaitPolicy {
        WaitPolicy::Try { deadline: until, cached_wait: Duration::ZERO }
    }

    pub(crate) fn deadline(self) -> Option<LocalInstant> {
        match self {
            WaitPolicy::Try { deadline: until, .. } => Some(until),
            WaitPolicy::Queue { deadline: until } => until,
        }
    }
}
