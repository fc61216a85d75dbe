//! Entries of a server's answer that cannot be used. They are skipped, and the rest of the answer
//! counts.

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::sync::Mutex;

use crate::node::Address;
use crate::router::{lock, telemetry};

/// How many entries are remembered as reported. Further ones are not reported.
const MAX_REPORTED: usize = 256;

/// The most characters of an entry that are shown.
const MAX_SHOWN: usize = 120;

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
        let mut reported = lock(&self.0);
        if reported.len() < MAX_REPORTED && !reported.contains(&entry) {
            telemetry::bad_entry(source, &entry.subject, entry.reason);
            reported.insert(entry);
        }
    }
}

/// The beginning of what a server sent, which can be of any length.
pub(crate) fn shortened(value: &impl fmt::Debug) -> String {
    let mut shown = Shown(String::new());
    match write!(shown, "{value:?}") {
        Ok(()) => shown.0,
        Err(fmt::Error) => shown.0 + "...",
    }
}

/// A text that takes so many characters and no more.
struct Shown(String);

impl Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() >= MAX_SHOWN {
                return Err(fmt::Error);
            }
            self.0.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Reply;

    #[test]
    fn shortened_value_of_any_length_is_short() {
        assert_eq!(shortened(&Reply::Int(7)), "Int(7)");
        let long = shortened(&Reply::Text(vec![b'x'; 1 << 20].into()));
        assert!(long.len() <= MAX_SHOWN + 3 && long.ends_with("xxx..."), "{long}");
    }
}
