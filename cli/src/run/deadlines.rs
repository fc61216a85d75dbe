//! When a command gets SIGTERM and SIGKILL if its lease is not renewed.

use std::time::Duration;

use crate::exit::CliError;
use crate::format;

/// The longest sleep between two checks: a sleep stands still while the machine is suspended, but a
/// lease does not.
const MAX_SLEEP: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From SIGTERM to SIGKILL.
    grace: Duration,
    /// The time from SIGKILL to the local end of the lease, so that the processes are dead by the
    /// end. The lease ends at the server later.
    reserve: Duration,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineAction {
    /// Nothing, for at most this long.
    Wait(Duration),
    Terminate,
    Kill,
}

impl Deadlines {
    /// The grace is at most a third of the lease: a renewal is due after a third, and needs time
    /// for retries.
    pub fn new(lease: Duration, grace: Option<Duration>) -> Result<Self, CliError> {
        let grace = grace.unwrap_or((lease / 4).min(Duration::from_secs(10)));
        if grace > lease / 3 {
            let message =
                format!("--grace {} is more than a third of the lease", format::duration(grace));
            return Err(CliError::usage(format!(
                "{message}; use a longer --lease or a shorter --grace"
            )));
        }
        let reserve = (lease / 20).min(Duration::from_millis(500));
        Ok(Deadlines { grace, reserve })
    }

    /// Returns true if so little is left that the command would be told to end soon after its
    /// start.
    pub fn are_near(&self, left: Duration) -> bool {
        left < (self.grace + self.reserve) * 2
    }

    /// Returns the step for a lease with the local time `left`. `told` is how long ago the command
    /// was told to end.
    pub fn step(&self, left: Duration, told: Option<Duration>) -> DeadlineAction {
        let Deadlines { grace, reserve } = *self;
        let until_kill = left.saturating_sub(reserve);
        match told {
            _ if until_kill.is_zero() => DeadlineAction::Kill,
            Some(told) if told >= grace => DeadlineAction::Kill,
            Some(told) => DeadlineAction::Wait(until_kill.min(grace - told).min(MAX_SLEEP)),
            None if until_kill <= grace => DeadlineAction::Terminate,
            None => DeadlineAction::Wait((until_kill - grace).min(MAX_SLEEP)),
        }
    }
}

#[cfg(test)]
mod tests;
