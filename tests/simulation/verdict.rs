//! Reports a violation, with the history that led to it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::plan::Plan;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
    pub at: Duration,
}

/// Collects the violations of one run. Clones share the records.
#[derive(Clone, Debug, Default)]
pub struct Court(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    started: Duration,
    now: Duration,
    violation: Option<Violation>,
    tells_all: bool,
    /// Only the rules whose names begin with this count.
    only: &'static str,
    history: Vec<String>,
    digest: DefaultHasher,
}

impl Court {
    pub fn new(plan: &Plan, started: Duration) -> Court {
        let Plan { tells_all, only, .. } = *plan;
        let records = Records { tells_all, only, started, now: started, ..Records::default() };
        Court(Arc::new(Mutex::new(records)))
    }

    /// The engine's time at the last step.
    pub fn now(&self) -> Duration {
        self.0.lock().unwrap().now
    }

    pub fn set_time(&self, now: Duration) {
        self.0.lock().unwrap().now = now;
    }

    /// Records a violation. Only the first one counts, because later ones may follow from it.
    pub fn accuse(&self, rule: &'static str, what: impl FnOnce() -> String) {
        let mut records = self.0.lock().unwrap();
        if records.violation.is_none() && rule.starts_with(records.only) {
            let violation = Violation { rule, what: what(), at: records.now - records.started };
            if records.tells_all {
                let line = format!("VIOLATION {rule}: {}", violation.what);
                records.history.push(line);
            }
            records.violation = Some(violation);
        }
    }

    /// Whether a rule counts.
    pub fn judges(&self, rule: &str) -> bool {
        rule.starts_with(self.0.lock().unwrap().only)
    }

    pub fn violation(&self) -> Option<Violation> {
        self.0.lock().unwrap().violation.clone()
    }

    pub fn is_over(&self) -> bool {
        self.0.lock().unwrap().violation.is_some()
    }

    /// Adds a line to the history. `line` is called only if the history is kept.
    pub fn note(&self, digest: impl Hash, line: impl FnOnce() -> String) {
        let mut records = self.0.lock().unwrap();
        let now = records.now - records.started;
        (now, digest).hash(&mut records.digest);
        if records.tells_all {
            let line = format!("{:>11.6} {}", now.as_secs_f64(), line());
            records.history.push(line);
        }
    }

    pub fn digest(&self) -> u64 {
        self.0.lock().unwrap().digest.finish()
    }

    pub fn history(&self) -> Vec<String> {
        self.0.lock().unwrap().history.clone()
    }
}
