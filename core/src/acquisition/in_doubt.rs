//! Attempts without an answer, and until when a server may still carry them out.

use std::time::Duration;

use crate::protocol::Doubt;
use crate::time::LocalInstant;

/// Added to a limit by the local clock, since bounds of the server's clock are not exact.
const SLACK_MS: u64 = 1_000;

/// Until when attempts without an answer may still be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InDoubtUntil {
    /// The limit by the local clock, for all attempts.
    pub local_deadline: LocalInstant,
    /// The greatest `not_after` of the attempts, by the server's clock in ms. `None` if the
    /// `not_after` of an attempt is unknown.
    pub max_not_after: Option<u64>,
}

impl InDoubtUntil {
    /// A call with unknown attempts: it is in flight, or was dropped.
    pub fn local_only(until: LocalInstant) -> Self {
        InDoubtUntil { local_deadline: until, max_not_after: None }
    }

    /// A call that has ended and whose deadline was `until`. `None` if none of its attempts may
    /// still run.
    pub fn of_ended_call(until: LocalInstant, in_doubt: Doubt) -> Option<Self> {
        let max_not_after = match in_doubt {
            Doubt::None => return None,
            Doubt::Until(server_ms) => Some(server_ms),
            Doubt::Unbounded => None,
        };
        Some(InDoubtUntil { local_deadline: until, max_not_after })
    }

    /// When the server refuses the attempts, by the local clock. A server whose clock was set back,
    /// or is behind after the slot has moved to it, may carry them out later.
    pub fn settled_at(&self) -> LocalInstant {
        self.local_deadline.saturating_add(Duration::from_millis(SLACK_MS))
    }

    /// Returns the last server time at which the server may carry out one of the attempts.
    /// `server_now` is the server time in the reply to a call that was sent at `sent`.
    pub fn latest_server_time(&self, server_now: u64, sent: LocalInstant) -> u64 {
        let left = || {
            u64::try_from(self.local_deadline.saturating_duration_since(sent).as_millis())
                .unwrap_or(u64::MAX)
        };
        self.max_not_after
            .unwrap_or_else(|| server_now.saturating_add(left()).saturating_add(SLACK_MS))
    }
}

/// The attempts of both.
pub fn later_of(one: Option<InDoubtUntil>, other: Option<InDoubtUntil>) -> Option<InDoubtUntil> {
    let (Some(a), Some(b)) = (one, other) else {
        return one.or(other);
    };
    let server_ms = a.max_not_after.zip(b.max_not_after).map(|(a, b)| a.max(b));
    let until = a.local_deadline.max(b.local_deadline);
    Some(InDoubtUntil { local_deadline: until, max_not_after: server_ms })
}

#[cfg(test)]
mod tests;
