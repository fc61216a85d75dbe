//! Entries of a server's answer that cannot be used. They are skipped, and the rest of the answer
//! counts.

use std::collections::HashSet;
use std::sync::Mutex;

use rwlease_core::resp::Address;

use crate::locks::lock;
use crate::router::telemetry;

/// How many entries are remembered as reported. Further ones are not reported.
const MAX_REPORTED: usize = 256;

/// An entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BadEntry {
    /// What the entry is about.
    pub(crate) subject: String,
    pub(crate) reason: &'static str,
}

/// Reports each bad entry once, whichever servers have it in their answers, and however often.
#[derive(Debug, Default)]
pub(crate) struct BadEntries(Mutex<HashSet<BadEntry>>);

impl BadEntries {
    pub(crate) fn report(&self, source: &Address, entry: BadEntry) {
        let is_new = {
            let mut reported = lock(&self.0);
            reported.len() < MAX_REPORTED && reported.insert(entry.clone())
        };
        // The caller's subscriber runs here, so nothing is locked.
        if is_new {
            telemetry::bad_entry(source, &entry.subject, entry.reason);
        }
    }
}
