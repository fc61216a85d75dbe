//! Who believes to hold what, and the stores that the locks protect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::{Lease, Mode};

use crate::census::Census;
use crate::court::Court;

/// A clone is the same book.
#[derive(Clone, Debug)]
pub struct Book {
    pages: Arc<Mutex<Pages>>,
    court: Court,
    census: Census,
    /// Judge as if no assumption had been broken.
    is_strict: bool,
}

#[derive(Debug, Default)]
struct Pages {
    beliefs: BTreeMap<u64, Belief>,
    next: u64,
    /// Of each lock, until when grants are not trusted.
    doubtful_until: BTreeMap<usize, Duration>,
    /// The greatest token of a write in each store.
    stores: BTreeMap<usize, u64>,
    /// Locks whose tokens a clock that was set back has spoilt.
    spoilt: BTreeSet<usize>,
}

#[derive(Debug)]
struct Belief {
    lock: usize,
    host: usize,
    mode: Mode,
    token: u64,
    lease: Lease,
    /// It began when an assumption was broken: only the tokens protect from it.
    is_doubtful: bool,
}

impl Book {
    pub fn new(court: Court, census: Census, is_strict: bool) -> Book {
        Book {
            pages: Arc::default(),
            court,
            census,
            is_strict,
        }
    }

    /// A user begins to believe that it holds. The number that it gets is for `leave`.
    pub fn enter(&self, lock: usize, host: usize, lease: Lease, now: Duration) -> u64 {
        let mut pages = self.pages.lock().unwrap();
        let mode = lease.mode().unwrap_or(Mode::Read);
        let is_doubtful = pages.doubtful_until.get(&lock).is_some_and(|until| now < *until);
        pages.next += 1;
        let number = pages.next;
        let token = lease.token();
        pages.beliefs.insert(
            number,
            Belief {
                lock,
                host,
                mode,
                token,
                lease,
                is_doubtful,
            },
        );
        number
    }

    /// A user no longer relies on a lease.
    pub fn leave(&self, number: u64) {
        self.pages.lock().unwrap().beliefs.remove(&number);
    }

    /// The users of a host are no more.
    pub fn forget_host(&self, host: usize) {
        self.pages
            .lock()
            .unwrap()
            .beliefs
            .retain(|_, belief| belief.host != host);
    }

    /// An assumption is broken for this lock: what is held now, and what is granted until then, may overlap.
    pub fn doubt(&self, lock: usize, until: Duration) {
        let mut pages = self.pages.lock().unwrap();
        let pages = &mut *pages;
        let since = pages.doubtful_until.entry(lock).or_default();
        *since = until.max(*since);
        pages
            .beliefs
            .values_mut()
            .filter(|belief| belief.lock == lock)
            .for_each(|belief| belief.is_doubtful = true);
    }

    /// The tokens of this lock no longer protect its store.
    pub fn spoil(&self, lock: usize) {
        self.pages.lock().unwrap().spoilt.insert(lock);
    }

    /// Whether any of these is doubtful at that moment.
    pub fn is_doubtful(&self, lock: usize, now: Duration) -> bool {
        let pages = self.pages.lock().unwrap();
        pages.doubtful_until.get(&lock).is_some_and(|until| now < *until)
            || pages
                .beliefs
                .values()
                .any(|belief| belief.lock == lock && belief.is_doubtful)
    }

    /// At most one writer and no reader beside it, among those who believe to hold.
    pub fn judge(&self) {
        let pages = self.pages.lock().unwrap();
        let mut writers: BTreeMap<usize, &Belief> = BTreeMap::new();
        let trusted = |belief: &&Belief| (self.is_strict || !belief.is_doubtful) && belief.lease.is_held();
        for writer in pages
            .beliefs
            .values()
            .filter(|belief| belief.mode == Mode::Write)
            .filter(trusted)
        {
            if let Some(other) = writers.insert(writer.lock, writer) {
                self.court
                    .accuse("one writer", || format!("{} and {}", other.tell(), writer.tell()));
            }
        }
        if writers.is_empty() {
            return;
        }
        for reader in pages
            .beliefs
            .values()
            .filter(|belief| belief.mode == Mode::Read)
            .filter(trusted)
        {
            if let Some(writer) = writers.get(&reader.lock) {
                self.court.accuse("no reader beside a writer", || {
                    format!("{} and {}", reader.tell(), writer.tell())
                });
            }
        }
    }

    /// Writes to the store that a lock protects, as a holder.
    pub fn write(&self, number: u64) {
        let mut pages = self.pages.lock().unwrap();
        let pages = &mut *pages;
        let Some(belief) = pages.beliefs.get(&number) else {
            return;
        };
        let greatest = pages.stores.entry(belief.lock).or_default();
        if belief.token < *greatest {
            self.census.count("the store refused a stale token");
            // One who holds is overtaken by nobody.
            if belief.lease.is_held() && !pages.spoilt.contains(&belief.lock) && (self.is_strict || !belief.is_doubtful)
            {
                self.court.accuse("a holder's token is not stale", || {
                    format!("{} after {greatest}", belief.tell())
                });
            }
        } else {
            *greatest = belief.token;
        }
    }
}

impl Belief {
    fn tell(&self) -> String {
        let Belief {
            lock,
            host,
            mode,
            token,
            ..
        } = self;
        format!(
            "host {host} ({mode:?}, token {token}, {:?} left) of lock {lock}",
            self.lease.remaining()
        )
    }
}
