//! Recalls of leases that this client has released.

use std::sync::Arc;
use std::time::Duration;

use rwlease_core::protocol::{AcquisitionId, Confirmation, LockKey, ReleaseRequest};
use rwlease_core::slot::Slot;

use crate::client::ClientInner;

/// The client answers one such recall in this time. Waiters repeat theirs.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of locks in the slot that are tried.
const MAX_LOCKS: usize = 64;

/// Releases an acquisition that has ended here. A failover has restored it, because the release was
/// lost. The recall does not name the lock, so the release is sent to each lock that is cached in
/// the slot. Where the acquisition holds nothing, it changes nothing.
pub(crate) fn release_ended(client: &Arc<ClientInner>, slot: Slot, id: AcquisitionId) {
    let now = client.clock.now();
    if !client.stale_recall_limit.try_acquire(now, MIN_INTERVAL) {
        return;
    }
    let entries = client.cached_locks_in(slot);
    let locks: Vec<LockKey> =
        entries.iter().take(MAX_LOCKS).map(|cached_lock| cached_lock.lock.clone()).collect();
    let released = client.clone();
    client.spawn("release of a stray lease", async move {
        let client = released;
        let until = client.call_deadline(Confirmation::default());
        for lock in locks {
            // A waiter sends the recall again.
            let call = ReleaseRequest::ALL.call(id, &lock);
            drop(client.transport.call(&call, until).await);
        }
    });
}
