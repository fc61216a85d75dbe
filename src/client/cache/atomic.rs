//! The atomics of the gate: those of std, or of loom where that searches the interleavings.

#[cfg(not(all(test, rwlease_loom)))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(all(test, rwlease_loom))]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
