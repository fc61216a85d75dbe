//! Counts the faults and the rare states of a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Counts by name. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Census(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Census {
    pub fn count(&self, name: &'static str) {
        *self.0.lock().unwrap().entry(name).or_default() += 1;
    }

    pub fn count_if(&self, name: &'static str, is_so: bool) {
        if is_so {
            self.count(name);
        }
    }

    pub fn count_many(&self, name: &'static str, count: u64) {
        *self.0.lock().unwrap().entry(name).or_default() += count;
    }

    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap().clone()
    }
}
