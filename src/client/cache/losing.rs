//! The loss of a hold.

use crate::client::acquisition::Event;
use crate::client::cache::entry::Entry;
use crate::client::cache::hold::Hold;
use crate::client::cache::telemetry;
use crate::client::lost::Loss;
use crate::clock::Moment;

/// Loses a hold for all its guards. It is reported once, and to users only if there are guards.
pub(super) fn lose(entry: &Entry, hold: &Hold, now: Moment) {
    hold.gate.lose();
    let look = hold.gate.look();
    let guards = look.readers() + u64::from(look.has_writer());
    let held = hold.acquisition.holding(|holding| (holding.mode, holding.ends));
    // If another history of the lock is served by now, the lease may still be there.
    entry.client.on(&hold.acquisition, Event::Drop);
    let Some((mode, ends)) = held else {
        return; // the client has ended
    };
    if guards > 0 {
        let outcome = match entry.client.failure() {
            Some(_) => "client_failed",
            None if now < ends => "taken",
            None => "expired",
        };
        let loss = Loss {
            lock: entry.lock.name.clone(),
            slot: entry.lock.slot,
            mode,
            token: hold.gate.last_token(),
            held: now.since(hold.since),
            guards,
        };
        entry.client.lose(loss, outcome);
    }
    telemetry::lost(&entry.lock, guards > 0);
}
