//! Looks for another master of a server's slots while calls wait for that server, with one task for
//! each server, however many calls wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::task::AbortHandle;

use crate::backend::Address;
use crate::router::lock;
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
mod tests {
    use std::future::pending;

    use super::*;
    use crate::backend::fake::address;
    use crate::health::ClientHealth;

    #[tokio::test]
    async fn a_watcher_ends_with_the_last_call_that_waits() {
        let watchers = MasterWatches::default();
        let looking = Arc::new(());
        let look = |address: &str| {
            let looks = looking.clone();
            watchers.join(
                &RuntimeHandle::current(ClientHealth::default()),
                &self::address(address),
                || async move {
                    let _looks = looks;
                    pending().await
                },
            )
        };
        let (first, second, other) = (look("a"), look("a"), look("b"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop(first);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&looking), 3, "the second one still waits");
        drop((second, other));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&looking), 1);
        drop(look("b"));
        assert_eq!(lock(&watchers.0).len(), 1, "those that have ended are forgotten");
    }
}
