//! What a lock is acquired with, and how long to wait for it.

use std::time::Duration;

use crate::client::settings::{Settings, check_lease};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::protocol::{Fairness, Permits};

/// What a lock is acquired with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseOptions {
    pub(crate) lease: Duration,
    pub(crate) fairness: Fairness,
    pub(crate) renewal: Renewal,
    /// The longest hold, however often it is renewed.
    pub(crate) hold: Option<Duration>,
    /// How many replicas must confirm the lease and each renewal.
    pub(crate) replicas: u32,
    /// It may be called back.
    pub(crate) cached: bool,
    /// What is wanted of a semaphore.
    pub(crate) permits: Option<Permits>,
}

impl LeaseOptions {
    /// What the client's settings say.
    pub(crate) fn of(settings: &Settings) -> Self {
        LeaseOptions {
            lease: settings.lease,
            fairness: settings.fairness,
            renewal: Renewal::Automatic,
            hold: None,
            replicas: 0,
            cached: false,
            permits: None,
        }
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
        if self.hold == Some(Duration::ZERO) {
            return Err(Error::invalid("the longest hold must not be zero"));
        }
        Ok(())
    }
}

/// Who makes a lease longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Renewal {
    /// The client, for as long as the guard lives.
    #[default]
    Automatic,
    /// The client, at most so many times. Then the lease runs out.
    AtMost(u32),
    /// Nobody but the caller.
    Manual,
}

/// How long to wait for one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitPolicy {
    /// Not at all, but for so long where only cached holders are in the way; the limit is for the
    /// cluster's answer.
    Try { until: Moment, for_cached: Duration },
    /// In the queue, without a limit or until a moment.
    Queue { until: Option<Moment> },
}

impl WaitPolicy {
    /// Not at all, whoever is in the way.
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
