//! Checks exclusion: it notices a writer that is not alone.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rwlease::{ReleaseOutcome, RwLock};

/// Tracks who is inside, and panics if a writer is not alone.
#[derive(Debug, Default)]
pub struct ExclusionCheck(AtomicI32);

impl ExclusionCheck {
    pub async fn reads(&self) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 0, "a reader beside a writer");
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes the lock and releases it, and checks in between.
    pub async fn takes(&self, lock: &RwLock, writes: bool) -> rwlease::Result<ReleaseOutcome> {
        if writes {
            let guard = lock.write().await?;
            self.writes().await;
            guard.release().await
        } else {
            let guard = lock.read().await?;
            self.reads().await;
            guard.release().await
        }
    }

    pub async fn writes(&self) {
        assert_eq!(self.0.swap(-1_000, Ordering::SeqCst), 0, "a writer beside others");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(self.0.swap(0, Ordering::SeqCst), -1_000, "somebody came in beside a writer");
    }
}
