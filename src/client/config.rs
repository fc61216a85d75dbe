use std::time::Duration;

use rwlease_core::acquisition::{AcquisitionConfig, LeaseOptions, PollConfig, RenewalPolicy};
use rwlease_core::protocol::{Confirmation, Fairness, Fsync, LockKey, LockKind, PermitRequest};

use crate::client::cache::cache_config::CacheConfig;
use crate::client::label::ClientLabel;
use crate::client::loss::LossListener;
use crate::error::{Error, Result};
use crate::router::RouterConfig;

pub(crate) const MIN_LEASE: Duration = Duration::from_millis(10);
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a semaphore of tokio can hold on every platform.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// The settings of a client's locks.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub key_prefix: String,
    pub set_nx_key_prefix: String,
    pub lease: Duration,
    pub fairness: Fairness,
    pub confirmation: Confirmation,
    /// What the acquisitions themselves use.
    pub acquisition: AcquisitionConfig,
    pub loss_listener: LossListener,
    pub cache: CacheConfig,
    pub label: ClientLabel,
    /// The seed of the client's id, if it is not random.
    pub id: Option<[u8; 11]>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            key_prefix: "rwlease:".into(),
            set_nx_key_prefix: String::new(),
            lease: Duration::from_secs(30),
            fairness: Fairness::PhaseFair,
            confirmation: Confirmation::default(),
            acquisition: AcquisitionConfig::default(),
            loss_listener: LossListener::default(),
            cache: CacheConfig::default(),
            label: ClientLabel::default(),
            id: None,
        }
    }
}

impl ClientConfig {
    pub(crate) fn check(&self) -> Result<()> {
        check_prefix(&self.key_prefix)?;
        check_prefix(&self.set_nx_key_prefix)?;
        self.label.check()?;
        check_lease(self.lease)?;
        check_confirmation(self.confirmation)?;
        if let Some(margin) = self.acquisition.safety_margin {
            check_margin(margin, self.lease)?;
        }
        check_range("poll_interval", self.acquisition.polling.poll_interval, 1, 60_000)?;
        check_range("waiter_ttl", self.acquisition.polling.waiter_ttl, 100, 3_600_000)?;
        check_range("claim_timeout", self.acquisition.polling.claim_timeout, 10, 600_000)?;
        check_range("call_timeout", self.acquisition.call_timeout, 1, 3_600_000)?;
        check_range("min_hold", self.cache.min_hold, 0, 100)?;
        check_range("try_wait", self.cache.try_wait, 0, 10_000)?;
        let PollConfig { waiter_ttl, poll_interval, .. } = self.acquisition.polling;
        Error::ensure(waiter_ttl >= 3 * poll_interval, || {
            format!(
                "`waiter_ttl` must be at least three times `poll_interval`, which is \
                 {poll_interval:?}, not {waiter_ttl:?}"
            )
        })
    }

    pub(crate) fn lock_key(&self, kind: LockKind, name: &str) -> Result<LockKey> {
        let prefix = match kind {
            LockKind::ReadWrite | LockKind::Semaphore => &self.key_prefix,
            LockKind::SetNxMutex => &self.set_nx_key_prefix,
        };
        Ok(LockKey::new(kind, prefix, name)?)
    }

    /// The options of an acquire that sets none.
    pub fn lease_options(&self) -> LeaseOptions {
        LeaseOptions {
            lease: self.lease,
            fairness: self.fairness,
            renewal: RenewalPolicy::Automatic,
            max_hold: None,
            at_least: None,
            confirmation: self.confirmation,
            is_cacheable: false,
            reserved: false,
            is_member: false,
            permits: None,
        }
    }
}

pub(crate) fn check_options(options: &LeaseOptions) -> Result<()> {
    check_lease(options.lease)?;
    check_confirmation(options.confirmation)?;
    if let Some(PermitRequest { count, limit }) = options.permits {
        Error::ensure(count > 0, || "the number of permits must be at least 1, not 0")?;
        Error::ensure(count <= limit, || {
            format!(
                "the number of permits must be at most {limit}, the limit of the semaphore, not {count}"
            )
        })?;
    }
    if let Some(least) = options.at_least {
        Error::ensure((MIN_LEASE..=MAX_LEASE).contains(&least), || {
            format!("`at_least` must be {MIN_LEASE:?} to {MAX_LEASE:?}, not {least:?}")
        })?;
    }
    let Some(hold) = options.max_hold else { return Ok(()) };
    let least = options.at_least.unwrap_or_default();
    Error::ensure(hold >= least, || {
        format!("`at_least` ({least:?}) must not exceed `max_hold` ({hold:?})")
    })?;
    Error::ensure(hold >= MIN_LEASE, || {
        format!("`max_hold` must be at least {MIN_LEASE:?}, not {hold:?}")
    })
}

impl RouterConfig {
    pub(crate) fn check(&self) -> Result<()> {
        check_range("connect_timeout", self.connect_timeout, 1, 3_600_000)?;
        check_range("response_timeout", self.response_timeout, 1, 3_600_000)?;
        let given = self.max_in_flight_per_server;
        Error::ensure((1..=MAX_IN_FLIGHT).contains(&given), || {
            format!("`max_in_flight` must be from 1 to {MAX_IN_FLIGHT}, not {given}")
        })
    }
}

pub(crate) fn check_confirmation(confirmation: Confirmation) -> Result<()> {
    let Confirmation { replicas, fsync } = confirmation;
    Error::ensure(
        replicas > 0 || fsync != Fsync::Replicas,
        || "`fsync(Fsync::Replicas)` needs replicas; set `min_replicas` to at least 1",
    )
}

fn check_prefix(prefix: &str) -> Result<()> {
    Error::ensure(
        !prefix.contains(['{', '}']),
        || "a prefix must not contain braces; put a hash tag into the names of the locks",
    )?;
    Error::ensure(prefix.len() <= 128, || {
        format!("a prefix must have at most 128 bytes, not {}", prefix.len())
    })
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    Error::ensure((MIN_LEASE..=MAX_LEASE).contains(&lease), || {
        format!("the lease must be from {MIN_LEASE:?} to {MAX_LEASE:?}, not {lease:?}")
    })
}

fn check_margin(margin: Duration, lease: Duration) -> Result<()> {
    let half = lease / 2;
    Error::ensure(margin <= half, || {
        format!("the safety margin must be at most half of the lease, {half:?}, not {margin:?}")
    })
}

fn check_range(what: &str, value: Duration, least_ms: u64, most_ms: u64) -> Result<()> {
    let range = Duration::from_millis(least_ms)..=Duration::from_millis(most_ms);
    Error::ensure(range.contains(&value), || {
        format!("`{what}` must be from {least_ms} ms to {most_ms} ms, not {value:?}")
    })
}

#[cfg(test)]
mod tests;
