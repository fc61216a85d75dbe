//! The time limit of a wait.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::args::RunArgs;
use crate::exit::{CliError, TRY_LATER, UNAVAILABLE};
use crate::format;

/// How long after the limit a wait may still say why it failed.
const LAST_WORDS: Duration = Duration::from_millis(100);

const NO_ANSWER: &str =
    "the servers did not answer in time; check that they run and that --redis names them";

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

    /// The time left for a request. A timeout of 0 makes a try, whose calls have limits of their
    /// own. Fails if the time is up.
    pub fn left(&self) -> Result<Option<Duration>, CliError> {
        let Some(until) = self.until else { return Ok(self.timeout.filter(Duration::is_zero)) };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(CliError::new(
                TRY_LATER,
                format!(
                    "lock `{}`: the time was up before it was granted; try later, or use a longer --timeout",
                    self.name
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
        let Some(until) = self.until else { return doing.await };
        timeout_at(until + LAST_WORDS, doing).await.unwrap_or_else(|_| {
            let limit = self.timeout.map(format::duration).unwrap_or_default();
            let advice = format!("or use a --timeout longer than {limit}");
            let message = format!("lock `{}`: {NO_ANSWER}, {advice}", self.name);
            Err(CliError::new(UNAVAILABLE, message))
        })
    }
}
