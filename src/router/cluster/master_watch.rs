//! Looks for another master of a server's slots while calls wait for that server, with one task for
//! each server, however many calls wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use rwlease_core::resp::Address;
use tokio_util::task::AbortOnDropHandle;

use crate::locks::lock;
use crate::router::runtime::RuntimeHandle;

/// The watchers, by the server that calls wait for. A watcher is a task that looks until the last
/// waiting call has dropped it.
#[derive(Debug, Default)]
pub(crate) struct MasterWatches(Mutex<HashMap<Address, Weak<AbortOnDropHandle<()>>>>);

impl MasterWatches {
    /// The running watcher for this server, or a new one that runs `look`.
    pub(crate) fn join<F>(
        &self,
        runtime: &RuntimeHandle,
        address: &Address,
        look: impl FnOnce() -> F,
    ) -> Arc<AbortOnDropHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut watchers = lock(&self.0);
        if let Some(watcher) = watchers.get(address).and_then(Weak::upgrade) {
            return watcher;
        }
        watchers.retain(|_, watcher| watcher.strong_count() > 0);
        let watcher =
            Arc::new(AbortOnDropHandle::new(runtime.spawn("search for a master", look())));
        watchers.insert(address.clone(), Arc::downgrade(&watcher));
        watcher
    }
}

#[cfg(test)]
mod tests;
