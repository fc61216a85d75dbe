//! Looks for another master of a server's slots while calls wait for that server, with one task for
//! each server, however many calls wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use rwlease_core::resp::Address;
use tokio::task::AbortHandle;

use crate::locks::lock;
use crate::router::runtime::RuntimeHandle;

/// The watchers, by the server that calls wait for.
#[derive(Debug, Default)]
pub(crate) struct MasterWatches(Mutex<HashMap<Address, Weak<MasterWatch>>>);

/// A task that looks until the last waiting call has dropped its watcher.
#[derive(Debug)]
pub(crate) struct MasterWatch(AbortHandle);

impl MasterWatches {
    /// The running watcher for this server, or a new one that runs `look`.
    pub(crate) fn join<F>(
        &self,
        runtime: &RuntimeHandle,
        address: &Address,
        look: impl FnOnce() -> F,
    ) -> Arc<MasterWatch>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut watchers = lock(&self.0);
        if let Some(watcher) = watchers.get(address).and_then(Weak::upgrade) {
            return watcher;
        }
        watchers.retain(|_, watcher| watcher.strong_count() > 0);
        let watcher =
            Arc::new(MasterWatch(runtime.spawn("search for a master", look()).abort_handle()));
        watchers.insert(address.clone(), Arc::downgrade(&watcher));
        watcher
    }
}

impl Drop for MasterWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
