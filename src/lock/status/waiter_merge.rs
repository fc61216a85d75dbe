use std::iter::Peekable;

use rwlease_core::protocol::{LockMode, WaiterRecord};

/// Waiting writers and waiting readers, merged in the order of their tickets.
pub(super) struct MergedQueue {
    writers: Peekable<std::vec::IntoIter<WaiterRecord>>,
    readers: Peekable<std::vec::IntoIter<WaiterRecord>>,
    /// In each list, the entry behind the last one that was taken.
    next_writer: Option<String>,
    next_reader: Option<String>,
}

impl MergedQueue {
    pub(super) fn new(writers: Vec<WaiterRecord>, readers: Vec<WaiterRecord>) -> Self {
        MergedQueue {
            writers: writers.into_iter().peekable(),
            readers: readers.into_iter().peekable(),
            next_writer: None,
            next_reader: None,
        }
    }

    /// The first entry of each list that was not taken.
    pub(super) fn rest(mut self) -> (Option<String>, Option<String>) {
        let first = |list: &mut Peekable<std::vec::IntoIter<WaiterRecord>>| {
            list.peek().map(|entry| entry.id.clone())
        };
        (
            first(&mut self.writers).or(self.next_writer),
            first(&mut self.readers).or(self.next_reader),
        )
    }
}

impl Iterator for MergedQueue {
    type Item = (LockMode, WaiterRecord);

    fn next(&mut self) -> Option<(LockMode, WaiterRecord)> {
        let writer_first = match (self.writers.peek(), self.readers.peek()) {
            (Some(writer), Some(reader)) => writer.ticket < reader.ticket,
            (writer, _) => writer.is_some(),
        };
        if writer_first {
            let entry = self.writers.next()?;
            self.next_writer = entry.next.clone();
            Some((LockMode::Write, entry))
        } else {
            let entry = self.readers.next()?;
            self.next_reader = entry.next.clone();
            Some((LockMode::Read, entry))
        }
    }
}
