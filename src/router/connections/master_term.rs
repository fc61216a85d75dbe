//! How long a server is the master, or the one that a name leads to. Its answers count no longer.

use std::sync::atomic::{AtomicBool, Ordering};

/// From the time when a server was named as the master until another one is named; without
/// sentinels, from the time when a process was found until another one has replaced it.
#[derive(Debug, Default)]
pub(crate) struct MasterTerm {
    has_ended: AtomicBool,
}

impl MasterTerm {
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests;
