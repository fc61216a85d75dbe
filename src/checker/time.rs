//! Time stands still: in every state the time is the same, and a tick moves everything else into
//! the past.

use std::time::Duration;

use crate::client::acquisition::shift::Visitor;
use crate::clock::Moment;

/// The length of a tick: the grace of the scripts.
pub(super) const UNIT: Duration = Duration::from_secs(10);
pub(super) const UNIT_MS: u64 = 10_000;

/// The reading of the clients' clocks, and of the server's.
pub(super) const NOW: Moment = Moment::from_origin(Duration::from_secs(1_000));
pub(super) const SERVER_NOW: u64 = 1_735_689_600_000;

/// Microseconds within a millisecond, to leave room for tokens of the past.
const ROOM: u64 = 501;
pub(super) const SERVER_US: u64 = SERVER_NOW * 1_000 + ROOM;

/// The least token. The others follow it in order.
pub(super) const FIRST_TOKEN: u64 = SERVER_NOW * 1_000 + 1;

/// The reading of the server's clock at a local moment.
pub(super) fn server_ms(moment: Moment) -> u64 {
    SERVER_NOW + moment.since(NOW).as_millis() as u64 - NOW.since(moment).as_millis() as u64
}

/// Makes a state older. Times that can no longer matter become equal.
pub(super) struct Older {
    pub(super) by_ms: u64,
}

impl Older {
    fn earlier(&self, moment: Moment) -> Moment {
        moment.before(Duration::from_millis(self.by_ms))
    }
}

impl Visitor for Older {
    fn due(&mut self, moment: &mut Moment) {
        if moment.since_origin() != Duration::MAX {
            *moment = self.earlier(*moment).max(NOW);
        }
    }

    fn learned(&mut self, moment: &mut Moment) {
        *moment = self.earlier(*moment).max(NOW.before(2 * UNIT));
    }

    fn told(&mut self, moment: &mut Moment) {
        *moment = NOW;
    }

    fn server_ms(&mut self, ms: &mut u64) {
        *ms = (*ms - self.by_ms).max(SERVER_NOW - UNIT_MS - 1); // an answer is at most a unit old
    }

    fn token(&mut self, _: &mut u64) {}
}

/// Visits every token.
pub(super) struct Tokens<F>(pub(super) F);

impl<F: FnMut(&mut u64)> Visitor for Tokens<F> {
    fn due(&mut self, _: &mut Moment) {}
    fn learned(&mut self, _: &mut Moment) {}
    fn told(&mut self, _: &mut Moment) {}
    fn server_ms(&mut self, _: &mut u64) {}

    fn token(&mut self, token: &mut u64) {
        (self.0)(token);
    }
}
