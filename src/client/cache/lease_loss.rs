//! The loss of a cached lease.

use rwlease_core::acquisition::AcquisitionEvent;
use rwlease_core::time::LocalInstant;

use crate::client::cache::cached_lease::CachedLease;
use crate::client::cache::cached_lock::CachedLock;
use crate::client::cache::telemetry;
use crate::client::loss::LeaseLoss;
use crate::fencing_token::FencingToken;

/// Loses a lease for all its guards. It is reported once, and to users only if there are guards.
pub(super) fn mark_lost(cached_lock: &CachedLock, lease: &CachedLease, now: LocalInstant) {
    lease.gate.mark_lost();
    let snapshot = lease.gate.snapshot();
    let guards = snapshot.readers() + u64::from(snapshot.has_writer());
    let held = lease.acquisition.with_lease(|holding| (holding.mode, holding.deadline));
    // If another history of the lock is served by now, the lease may still be there.
    cached_lock.client.apply(&lease.acquisition, AcquisitionEvent::Abandon);
    let Some((mode, ends)) = held else {
        return; // the client has ended
    };
    if guards > 0 {
        // A panic of a task fails the client as soon as the task has ended.
        let has_failed = cached_lock.client.failure().is_some() || std::thread::panicking();
        let reason = match has_failed {
            true => "client_failed",
            false if now < ends => "not_held",
            false => "expired",
        };
        let loss = LeaseLoss {
            lock: cached_lock.lock.name.clone(),
            slot: cached_lock.lock.slot,
            mode,
            fencing_token: FencingToken::from_wire(lease.gate.last_token()),
            held_for: now.saturating_duration_since(lease.granted_at),
            guard_count: guards,
        };
        cached_lock.client.lose(loss, reason);
    }
    telemetry::record_loss(&cached_lock.lock, guards > 0);
}
