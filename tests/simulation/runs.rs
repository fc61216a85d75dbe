//! Many runs, on all processors, and their combined result.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::plan::{Fault, Plan};
use crate::world::{self, Outcome};

/// The combined result of many runs.
#[derive(Debug, Default)]
pub struct Total {
    pub runs: u64,
    pub steps: u64,
    pub scripts: u64,
    pub most_calls: u32,
    pub time: Duration,
    pub counts: BTreeMap<&'static str, u64>,
    pub violations: Vec<Outcome>,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// All seeds up to this one were run.
    Seed(u64),
    /// This much time has passed.
    Time(Duration),
    /// A violation was found, or this much time has passed.
    Violation(Duration),
}

/// Runs the plans of all seeds from `first` on. Calls `heard` with the total so far after each run.
pub fn runs(
    first: u64,
    until: Until,
    plan: impl Fn(u64) -> Plan + Sync,
    heard: impl Fn(&Total) + Sync,
) -> Total {
    let (next, stops, total) =
        (AtomicU64::new(first), AtomicBool::new(false), Mutex::new(Total::default()));
    let started = Instant::now();
    let is_over = |seed: u64| match until {
        Until::Seed(last) => seed > last,
        Until::Time(limit) | Until::Violation(limit) => started.elapsed() > limit,
    };
    let work = || {
        while !stops.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if is_over(seed) {
                return;
            }
            let outcome = world::run(&plan(seed));
            let mut total = total.lock().unwrap();
            if outcome.violation.is_some() && matches!(until, Until::Violation(_)) {
                stops.store(true, Ordering::Relaxed);
            }
            total.add(outcome);
            heard(&total);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut total = total.into_inner().unwrap();
    total.violations.sort_by_key(|outcome| outcome.plan.seed);
    total
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.runs += 1;
        self.steps += outcome.steps;
        self.scripts += outcome.scripts;
        self.most_calls = self.most_calls.max(outcome.most_calls);
        self.time += outcome.time;
        for (name, count) in &outcome.counts {
            *self.counts.entry(name).or_default() += count;
        }
        if outcome.violation.is_some() {
            self.violations.push(outcome);
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The states that were reached less often than required.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().map(|fault| (fault.name(), 1));
        let rare = if self.runs < MANY_RUNS { &[] } else { RARE };
        let states = MUST_BE_REACHED.iter().chain(rare).copied();
        let short = |(name, least): &(&str, u64)| self.count(name) < *least;
        let missing = faults.chain(states).filter(short);
        missing
            .map(|(name, least)| format!("{name}: {} instead of {least}", self.count(name)))
            .collect()
    }
}

/// States that even a short simulation must reach, with their least counts.
const MUST_BE_REACHED: &[(&str, u64)] = &[
    ("a dead waiter was skipped", 10),
    ("a waiter that hears nothing was passed over", 5),
    ("a claim lapsed", 5),
    ("a dead reader was swept away", 20),
    ("a sweep was continued", 5),
    ("a late duplicate was refused", 5),
    ("a phase was closed", 50),
    ("work was left over", 5),
    ("went on with what was left over", 5),
    ("a waiter was put back", 5),
    ("a waiter was put back in ticket order", 2),
    ("a push was claimed", 50),
    ("a grant was found by a look", 20),
    ("an unknown outcome was resolved", 10),
    ("a stranger was met", 10),
    ("MOVED followed", 20),
    ("ASK followed", 5),
    ("script unknown", 20),
    ("CLUSTERDOWN answered", 10),
    ("refused for want of memory", 10),
    ("the hole of a reader was filled", 20),
    ("a lease was lost", 20),
    ("released after its end", 5),
    ("a renewal came too late", 5),
    ("a wait timed out", 20),
    ("a wait was given up", 20),
    ("a try was refused", 20),
    ("a queue was full", 20),
    ("release unknown", 2),
    ("the store refused a stale token", 2),
    ("downgraded", 20),
    ("most members were held", 20),
    ("several were held", 20),
    ("upgraded", 20),
    ("a downgrade came after the next upgrade", 1),
    ("an upgrade had a rival", 1),
    ("read on after a refused upgrade", 20),
    ("revoked", 10),
    ("kept to its end", 10),
    ("led", 20),
    ("a leader was named", 5),
    ("handed on", 20),
    ("taken up", 10),
    ("a ticket was refused", 5),
    ("held again", 10),
    ("the last write went before a read", 5),
    ("released by force", 10),
    ("enough replicas confirmed it", 200),
    ("too few replicas confirmed it", 50),
    ("an unknown outcome was resolved while a replica lagged", 2),
    ("a renewal changed nothing while a replica lagged", 3),
    ("a confirmed lease stood when others were lost", 2),
    ("a lock was cached", 20),
    ("granted by a cached lease", 50),
    ("local requests waited", 5),
    ("a cached holder was in contact", 10),
    ("a cached holder was marked as called back", 10),
    ("a cached holder was told to be in use", 10),
    ("cached readers were called back", 3),
    ("what was called back was given back", 5),
    ("a cached write got more tokens", 10),
    ("a cached write became a cached read", 1),
    ("what was called back was downgraded", 5),
    ("a cached write was downgraded", 5),
    ("a cached lock was plain for a while", 20),
    ("a cached lease was lost with a guard out", 1),
    ("a strict try met caches alone", 1),
    ("a cached write got no tokens from a clock that was behind", 20),
    ("a contact told of a recall", 10),
    ("a contact told of a recall without a mark", 1),
    ("what was cached was wanted when it was granted", 10),
    ("what was cached was wanted when it was claimed", 10),
    ("permits were acquired", 100),
    ("permits waited", 100),
    ("permits were released in part", 60),
    ("pushed permits were claimed", 20),
    ("a limit was changed", 3),
];

/// From this number of runs on, a simulation must reach the rare states as well.
const MANY_RUNS: u64 = 1_000;

const RARE: &[(&str, u64)] = &[
    ("a cached lease was there beside guards of a lost one", 2),
    ("a recall crossed a contact", 2),
    ("a recall crossed a release", 5),
    ("tokens were lost with the answer of a contact", 2),
    ("ASK met an idle cached holder", 1),
];
