//! How often a waiter polls. Polling is the fallback if no push comes.

use std::time::Duration;

/// When all waiters of a queue must poll, each waiter polls this much later than the waiter ahead.
const STAGGER: Duration = Duration::from_millis(1);

/// The settings for waiting.
#[derive(Clone, Copy, Debug)]
pub struct PollConfig {
    /// The time between two polls of the head of the queue. Each place behind it adds the same
    /// time.
    pub poll_interval: Duration,
    /// How long a place in the queue is kept without a poll.
    pub waiter_ttl: Duration,
    /// How long a grant waits for the claim of a client that receives pushes.
    pub claim_timeout: Duration,
}

impl PollConfig {
    /// The time until the next poll; `random` is from 0 to 1.
    pub fn poll_delay(&self, ahead: u64, random: f64) -> Duration {
        self.max_delay(ahead).mul_f64(1.0 - 0.2 * random)
    }

    /// The time until the poll of a waiter that was told to poll, as its whole queue was. The head
    /// polls at once, and the waiters behind it one after another. `random` is from 0 to 1.
    pub fn staggered_delay(&self, ahead: u64, random: f64) -> Duration {
        let places = u32::try_from(ahead).unwrap_or(u32::MAX);
        let turn = STAGGER.saturating_mul(places).saturating_sub(STAGGER.mul_f64(random));
        turn.min(self.max_delay(ahead))
    }

    /// The claim window for a waiter that receives pushes (`hears`), or that polls only.
    pub fn claim_timeout(&self, hears: bool, ahead: u64) -> Duration {
        if hears { self.claim_timeout } else { self.claim_timeout.max(2 * self.max_delay(ahead)) }
    }

    fn max_delay(&self, ahead: u64) -> Duration {
        let places = u32::try_from(ahead.saturating_add(1)).unwrap_or(u32::MAX);
        self.poll_interval.saturating_mul(places).min(self.waiter_ttl / 3)
    }
}

#[cfg(test)]
mod tests;
