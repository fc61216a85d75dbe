//! The settings of a client that its acquisitions use.

use std::time::Duration;

use super::deadline::default_margin;
use super::poll_schedule::PollConfig;

/// A timeout after a shorter silence is blamed on the caller's deadline, not on the server.
pub const MIN_BLAMED_SILENCE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct AcquisitionConfig {
    /// How much earlier a lease ends here than at the server; computed from the lease if `None`.
    pub safety_margin: Option<Duration>,
    pub polling: PollConfig,
    pub max_queue_len: u64,
    pub call_timeout: Duration,
    /// The maximum time of one call of a request, including the retries of the router. After that
    /// the request makes a new call. The server accepts an attempt for the same time.
    pub acquire_call_timeout: Duration,
}

impl Default for AcquisitionConfig {
    fn default() -> Self {
        AcquisitionConfig {
            safety_margin: None,
            polling: PollConfig {
                poll_interval: Duration::from_millis(250),
                waiter_ttl: Duration::from_secs(10),
                claim_timeout: Duration::from_millis(1_500),
            },
            max_queue_len: 10_000,
            call_timeout: Duration::from_secs(10),
            acquire_call_timeout: Duration::from_secs(2),
        }
    }
}

impl AcquisitionConfig {
    pub fn safety_margin(&self, lease: Duration) -> Duration {
        self.safety_margin.unwrap_or_else(|| default_margin(lease)).min(lease / 2)
    }
}
