use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::args::RunArgs;
use crate::exit::{CliError, TRY_LATER, UNAVAILABLE};
use crate::format;

/// How long after the limit a wait may still say why it failed.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The limit for the whole wait, connecting included.
pub struct WaitLimit {
    name: String,
    timeout: Option<Duration>,
    until: Option<Instant>,
}

impl WaitLimit {
    pub fn of(args: &RunArgs) -> WaitLimit {
        let limit = args.timeout.filter(|timeout| !timeout.is_zero());
        WaitLimit {
            name: args.name.clone(),
            timeout: args.timeout,
            until: limit.and_then(|limit| Instant::now().checked_add(limit)),
        }
    }

    /// Returns the time left for a request, or `None` without a limit. A timeout of 0 makes a try,
    /// and the library limits the calls of a try. Fails if the time is up.
    pub fn left(&self) -> Result<Option<Duration>, CliError> {
        let Some(until) = self.until else { return Ok(self.timeout.filter(Duration::is_zero)) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(CliError::new(
                TRY_LATER,
                format!(
                    "lock `{}`: timed out after {}; try later, or use a longer --timeout",
                    self.name,
                    self.limit()
                ),
            )),
            left => Ok(Some(left)),
        }
    }

    /// Limits the wait for the servers' answers.
    pub async fn within<T>(
        &self,
        doing: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let until = self.until.and_then(|until| until.checked_add(LAST_WORDS));
        let Some(until) = until else { return doing.await };
        timeout_at(until, doing).await.unwrap_or_else(|_| {
            let message = format!(
                "lock `{}`: the servers did not reply within {}; check that they run and that --redis names them, or use a longer --timeout",
                self.name,
                self.limit()
            );
            Err(CliError::new(UNAVAILABLE, message))
        })
    }

    fn limit(&self) -> String {
        self.timeout.map(format::duration).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
