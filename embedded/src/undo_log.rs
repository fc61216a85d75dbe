//! Undoes the last writes, so that the state of a lagging replica is known without storing it.

use std::collections::VecDeque;

use crate::keyspace::StoredKey;
use crate::reply::Blob;

/// The most writes that can be undone.
const MAX_UNDO: usize = 1024;

/// The state before one change.
#[derive(Clone, Debug)]
pub(crate) enum UndoRecord {
    Entry { key: Blob, entry: Option<StoredKey> },
    Field { key: Blob, field: Blob, value: Option<Blob> },
    Expiry { key: Blob, expires: Option<u64> },
}

/// The last writes. All changes of one command or script are one write, because a replica receives
/// them together.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndoLog {
    changes: VecDeque<UndoRecord>,
    /// The number of changes in each write, the oldest first.
    writes: VecDeque<usize>,
    /// The number of changes in the write under way.
    open: usize,
    /// The number of writes, without those that were undone.
    offset: u64,
}

impl UndoLog {
    pub(crate) fn push(&mut self, before: UndoRecord) {
        self.changes.push_back(before);
        self.open += 1;
    }

    /// Ends the write under way, if there is one.
    pub(crate) fn close(&mut self) {
        if self.open == 0 {
            return;
        }
        self.writes.push_back(std::mem::take(&mut self.open));
        self.offset += 1;
        if self.writes.len() > MAX_UNDO
            && let Some(oldest) = self.writes.pop_front()
        {
            self.changes.drain(..oldest);
        }
    }

    /// Removes the last write and returns its changes, the last one first.
    pub(crate) fn pop(&mut self) -> Option<impl Iterator<Item = UndoRecord>> {
        self.close();
        let changes = self.writes.pop_back()?;
        self.offset -= 1;
        Some(self.changes.drain(self.changes.len() - changes..).rev())
    }

    /// Forgets how to undo the writes: the replicas have them.
    pub(crate) fn clear(&mut self) {
        self.close();
        self.changes.clear();
        self.writes.clear();
    }

    /// The number of writes that have ended.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}
