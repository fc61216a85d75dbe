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
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn command_is_terminated_then_killed_before_the_lease_ends() {
        let deadlines = Deadlines::new(ms(10_000), None).unwrap(); // 2500 of grace, 500 in reserve
        assert_eq!(deadlines.step(ms(9_500), None), DeadlineAction::Wait(MAX_SLEEP));
        assert_eq!(deadlines.step(ms(3_100), None), DeadlineAction::Wait(ms(100)));
        assert_eq!(deadlines.step(ms(3_000), None), DeadlineAction::Terminate);
        assert_eq!(deadlines.step(ms(700), Some(ms(2_299))), DeadlineAction::Wait(ms(200)));
        assert_eq!(deadlines.step(ms(500), Some(ms(2_400))), DeadlineAction::Kill);
        // The lease was made longer again, but what was told to end has to end.
        assert_eq!(deadlines.step(ms(9_000), Some(ms(2_500))), DeadlineAction::Kill);
    }

    #[test]
    fn command_without_lease_left_is_killed_at_once() {
        let deadlines = Deadlines::new(ms(1_500), None).unwrap();
        assert_eq!(deadlines.step(Duration::ZERO, None), DeadlineAction::Kill);
        assert_eq!(deadlines.step(ms(75), None), DeadlineAction::Kill);
    }

    #[test]
    fn grace_that_leaves_no_time_to_renew_is_refused() {
        assert!(Deadlines::new(ms(900), Some(ms(301))).is_err());
        assert!(Deadlines::new(ms(900), Some(ms(300))).is_ok());
    }
}
