//! Tracks the holders of contended locks, and their waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rwlease::Lease;

/// A clone is the same book.
#[derive(Clone)]
pub struct HolderLedger(Arc<Mutex<LedgerState>>);

struct LedgerState {
    holders: Vec<Option<Lease>>,
    outcome: Outcome,
}

/// The results of the locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Times when two holders relied on one lock at once.
    pub overlaps: u64,
    /// Leases that their holders were told are lost.
    pub lost: u64,
    /// Requests and releases that failed.
    pub failed: u64,
    /// Pairs on uncontended locks.
    pub pairs: u64,
    /// The longest of these pairs' waits.
    pub longest: Duration,
    /// Grants of contended locks.
    pub grants: u64,
    /// The longest wait for a contended lock.
    pub longest_in_crowd: Duration,
}

impl HolderLedger {
    pub fn new(crowds: usize) -> HolderLedger {
        let holders = (0..crowds).map(|_| None).collect();
        HolderLedger(Arc::new(Mutex::new(LedgerState { holders, outcome: Outcome::default() })))
    }

    pub fn record_grant(&self, crowd: usize, lease: &Lease, waited: Duration) {
        let mut entries = self.0.lock().unwrap();
        let before = entries.holders[crowd].replace(lease.clone());
        let overlaps = before.is_some_and(|before| before.is_held() && lease.is_held());
        let outcome = &mut entries.outcome;
        outcome.overlaps += u64::from(overlaps);
        outcome.grants += 1;
        outcome.longest_in_crowd = outcome.longest_in_crowd.max(waited);
    }

    pub fn record_release(&self, crowd: usize, lease: &Lease) {
        let holder = &mut self.0.lock().unwrap().holders[crowd];
        if holder.as_ref().is_some_and(|holder| holder.id() == lease.id()) {
            *holder = None;
        }
    }

    pub fn record_pair(&self, waited: Duration) {
        let outcome = &mut self.0.lock().unwrap().outcome;
        outcome.pairs += 1;
        outcome.longest = outcome.longest.max(waited);
    }

    pub fn lost(&self) {
        self.0.lock().unwrap().outcome.lost += 1;
    }

    pub fn failed(&self) {
        self.0.lock().unwrap().outcome.failed += 1;
    }

    pub fn take(&self) -> Outcome {
        std::mem::take(&mut self.0.lock().unwrap().outcome)
    }
}
