//! The atomic that decides which guards may use a cached lease. It has the gate, the local writer
//! and the number of local readers. Closing the gate and counting guards change the same word, so
//! they cannot race.

// loom searches the interleavings of its own atomics.
#[cfg(all(test, rwlease_loom))]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(all(test, rwlease_loom)))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const ONE_READER: u64 = 1;
const READER_MASK: u64 = (1 << 24) - 1;
/// New local guards are admitted.
const OPEN: u64 = 1 << 24;
/// The lease is a write, and local writes are allowed.
const WRITES: u64 = 1 << 25;
const WRITER: u64 = 1 << 26;
/// Local requests wait, and must not be passed.
const QUEUED: u64 = 1 << 27;
/// It was recalled, or its gate is closed: the last guard to leave notifies.
const NOTIFY_LAST: u64 = 1 << 28;
const ONE_GRANT: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct AtomicGate(AtomicU64);

/// The word as read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateSnapshot(u64);

impl AtomicGate {
    /// The gate is closed at first.
    pub(super) fn new(writes: bool) -> AtomicGate {
        AtomicGate(AtomicU64::new(if writes { WRITES } else { 0 }))
    }

    pub(super) fn load(&self) -> GateSnapshot {
        GateSnapshot(self.0.load(Ordering::Acquire))
    }

    /// Adds a local reader, if no local request waits.
    pub(super) fn try_enter_reader(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER | QUEUED) == OPEN, ONE_READER + ONE_GRANT)
    }

    /// Sets the local writer, if no other guard exists and no local request waits.
    pub(super) fn try_enter_writer(&self) -> bool {
        let free = |word| {
            word & (OPEN | WRITES | WRITER | QUEUED) == OPEN | WRITES && word & READER_MASK == 0
        };
        self.enter(free, WRITER + ONE_GRANT)
    }

    /// Adds a reader from the queue, which the queue does not exclude.
    pub(super) fn enter_queued_reader(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER) == OPEN, ONE_READER + ONE_GRANT)
    }

    pub(super) fn enter_queued_writer(&self) -> bool {
        let free =
            |word| word & (OPEN | WRITES | WRITER) == OPEN | WRITES && word & READER_MASK == 0;
        self.enter(free, WRITER + ONE_GRANT)
    }

    /// Adds the first guard of a lease, for which the lease was acquired. The gate may still be
    /// closed.
    pub(super) fn admit(&self, writes: bool) {
        let what = if writes { WRITER } else { ONE_READER };
        self.0.fetch_add(what + ONE_GRANT, Ordering::AcqRel);
    }

    fn enter(&self, may: impl Fn(u64) -> bool, what: u64) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if !may(word) || (what & ONE_READER != 0 && word & READER_MASK == READER_MASK) {
                return false;
            }
            let next = word.wrapping_add(what);
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    /// Removes a reader. Returns true if it was the last guard and must notify.
    pub(super) fn leave_read(&self) -> bool {
        let word = self.0.fetch_sub(ONE_READER, Ordering::AcqRel) - ONE_READER;
        GateSnapshot(word).is_unused() && word & (QUEUED | NOTIFY_LAST) != 0
    }

    /// Removes the writer, and closes the gate in the same step if `close`. True if it must notify.
    pub(super) fn leave_write(&self, close: bool) -> bool {
        let gone = if close { WRITER | OPEN } else { WRITER };
        let word = self.0.fetch_and(!gone, Ordering::AcqRel);
        close || word & (QUEUED | NOTIFY_LAST) != 0
    }

    /// Turns the writer into a reader.
    pub(super) fn downgrade(&self) -> bool {
        let word = self.0.fetch_sub(WRITER - ONE_READER, Ordering::AcqRel);
        word & (QUEUED | NOTIFY_LAST) != 0
    }

    pub(super) fn open(&self) {
        self.0.fetch_or(OPEN, Ordering::AcqRel);
    }

    /// Closes the gate until it is opened again.
    pub(super) fn close_temporarily(&self) {
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    pub(super) fn close(&self) -> GateSnapshot {
        self.0.fetch_or(NOTIFY_LAST, Ordering::AcqRel);
        GateSnapshot(self.0.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN)
    }

    /// Whether the last guard to leave notifies.
    pub(super) fn set_notify_last(&self, called: bool) {
        self.set(NOTIFY_LAST, called);
    }

    /// Ends local writes: the lease is to become a read.
    pub(super) fn forbid_writers(&self) -> GateSnapshot {
        GateSnapshot(self.0.fetch_and(!WRITES, Ordering::AcqRel) & !WRITES)
    }

    pub(super) fn set_queued(&self, queued: bool) {
        self.set(QUEUED, queued);
    }

    fn set(&self, flag: u64, is_set: bool) {
        match is_set {
            true => self.0.fetch_or(flag, Ordering::AcqRel),
            false => self.0.fetch_and(!flag, Ordering::AcqRel),
        };
    }
}

impl GateSnapshot {
    pub(super) fn readers(self) -> u64 {
        self.0 & READER_MASK
    }

    pub(super) fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    pub(super) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    pub(super) fn allows_writers(self) -> bool {
        self.0 & WRITES != 0
    }

    pub(super) fn is_unused(self) -> bool {
        self.0 & (READER_MASK | WRITER) == 0
    }

    /// The number of guards it has granted, modulo 2^32.
    pub(super) fn grant_count(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(rwlease_loom)))]
mod tests;
