//! The settings of a client, and their checks.

use std::time::Duration;

use crate::client::deadline::default_margin;
use crate::client::loss::LossListener;
use crate::client::poll_schedule::PollConfig;
use crate::error::{Error, Result};
use crate::protocol::Fairness;
use crate::router::RouterConfig;

pub(crate) const MIN_LEASE: Duration = Duration::from_millis(10);
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What a semaphore of tokio can hold on every platform.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// A timeout after a shorter silence is blamed on the caller's deadline, not on the server.
pub(crate) const MIN_BLAMED_SILENCE: Duration = Duration::from_millis(500);

/// The settings of a client's locks.
#[derive(Clone, Debug)]
pub(crate) struct ClientConfig {
    pub(crate) key_prefix: String,
    pub(crate) set_nx_key_prefix: String,
    pub(crate) lease: Duration,
    pub(crate) safety_margin: Option<Duration>,
    pub(crate) fairness: Fairness,
    pub(crate) polling: PollConfig,
    pub(crate) max_queue_len: u64,
    pub(crate) call_timeout: Duration,
    /// How long one call of a request may take, with the router's retries, before it is made anew.
    /// The server accepts an attempt for the same time.
    pub(crate) acquire_call_timeout: Duration,
    pub(crate) loss_listener: LossListener,
    pub(crate) cache: CacheConfig,
    /// The seed of the client's id, if it is not random.
    pub(crate) id: Option<[u8; 11]>,
}

/// How locks are cached. See [`Cache`](crate::Cache).
#[derive(Clone, Debug)]
pub(crate) struct CacheConfig {
    pub(crate) min_hold: Duration,
    pub(crate) try_wait: Duration,
    pub(crate) max_leases: usize,
    pub(crate) replicas: u32,
}

impl Default for CacheConfig {
    fn default() -> Self {
        CacheConfig {
            min_hold: Duration::from_millis(5),
            try_wait: Duration::from_millis(50),
            max_leases: 1_024,
            replicas: 0,
        }
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            key_prefix: "rwlease:".into(),
            set_nx_key_prefix: String::new(),
            lease: Duration::from_secs(30),
            safety_margin: None,
            fairness: Fairness::PhaseFair,
            polling: PollConfig {
                poll_interval: Duration::from_millis(250),
                waiter_ttl: Duration::from_secs(10),
                claim_timeout: Duration::from_millis(1_500),
            },
            max_queue_len: 10_000,
            call_timeout: Duration::from_secs(10),
            acquire_call_timeout: Duration::from_secs(2),
            loss_listener: LossListener::default(),
            cache: CacheConfig::default(),
            id: None,
        }
    }
}

impl ClientConfig {
    pub(crate) fn check(&self) -> Result<()> {
        check_prefix(&self.key_prefix)?;
        check_prefix(&self.set_nx_key_prefix)?;
        check_lease(self.lease)?;
        if let Some(margin) = self.safety_margin {
            check_margin(margin, self.lease)?;
        }
        check_range("the poll interval", self.polling.poll_interval, 1, 60_000)?;
        check_range("the waiters' time to live", self.polling.waiter_ttl, 100, 3_600_000)?;
        check_range("the claim window", self.polling.claim_timeout, 10, 600_000)?;
        check_range("the call timeout", self.call_timeout, 1, 3_600_000)?;
        check_range("the minimum hold of cached locks", self.cache.min_hold, 0, 100)?;
        check_range("the wait of a try for cached locks", self.cache.try_wait, 0, 10_000)?;
        if self.polling.waiter_ttl < 3 * self.polling.poll_interval {
            return Err(Error::invalid(
                "the waiters' time to live must be at least three poll intervals",
            ));
        }
        Ok(())
    }

    pub(crate) fn safety_margin(&self, lease: Duration) -> Duration {
        self.safety_margin.unwrap_or_else(|| default_margin(lease)).min(lease / 2)
    }
}

impl RouterConfig {
    pub(crate) fn check(&self) -> Result<()> {
        check_range("the connect timeout", self.connect_timeout, 1, 3_600_000)?;
        check_range("the response timeout", self.response_timeout, 1, 3_600_000)?;
        if (1..=MAX_IN_FLIGHT).contains(&self.max_in_flight_per_server) {
            Ok(())
        } else {
            Err(Error::invalid(format!(
                "the calls in flight must be from 1 to {MAX_IN_FLIGHT}, not {}",
                self.max_in_flight_per_server
            )))
        }
    }
}

fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.contains(['{', '}']) {
        Err(Error::invalid("a prefix must have no braces: the hash tag is the name's"))
    } else if prefix.len() > 128 {
        Err(Error::invalid("a prefix must have at most 128 bytes"))
    } else {
        Ok(())
    }
}

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "a lease must be from {MIN_LEASE:?} to {MAX_LEASE:?}, not {lease:?}"
        )))
    }
}

fn check_margin(margin: Duration, lease: Duration) -> Result<()> {
    if margin <= lease / 2 {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "the margin must be at most half of the lease, not {margin:?} of {lease:?}"
        )))
    }
}

fn check_range(what: &str, value: Duration, least_ms: u64, most_ms: u64) -> Result<()> {
    if (Duration::from_millis(least_ms)..=Duration::from_millis(most_ms)).contains(&value) {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "{what} must be from {least_ms} ms to {most_ms} ms, not {value:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets one setting, in its unit, and checks all.
    type Check = fn(u64) -> Result<()>;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    fn checked(change: impl FnOnce(&mut ClientConfig)) -> Result<()> {
        let mut settings = ClientConfig::default();
        change(&mut settings);
        settings.check()
    }

    fn router_checked(change: impl FnOnce(&mut RouterConfig)) -> Result<()> {
        let mut settings = RouterConfig::default();
        change(&mut settings);
        settings.check()
    }

    #[test]
    fn each_range_has_its_ends_and_nothing_beyond() {
        let day = 24 * 3_600_000;
        let ranges: &[(&str, u64, u64, Check)] = &[
            ("lease", 10, 30 * day, |it| checked(|all| all.lease = ms(it))),
            ("margin", 0, 500, |it| {
                checked(|all| (all.lease, all.safety_margin) = (ms(1_000), Some(ms(it))))
            }),
            // The time to live is that of 60,001 ms.
            ("interval", 1, 60_000, |it| {
                checked(|all| {
                    (all.polling.poll_interval, all.polling.waiter_ttl) = (ms(it), ms(180_003))
                })
            }),
            ("interval of a short life", 1, 100, |it| {
                checked(|all| {
                    (all.polling.poll_interval, all.polling.waiter_ttl) = (ms(it), ms(300))
                })
            }),
            ("waiters' time to live", 100, 3_600_000, |it| {
                checked(|all| (all.polling.poll_interval, all.polling.waiter_ttl) = (ms(1), ms(it)))
            }),
            ("window", 10, 600_000, |it| checked(|all| all.polling.claim_timeout = ms(it))),
            ("call timeout", 1, 3_600_000, |it| checked(|all| all.call_timeout = ms(it))),
            ("minimum hold", 0, 100, |it| checked(|all| all.cache.min_hold = ms(it))),
            ("wait of a try", 0, 10_000, |it| checked(|all| all.cache.try_wait = ms(it))),
            ("connect timeout", 1, 3_600_000, |it| {
                router_checked(|all| all.connect_timeout = ms(it))
            }),
            ("response timeout", 1, 3_600_000, |it| {
                router_checked(|all| all.response_timeout = ms(it))
            }),
            ("calls in flight", 1, 1 << 20, |it| {
                router_checked(|all| all.max_in_flight_per_server = it as usize)
            }),
            ("prefix", 0, 128, |it| checked(|all| all.key_prefix = "p".repeat(it as usize))),
            ("mutex prefix", 0, 128, |it| {
                checked(|all| all.set_nx_key_prefix = "p".repeat(it as usize))
            }),
        ];
        for (what, least, most, check) in ranges {
            assert!(check(*least).is_ok() && check(*most).is_ok(), "{what}");
            let beyond = [least.checked_sub(1), Some(most + 1)];
            for value in beyond.into_iter().flatten() {
                assert!(check(value).is_err(), "{what}: {value}");
            }
        }
    }
}
