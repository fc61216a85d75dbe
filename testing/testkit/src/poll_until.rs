//! Waiting for something without an event: check, pause, check again, and fail with a message after
//! a generous time.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Error, Result};

const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// How long one thing is waited for.
#[derive(Debug)]
pub struct PollLimit {
    what: String,
    limit: Duration,
    since: Instant,
}

impl PollLimit {
    /// `what` completes the sentence "waited for ...".
    pub fn new(what: impl Into<String>) -> Self {
        Self::limited(what, LIMIT)
    }

    pub fn limited(what: impl Into<String>, limit: Duration) -> Self {
        PollLimit { what: what.into(), limit, since: Instant::now() }
    }

    /// A short sleep, or an error that says what was seen last.
    pub async fn pause(&self, seen: impl Display + Send) -> Result {
        if self.since.elapsed() >= self.limit {
            return Err(Error::new(format!(
                "waited {:?} for {}; last: {seen}",
                self.limit, self.what
            )));
        }
        sleep(PAUSE).await;
        Ok(())
    }

    /// Repeats a check until it returns true.
    pub async fn until<F>(&self, mut check: impl FnMut() -> F) -> Result
    where
        F: Future<Output = Result<bool>>,
    {
        while !check().await? {
            self.pause("not yet").await?;
        }
        Ok(())
    }

    /// Repeats a check until it succeeds, and returns what it found.
    pub async fn until_ok<T, F>(&self, mut check: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        loop {
            match check().await {
                Ok(found) => return Ok(found),
                Err(error) => self.pause(error).await?,
            }
        }
    }
}
