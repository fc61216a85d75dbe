//! The one atomic word that decides who may use a hold. It has the gate, the local writer and the
//! number of local readers. Closing the gate and counting guards change the same word, so they
//! cannot race.

use crate::client::cache::atomic::{AtomicU64, Ordering};

const READER: u64 = 1;
const READERS: u64 = (1 << 24) - 1;
/// New local guards are admitted.
const OPEN: u64 = 1 << 24;
/// The hold is a write, and local writes are allowed.
const WRITES: u64 = 1 << 25;
const WRITER: u64 = 1 << 26;
/// Local requests wait, and must not be passed.
const QUEUED: u64 = 1 << 27;
/// It was recalled, or its gate is closed: the last guard to leave notifies.
const CALLED: u64 = 1 << 28;
const SERVED: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Word(AtomicU64);

/// The word as read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look(u64);

impl Word {
    /// The gate is closed at first.
    pub(super) fn new(writes: bool) -> Word {
        Word(AtomicU64::new(if writes { WRITES } else { 0 }))
    }

    pub(super) fn look(&self) -> Look {
        Look(self.0.load(Ordering::Acquire))
    }

    /// Adds a local reader, if nobody waits.
    pub(super) fn read(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER | QUEUED) == OPEN, READER + SERVED)
    }

    /// Sets the local writer, if nobody else holds or waits.
    pub(super) fn write(&self) -> bool {
        let free =
            |word| word & (OPEN | WRITES | WRITER | QUEUED) == OPEN | WRITES && word & READERS == 0;
        self.enter(free, WRITER + SERVED)
    }

    /// Adds a reader from the queue, which the queue does not exclude.
    pub(super) fn read_in_turn(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER) == OPEN, READER + SERVED)
    }

    /// Sets the writer from the queue.
    pub(super) fn write_in_turn(&self) -> bool {
        let free = |word| word & (OPEN | WRITES | WRITER) == OPEN | WRITES && word & READERS == 0;
        self.enter(free, WRITER + SERVED)
    }

    /// Adds the first guard of a hold, for which the hold was acquired. The gate may still be
    /// closed.
    pub(super) fn admit(&self, writes: bool) {
        let what = if writes { WRITER } else { READER };
        self.0.fetch_add(what + SERVED, Ordering::AcqRel);
    }

    fn enter(&self, may: impl Fn(u64) -> bool, what: u64) -> bool {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if !may(word) || (what & READER != 0 && word & READERS == READERS) {
                return false;
            }
            let next = word.wrapping_add(what);
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => word = other,
            }
        }
    }

    /// Removes a reader. True if it was the last one and must notify.
    pub(super) fn leave_read(&self) -> bool {
        let word = self.0.fetch_sub(READER, Ordering::AcqRel) - READER;
        Look(word).is_unused() && word & (QUEUED | CALLED) != 0
    }

    /// Removes the writer, and closes the gate in the same step if `close`. True if it must notify.
    pub(super) fn leave_write(&self, close: bool) -> bool {
        let gone = if close { WRITER | OPEN } else { WRITER };
        let word = self.0.fetch_and(!gone, Ordering::AcqRel);
        close || word & (QUEUED | CALLED) != 0
    }

    /// Turns the writer into a reader.
    pub(super) fn downgrade(&self) -> bool {
        let word = self.0.fetch_sub(WRITER - READER, Ordering::AcqRel);
        word & (QUEUED | CALLED) != 0
    }

    pub(super) fn open(&self) {
        self.0.fetch_or(OPEN, Ordering::AcqRel);
    }

    /// Closes the gate until it is opened again.
    pub(super) fn shut(&self) {
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// Closes the gate for good.
    pub(super) fn close(&self) -> Look {
        self.0.fetch_or(CALLED, Ordering::AcqRel);
        Look(self.0.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN)
    }

    /// Whether the last guard to leave notifies.
    pub(super) fn set_called(&self, called: bool) {
        self.set(CALLED, called);
    }

    /// Ends local writes: the hold is to become a read.
    pub(super) fn only_reads(&self) -> Look {
        Look(self.0.fetch_and(!WRITES, Ordering::AcqRel) & !WRITES)
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

impl Look {
    pub(super) fn readers(self) -> u64 {
        self.0 & READERS
    }

    pub(super) fn has_writer(self) -> bool {
        self.0 & WRITER != 0
    }

    pub(super) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    pub(super) fn may_write(self) -> bool {
        self.0 & WRITES != 0
    }

    pub(super) fn is_unused(self) -> bool {
        self.0 & (READERS | WRITER) == 0
    }

    /// The number of guards it has granted, modulo 2^32.
    pub(super) fn served(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(rwlease_loom)))]
mod tests {
    use super::*;

    fn open(writes: bool) -> Word {
        let word = Word::new(writes);
        word.open();
        word
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let word = open(true);
        assert!(word.read() && word.read() && !word.write());
        assert_eq!(word.look().readers(), 2);
        assert!(!word.leave_read() && !word.leave_read(), "nobody wants to know");
        assert!(word.write() && !word.write() && !word.read());
        assert!(!word.leave_write(false));
        assert!(word.look().is_unused());
        assert_eq!(word.look().served(), 3);
        assert!(!open(false).write(), "a hold to read has no writer");
    }

    #[test]
    fn word_with_queued_requests_admits_guards_only_from_the_queue() {
        let word = open(true);
        word.set_queued(true);
        assert!(!word.read() && !word.write());
        assert!(word.read_in_turn() && !word.write_in_turn());
        assert!(word.leave_read(), "the last one tells");
        assert!(word.write_in_turn() && !word.read_in_turn());
        assert!(word.leave_write(false));
        word.set_queued(false);
        assert!(word.read());
    }

    #[test]
    fn word_closed_admits_no_guard_and_the_last_guard_notifies() {
        let word = open(true);
        assert!(word.read());
        assert_eq!(word.close().readers(), 1);
        assert!(!word.read() && !word.read_in_turn() && !word.write_in_turn());
        assert!(word.leave_read());
        let closing = open(true);
        assert!(closing.write());
        assert!(closing.leave_write(true), "its block of tokens is used up");
        assert!(!closing.look().is_open() && !closing.read());
    }

    #[test]
    fn a_writer_becomes_a_reader_in_one_step() {
        let word = open(true);
        assert!(word.write());
        assert!(!word.downgrade());
        assert!(word.read() && !word.write());
        assert_eq!(word.look().readers(), 2);
        assert!(word.only_reads().readers() == 2 && !word.look().may_write());
        word.set_called(true);
        assert!(!word.leave_read() && word.leave_read());
        word.set_called(false);
        assert!(word.read() && !word.leave_read(), "the recall is over");
    }
}
