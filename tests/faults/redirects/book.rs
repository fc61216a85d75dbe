//! Tracks the holders in this process: an overlap, or a token that repeats or falls, is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rwlease::LockMode;

use crate::support::{Error, Result};

/// Whether conflicting holders of a lock are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlaps {
    Never,
    /// A failover can lose acknowledged grants.
    InFailovers,
}

#[derive(Debug)]
pub struct Book {
    overlaps: Overlaps,
    pages: Mutex<BTreeMap<String, Page>>,
}

#[derive(Debug, Default)]
struct Page {
    readers: usize,
    writers: usize,
    tokens: BTreeSet<u64>,
    last_write: u64,
}

/// Registers a holder in the book until it is dropped. The test creates it after the grant, and
/// drops it before the release.
#[derive(Debug)]
pub struct Stay {
    book: Arc<Book>,
    name: String,
    mode: LockMode,
}

impl Book {
    pub fn new(overlaps: Overlaps) -> Arc<Book> {
        Arc::new(Book { overlaps, pages: Mutex::default() })
    }

    pub fn enter(self: &Arc<Self>, name: &str, mode: LockMode, token: u64) -> Result<Stay> {
        let mut pages = self.pages();
        let page = pages.entry(name.into()).or_default();
        page.check(mode, token, self.overlaps).map_err(|what| {
            Error::new(format!("{name}, {mode:?} with token {token}: {what}; {page:?}"))
        })?;
        page.tokens.insert(token);
        match mode {
            LockMode::Read => page.readers += 1,
            LockMode::Write => {
                page.writers += 1;
                page.last_write = page.last_write.max(token);
            }
        }
        Ok(Stay { book: self.clone(), name: name.into(), mode })
    }

    pub fn overlaps(&self) -> Overlaps {
        self.overlaps
    }

    /// The number of grants.
    pub fn grants(&self) -> usize {
        self.pages().values().map(|page| page.tokens.len()).sum()
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<String, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn check(
        &self,
        mode: LockMode,
        token: u64,
        overlaps: Overlaps,
    ) -> std::result::Result<(), String> {
        if self.tokens.contains(&token) {
            return Err("the token was handed out before".into());
        } else if overlaps == Overlaps::InFailovers {
            return Ok(());
        }
        // Readers are granted together, and may register in any order.
        let before = match mode {
            LockMode::Read => self.last_write,
            LockMode::Write => self.tokens.last().copied().unwrap_or(0),
        };
        if self.writers > 0 || (mode == LockMode::Write && self.readers > 0) {
            Err("others hold".into())
        } else if token < before {
            Err(format!("the token is below {before}"))
        } else {
            Ok(())
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut pages = self.book.pages();
        let page = pages.entry(self.name.clone()).or_default();
        match self.mode {
            LockMode::Read => page.readers -= 1,
            LockMode::Write => page.writers -= 1,
        }
    }
}
