//! The options of an acquire, and how long it waits.

use std::time::Duration;

use crate::client::deadline::Renewals;
use crate::client::settings::{SHORTEST_LEASE, Settings, check_lease};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::protocol::{Fairness, Permits};

/// The options of an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseOptions {
    pub(crate) lease: Duration,
    pub(crate) fairness: Fairness,
    pub(crate) renewal: Renewal,
    /// The longest hold, with all renewals.
    pub(crate) hold: Option<Duration>,
    /// How many replicas must confirm the lease and each renewal.
    pub(crate) replicas: u32,
    /// Whether the server may recall the lease.
    pub(crate) cached: bool,
    /// Whether no guard has the lease yet: it is renewed, and its loss is reported to nobody.
    pub(crate) reserved: bool,
    /// The permits wanted of a semaphore.
    pub(crate) permits: Option<Permits>,
}

impl LeaseOptions {
    /// The options that the client's settings give.
    pub(crate) fn of(settings: &Settings) -> Self {
        LeaseOptions {
            lease: settings.lease,
            fairness: settings.fairness,
            renewal: Renewal::Automatic,
            hold: None,
            replicas: 0,
            cached: false,
            reserved: false,
            permits: None,
        }
    }

    /// The limits of the renewals of a lease that is in use from `now` on. A reserved lease has
    /// none.
    pub(crate) fn renewals(&self, now: Moment) -> Renewals {
        if self.reserved {
            return Renewals { left: None, hold_ends: None };
        }
        let left = match self.renewal {
            Renewal::Automatic => None,
            Renewal::AtMost(most) => Some(most),
            Renewal::Manual => Some(0),
        };
        Renewals { left, hold_ends: self.hold.map(|hold| now.after(hold)) }
    }

    /// The lease to request: at most the longest hold.
    pub(crate) fn first_lease(&self) -> Duration {
        self.hold.map_or(self.lease, |hold| self.lease.min(hold))
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_lease(self.lease)?;
        match self.permits {
            Some(Permits { count: 0, .. }) => {
                return Err(Error::invalid("the number of permits must not be zero"));
            }
            Some(Permits { count, limit }) if count > limit => {
                return Err(Error::invalid(format!(
                    "{count} permits are more than the semaphore's limit, which is {limit}"
                )));
            }
            _ => {}
        }
        match self.hold.filter(|hold| *hold < SHORTEST_LEASE) {
            Some(hold) => Err(Error::invalid(format!(
                "the longest hold must be at least {SHORTEST_LEASE:?}, not {hold:?}"
            ))),
            None => Ok(()),
        }
    }
}

/// Who renews a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renewal {
    /// The client, while the guard lives.
    #[default]
    Automatic,
    /// The client, at most this many times. Then the lease expires.
    AtMost(u32),
    /// Only the caller, by [`Lease::renew`](crate::Lease::renew).
    Manual,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitPolicy {
    /// Not for others, except for `for_cached` if only cached holders are in the way. `until`
    /// limits the wait for the server's answer.
    Try { until: Moment, for_cached: Duration },
    /// In the queue, until a moment or without a limit.
    Queue { until: Option<Moment> },
}

impl WaitPolicy {
    /// Not at all, whoever holds the lock.
    pub(crate) fn strict_try(until: Moment) -> WaitPolicy {
        WaitPolicy::Try { until, for_cached: Duration::ZERO }
    }

    pub(crate) fn until(self) -> Option<Moment> {
        match self {
            WaitPolicy::Try { until, .. } => Some(until),
            WaitPolicy::Queue { until } => until,
        }
    }
}
