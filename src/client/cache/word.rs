//! The one word that decides who may use a hold: whether its gate is open, its local writer, its
//! local readers. Closing the gate and counting guards are steps on the same word, so they cannot
//! race.

use std::sync::atomic::{AtomicU64, Ordering};

const READER: u64 = 1;
const READERS: u64 = (1 << 24) - 1;
/// New local guards may come out.
const OPEN: u64 = 1 << 24;
/// The hold is a write, and local writes are allowed.
const WRITES: u64 = 1 << 25;
const WRITER: u64 = 1 << 26;
/// Local requests wait: nobody barges past them.
const QUEUED: u64 = 1 << 27;
/// It was called back, or its gate is closed: the last one to leave tells.
const CALLED: u64 = 1 << 28;
const SERVED: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct Word(AtomicU64);

/// The word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look(u64);

impl Word {
    /// The gate is closed.
    pub(super) fn new(writes: bool) -> Word {
        Word(AtomicU64::new(if writes { WRITES } else { 0 }))
    }

    pub(super) fn look(&self) -> Look {
        Look(self.0.load(Ordering::Acquire))
    }

    /// One local reader more, if nobody waits.
    pub(super) fn read(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER | QUEUED) == OPEN, READER + SERVED)
    }

    /// The local writer, if nobody else is there or waits.
    pub(super) fn write(&self) -> bool {
        let free =
            |word| word & (OPEN | WRITES | WRITER | QUEUED) == OPEN | WRITES && word & READERS == 0;
        self.enter(free, WRITER + SERVED)
    }

    /// One reader more out of the queue: it does not stand in its own way.
    pub(super) fn read_in_turn(&self) -> bool {
        self.enter(|word| word & (OPEN | WRITER) == OPEN, READER + SERVED)
    }

    /// The writer out of the queue.
    pub(super) fn write_in_turn(&self) -> bool {
        let free = |word| word & (OPEN | WRITES | WRITER) == OPEN | WRITES && word & READERS == 0;
        self.enter(free, WRITER + SERVED)
    }

    /// The first guard of a hold, whose gate may still be closed: it is what the hold was acquired
    /// for.
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

    /// A reader goes. True if it was the last one, and somebody wants to know.
    pub(super) fn leave_read(&self) -> bool {
        let word = self.0.fetch_sub(READER, Ordering::AcqRel) - READER;
        Look(word).is_unused() && word & (QUEUED | CALLED) != 0
    }

    /// The writer goes, and closes the gate in the same step if `close`. True if somebody wants to
    /// know.
    pub(super) fn leave_write(&self, close: bool) -> bool {
        let gone = if close { WRITER | OPEN } else { WRITER };
        let word = self.0.fetch_and(!gone, Ordering::AcqRel);
        close || word & (QUEUED | CALLED) != 0
    }

    /// The writer becomes a reader.
    pub(super) fn downgrade(&self) -> bool {
        let word = self.0.fetch_sub(WRITER - READER, Ordering::AcqRel);
        word & (QUEUED | CALLED) != 0
    }

    pub(super) fn open(&self) {
        self.0.fetch_or(OPEN, Ordering::AcqRel);
    }

    /// The gate is closed until it is opened again.
    pub(super) fn shut(&self) {
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// Nobody else comes in by this hold.
    pub(super) fn close(&self) -> Look {
        self.0.fetch_or(CALLED, Ordering::AcqRel);
        Look(self.0.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN)
    }

    /// From here on the last one to leave tells.
    pub(super) fn call_back(&self) {
        self.0.fetch_or(CALLED, Ordering::AcqRel);
    }

    /// Local writes are over: the hold is to become a read.
    pub(super) fn only_reads(&self) -> Look {
        Look(self.0.fetch_and(!WRITES, Ordering::AcqRel) & !WRITES)
    }

    pub(super) fn set_queued(&self, queued: bool) {
        match queued {
            true => self.0.fetch_or(QUEUED, Ordering::AcqRel),
            false => self.0.fetch_and(!QUEUED, Ordering::AcqRel),
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

    /// How many guards came out of it, modulo 2^32.
    pub(super) fn served(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
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
    fn nobody_barges_past_those_who_wait() {
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
    fn a_closed_gate_lets_nobody_in_and_the_last_one_tells() {
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
        word.call_back();
        assert!(!word.leave_read() && word.leave_read());
    }
}
