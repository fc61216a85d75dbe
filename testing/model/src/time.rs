//! Time stands still: in every state the time is the same, and a tick of a clock moves everything
//! else that this clock measures into the past.

use std::time::Duration;

use rwlease_core::acquisition::TimeVisitor;
use rwlease_core::time::LocalInstant;

/// The length of a tick: the grace of the scripts.
pub const UNIT: Duration = Duration::from_secs(10);
pub const UNIT_MS: u64 = 10_000;

/// The reading of the clients' clocks, and of the server's.
pub const LOCAL_NOW: LocalInstant = LocalInstant::from_duration(Duration::from_secs(1_000));
pub const SERVER_NOW: u64 = 1_735_689_600_000;

/// Microseconds within a millisecond, to leave room for tokens of the past.
const ROOM: u64 = 501;
pub const SERVER_US: u64 = SERVER_NOW * 1_000 + ROOM;

/// The least token. The others follow it in order.
pub const FIRST_TOKEN: u64 = SERVER_NOW * 1_000 + 1;

/// The reading of the server's clock at a local moment.
pub fn server_ms(moment: LocalInstant) -> u64 {
    SERVER_NOW + moment.saturating_duration_since(LOCAL_NOW).as_millis() as u64
        - LOCAL_NOW.saturating_duration_since(moment).as_millis() as u64
}

/// Makes what a client knows older, by its own clock and by the server's. Times that can no longer
/// matter become equal.
#[derive(Clone, Copy, Debug)]
pub struct AgingVisitor {
    pub local_ms: u64,
    pub server_ms: u64,
    /// The age of the oldest answer, by the server's clock.
    pub oldest_answer_ms: u64,
}

impl AgingVisitor {
    fn earlier(&self, moment: LocalInstant) -> LocalInstant {
        moment.saturating_sub(Duration::from_millis(self.local_ms))
    }
}

impl TimeVisitor for AgingVisitor {
    fn visit_deadline(&mut self, moment: &mut LocalInstant) {
        if moment.as_duration() != Duration::MAX {
            *moment = self.earlier(*moment).max(LOCAL_NOW);
        }
    }

    fn visit_sent_time(&mut self, moment: &mut LocalInstant) {
        *moment = self.earlier(*moment).max(LOCAL_NOW.saturating_sub(2 * UNIT));
    }

    fn visit_reported_time(&mut self, moment: &mut LocalInstant) {
        *moment = LOCAL_NOW;
    }

    fn visit_server_time(&mut self, ms: &mut u64) {
        *ms = (*ms - self.server_ms).max(SERVER_NOW - self.oldest_answer_ms - 1);
    }

    fn visit_token(&mut self, _: &mut u64) {}
}

/// Visits every token.
pub struct TokenVisitor<F>(pub F);

impl<F: FnMut(&mut u64)> TimeVisitor for TokenVisitor<F> {
    fn visit_deadline(&mut self, _: &mut LocalInstant) {}
    fn visit_sent_time(&mut self, _: &mut LocalInstant) {}
    fn visit_reported_time(&mut self, _: &mut LocalInstant) {}
    fn visit_server_time(&mut self, _: &mut u64) {}

    fn visit_token(&mut self, token: &mut u64) {
        (self.0)(token);
    }
}
