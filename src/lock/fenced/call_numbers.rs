//! The numbers of a writer's calls, by which the server orders them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::locks::lock;

/// The server skips a write with a lower number than the last call. So a read never has a number
/// above that of a write under way: the read could arrive first.
///
/// The writes have the numbers 2, 4, 6 and so on. A read has the odd number below the first write
/// under way, or below the next write if none is.
#[derive(Debug, Default)]
pub(super) struct CallNumbers(Mutex<Writes>);

#[derive(Debug, Default)]
struct Writes {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// A write whose caller still waits for its result.
#[derive(Debug)]
pub(super) struct WriteUnderWay<'a> {
    numbers: &'a CallNumbers,
    pub(super) number: u64,
}

impl CallNumbers {
    pub(super) fn begin_write(&self) -> WriteUnderWay<'_> {
        let mut writes = lock(&self.0);
        writes.last += 2;
        let number = writes.last;
        writes.under_way.insert(number);
        WriteUnderWay { numbers: self, number }
    }

    pub(super) fn of_read(&self) -> u64 {
        let writes = lock(&self.0);
        writes.under_way.first().map_or(writes.last + 1, |first| first - 1)
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.numbers.0).under_way.remove(&self.number);
    }
}
