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
