//! How long a server is the master. Its answers count no longer than that.

use std::sync::atomic::{AtomicBool, Ordering};

/// From the time when a server was named as the master until another one is named.
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
