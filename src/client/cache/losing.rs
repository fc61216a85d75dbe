//! The loss of a hold.

use crate::client::acquisition::Event;
use crate::client::cache::entry::Entry;
use crate::client::cache::hold::Hold;
use crate::client::cache::telemetry;
use crate::client::lost::Loss;
use crate::client::telemetry::lost;
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
    telemetry::lost(&entry.lock, guards > 0);
    if guards > 0 {
        let outcome = if now < ends { "taken" } else { "expired" };
        let loss = Loss {
            lock: entry.lock.name.clone(),
            slot: entry.lock.slot,
            mode,
            token: hold.gate.last_token(),
            held: now.since(hold.since),
            guards,
        };
        lost(&loss, outcome);
        entry.client.settings.on_lost.tell(&loss);
    }
}
