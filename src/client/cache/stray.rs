//! A recall of what this client has given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::clock::Moment;
use crate::protocol::{AcquisitionId, LockKey, Release};
use crate::slot::Slot;

/// A client answers one such recall in this time: whoever waits repeats it.
const PAUSE: Duration = Duration::from_secs(1);

/// The most locks of the slot that are tried.
const MOST: usize = 64;

/// When the next one may be answered.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

impl Pause {
    fn take(&self, now: Moment) -> bool {
        let (now, next) = (now.as_nanos(), now.after(PAUSE).as_nanos());
        let free = |due: u64| (due <= now).then_some(next);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok()
    }
}

/// Releases an acquisition that is over here: a failover has brought it back, for the release was
/// lost. The recall does not name the lock, so it is released at each that is cached in the slot:
/// where it holds nothing, that changes nothing.
pub(crate) fn release(client: &Arc<Client>, slot: Slot, id: AcquisitionId) {
    let now = client.clock.now();
    if !client.stray.take(now) {
        return;
    }
    let entries = client.cache_entries(slot);
    let locks: Vec<LockKey> = entries.iter().take(MOST).map(|entry| entry.lock.clone()).collect();
    let released = client.clone();
    client.spawn(async move {
        let client = released;
        let release = Release { only_wait: false };
        let until = client.clock.now().after(client.settings.call_timeout);
        for lock in locks {
            // Whoever waits asks again.
            let call = release.call(client.scripts, id, &lock);
            drop(client.router.call(&call, until).await);
        }
    });
}
