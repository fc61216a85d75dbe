//! The loss of a hold.

use crate::client::acquisition::AcquisitionEvent;
use crate::client::cache::entry::CachedLock;
use crate::client::cache::hold::CachedLease;
use crate::client::cache::telemetry;
use crate::client::loss::LeaseLoss;
use crate::clock::LocalInstant;

/// Loses a hold for all its guards. It is reported once, and to users only if there are guards.
pub(super) fn mark_lost(entry: &CachedLock, hold: &CachedLease, now: LocalInstant) {
    hold.gate.lose();
    let look = hold.gate.look();
    let guards = look.readers() + u64::from(look.has_writer());
    let held = hold.acquisition.with_lease(|holding| (holding.mode, holding.deadline));
    // If another history of the lock is served by now, the lease may still be there.
    entry.client.apply(&hold.acquisition, AcquisitionEvent::Abandon);
    let Some((mode, ends)) = held else {
        return; // the client has ended
    };
    if guards > 0 {
        let outcome = match entry.client.failure() {
            Some(_) => "client_failed",
            None if now < ends => "taken",
            None => "expired",
        };
        let loss = LeaseLoss {
            lock: entry.lock.name.clone(),
            slot: entry.lock.slot,
            mode,
            token: hold.gate.last_token(),
            held_for: now.saturating_duration_since(hold.granted_at),
            guard_count: guards,
        };
        entry.client.lose(loss, outcome);
    }
    telemetry::record_loss(&entry.lock, guards > 0);
}
