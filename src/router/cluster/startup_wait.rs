//! The wait for servers that start later than the client.

use std::time::Duration;

use futures::future::{Either, select};

use crate::backoff::Backoff;
use crate::error::Error;
use crate::router::cluster::topology::{DiscoveryError, Topology};
use crate::router::telemetry;

/// The pauses between two searches for the deployment.
const SEARCH_BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The shortest time between two events about the same wait.
const EVENT_INTERVAL: Duration = Duration::from_secs(30);

impl Topology {
    /// Finds the deployment. If that fails, searches again until `wait` has passed since the
    /// beginning. Without `wait`, searches once.
    ///
    /// The first search has all the time that it needs. A failure that no later start of a server
    /// can mend ends the wait at once.
    pub(crate) async fn discover_within(&self, wait: Option<Duration>) -> Result<(), Error> {
        let began = self.clock.now();
        let mut last = match self.discover().await {
            Ok(()) => return Ok(()),
            Err(failure) if failure.is_final() => return Err(failure.into()),
            Err(failure) => failure.into(),
        };
        let until = began.saturating_add(wait.unwrap_or_default());
        let mut event_due = began;
        for attempt in 0.. {
            let now = self.clock.now();
            if now >= until {
                break;
            }
            if now >= event_due {
                event_due = now.saturating_add(EVENT_INTERVAL);
                telemetry::emit_waiting_for_servers(&last, until.saturating_duration_since(now));
            }
            let next = now.saturating_add(SEARCH_BACKOFF.delay(attempt));
            self.clock.sleep_until(next.min(until)).await;
            match select(Box::pin(self.discover()), self.clock.sleep_until(until)).await {
                Either::Left((Ok(()), _)) => {
                    telemetry::emit_servers_found(
                        self.clock.now().saturating_duration_since(began),
                    );
                    return Ok(());
                }
                Either::Left((Err(failure), _)) if failure.is_final() => {
                    return Err(failure.into());
                }
                Either::Left((Err(failure), _)) => last = failure.into(),
                Either::Right(_) => break,
            }
        }
        Err(last)
    }
}

impl DiscoveryError {
    /// Whether no later start of a server can mend it. The nodes of a cluster that is being made
    /// look like several deployments.
    fn is_final(&self) -> bool {
        match self {
            DiscoveryError::MultipleServers(_) => false,
            DiscoveryError::Sentinel(failure) => failure.is_final(),
            DiscoveryError::Unreachable(_, failure) => failure.is_permanent,
        }
    }
}
