//! Time stands still: in every state it is now, and a tick moves all else into the past.

use std::time::Duration;

use crate::client::acquisition::shift::Visitor;
use crate::clock::Moment;

/// How far a tick goes: the grace of the scripts.
pub(super) const UNIT: Duration = Duration::from_secs(10);
pub(super) const UNIT_MS: u64 = 10_000;

/// What the clients' clocks read, and the server's.
pub(super) const NOW: Moment = Moment::from_origin(Duration::from_secs(1_000));
pub(super) const SERVER_NOW: u64 = 1_735_689_600_000;

/// Microseconds within the millisecond that tokens of the past have room in.
const ROOM: u64 = 501;
pub(super) const SERVER_US: u64 = SERVER_NOW * 1_000 + ROOM;

/// The least token: the others follow it in their order.
pub(super) const FIRST_TOKEN: u64 = SERVER_NOW * 1_000 + 1;

/// What the server's clock reads at a local moment.
pub(super) fn server_ms(moment: Moment) -> u64 {
    SERVER_NOW + moment.since(NOW).as_millis() as u64 - NOW.since(moment).as_millis() as u64
}

/// A state that has grown older. What can never matter any more is made alike.
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
        *ms = (*ms - self.by_ms).max(SERVER_NOW - UNIT_MS - 1); // an answer is a unit old at most
    }

    fn token(&mut self, _: &mut u64) {}
}

/// Has every token pass by.
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
