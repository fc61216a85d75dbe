//! How long a server is the master: its answers count no longer than that.

use std::sync::atomic::{AtomicBool, Ordering};

/// The time from when a server was named as the master to when another one is.
#[derive(Debug, Default)]
pub(crate) struct Tenure {
    is_over: AtomicBool,
}

impl Tenure {
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
