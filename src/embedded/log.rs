//! What it takes to undo the last writes: so a replica that lags behind is known without being
//! kept.

use std::collections::VecDeque;

use super::answer::Blob;
use super::store::Entry;

/// At most this many of the last writes can be undone.
const LONGEST_LAG: usize = 1024;

/// The state before one change.
#[derive(Clone, Debug)]
pub(super) enum Before {
    Entry { key: Blob, entry: Option<Entry> },
    Field { key: Blob, field: Blob, value: Option<Blob> },
    Expiry { key: Blob, expires: Option<u64> },
}

/// The last writes. One write is all that a command or a whole script changed, as it reaches a
/// replica all at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    changes: VecDeque<Before>,
    /// How many changes each write consists of, the oldest first.
    writes: VecDeque<usize>,
    /// Changes of the write under way.
    open: usize,
    /// How many writes there were, but for those that were taken out.
    offset: u64,
}

impl Log {
    pub(super) fn push(&mut self, before: Before) {
        self.changes.push_back(before);
        self.open += 1;
    }

    /// Ends the write under way, if there is one.
    pub(super) fn close(&mut self) {
        if self.open == 0 {
            return;
        }
        self.writes.push_back(std::mem::take(&mut self.open));
        self.offset += 1;
        if self.writes.len() > LONGEST_LAG
            && let Some(oldest) = self.writes.pop_front()
        {
            self.changes.drain(..oldest);
        }
    }

    /// Takes the last write out: its changes, the last one first.
    pub(super) fn pop(&mut self) -> Option<impl Iterator<Item = Before>> {
        self.close();
        let changes = self.writes.pop_back()?;
        self.offset -= 1;
        Some(self.changes.drain(self.changes.len() - changes..).rev())
    }

    /// Forgets how to undo what there is: the replicas have it.
    pub(super) fn clear(&mut self) {
        self.close();
        self.changes.clear();
        self.writes.clear();
    }

    /// How many writes have ended.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}
