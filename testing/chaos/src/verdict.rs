//! The result of a run: the counts, and every broken promise.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::checker::{CaseCount, Excuses, Findings};
use super::history::{History, Nanos};
use super::scenario::Fault;
use super::scorecard_rows::{Promise, Variant};
use testkit::Backend;

/// The number of faults from which on holders must have been told in time.
const TELLING: usize = 20;

#[derive(Clone, Debug)]
pub struct Verdict {
    pub findings: Findings,
    pub faults: usize,
    /// For each fault, the longest time without a grant among the locks that it struck, up to the
    /// first grant after it.
    pub recoveries: Vec<Nanos>,
    /// Locks with holders or waiters after all workers had ended.
    pub orphans: usize,
    pub broken: Vec<String>,
    /// Changes of the servers that no nemesis ordered.
    pub void: Vec<String>,
    /// The figures of a fault that stayed.
    pub stayed: Option<Value>,
}

/// What a run shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Kept,
    /// Nothing, neither kept nor broken: something happened that was not ordered.
    Void,
    Broken,
}

/// How long a client on a busy machine may not know that its subscription has ended, with its poll
/// after that. Subscriptions end with the moves of their slots, of which each skew has one. Over
/// `fred` nothing tells of it: the next poll of a waiter may be its usual one, 3.3 s after the
/// last.
fn unaware(faults: &[Fault], backend: Backend) -> Nanos {
    let moves =
        |fault: &Fault| fault.what.contains("move") || ["drain", "skew"].contains(&&*fault.what);
    match backend {
        _ if !faults.iter().any(moves) => 0,
        Backend::Fred => 4_000_000_000,
        _ => 300_000_000,
    }
}

impl Verdict {
    /// The verdict so far or, at the end, with what only shows then.
    pub fn of(
        history: &History,
        faults: &[Fault],
        variant: &Variant,
        seen_elsewhere: &[String],
    ) -> Verdict {
        let lease = variant.load.lease.as_nanos() as Nanos;
        let unaware = unaware(faults, Backend::chosen());
        let mut excuses = Excuses { lease, unaware, ..Excuses::default() };
        for fault in faults {
            for name in &fault.out {
                let spans = excuses.names.entry(*name).or_default();
                spans.push((fault.at, fault.out_until));
            }
            for worker in &fault.far {
                let spans = excuses.workers.entry(*worker).or_default();
                spans.push((fault.at, fault.until));
            }
        }
        let findings = Findings::of(history, &excuses, variant.load.wait_limit());
        let mut broken = always(&findings);
        let promises = variant.promises.iter();
        broken.extend(promises.filter_map(|promise| promise.broken(&findings, faults.len())));
        broken.extend_from_slice(seen_elsewhere);
        let grants = Grants::of(history);
        Verdict {
            faults: faults.len(),
            recoveries: faults.iter().filter_map(|fault| grants.longest_pause(fault)).collect(),
            findings,
            orphans: 0,
            broken,
            void: Vec::new(),
            stayed: None,
        }
    }

    /// Adds the changes of the servers that were not ordered. If there are any, no fault counts,
    /// because its effects cannot be told apart from theirs.
    pub fn beside(mut self, unordered: &[String]) -> Verdict {
        self.void = unordered.to_vec();
        if self.outcome() == Outcome::Void {
            self.faults = 0;
            self.recoveries.clear();
        }
        self
    }

    pub fn outcome(&self) -> Outcome {
        match (self.void.is_empty(), self.broken.is_empty()) {
            (false, _) => Outcome::Void,
            (true, false) => Outcome::Broken,
            (true, true) => Outcome::Kept,
        }
    }

    /// The stored form.
    pub fn json(&self) -> Value {
        let found = &self.findings;
        // Requests for many permits wait much longer.
        let waits = if found.waits.is_empty() { &found.waits_for_permits } else { &found.waits };
        let wait = |quantile: f64| {
            let place = (waits.len() as f64 * quantile) as usize;
            waits.get(place.min(waits.len().saturating_sub(1))).copied()
        };
        json!({
            "faults": self.faults,
            "requests": found.requests,
            "acquisitions": found.grants,
            "acquisitions_of_permits": found.waits_for_permits.len(),
            "writes": found.writes,
            "overlaps": found.overlaps.count,
            "tokens_out_of_order": found.tokens.count,
            "tokens_of_caches_out_of_order": found.tokens_cached.count,
            "denied": found.denied.count,
            "passed": found.passed.count,
            "disagreements": found.disagreements.count,
            "stale_writes_accepted": found.stale.count,
            "writes_refused": found.refused,
            "lost": found.lost.count,
            "overtaken": found.overtaken.count,
            "noticed_late": found.noticed_late,
            "late_though_awake": found.late_though_awake.count,
            "noticed_in_time": found.noticed_in_time,
            "vanished": found.vanished.count,
            "releases_unknown": found.unknown,
            "releases_failed": found.unreleased.count,
            "stuck": found.stuck.count,
            "timed_out": found.timed_out.count,
            "orphans": self.orphans,
            "failed": found.failed,
            "wait_ns": { "median": wait(0.5), "p99": wait(0.99), "worst": wait(1.0) },
            "recovery_ns": self.recoveries,
            "outcome": self.outcome().word(),
            "broken": self.broken,
            "void": self.void,
            "stayed": self.stayed,
        })
    }
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Kept => "kept",
            Outcome::Void => "void",
            Outcome::Broken => "broken",
        }
    }

    /// The exit status of a command: neither that of a wrong call nor that of a failed `make`.
    pub fn exit_status(self) -> u8 {
        match self {
            Outcome::Kept => 0,
            Outcome::Void => 3,
            Outcome::Broken => 1,
        }
    }
}

impl Promise {
    fn broken(self, found: &Findings, faults: usize) -> Option<String> {
        let none = |seen: &CaseCount, what: &str| (seen.count > 0).then(|| told(seen, what));
        match self {
            Promise::TokensRise => none(&found.tokens, "tokens out of order"),
            Promise::NoOverlap => none(&found.overlaps, "overlaps")
                .or_else(|| none(&found.tokens, "tokens out of order"))
                .or_else(|| none(&found.overtaken, "holders overtaken"))
                .or_else(|| none(&found.tokens_cached, "tokens of cached handles out of order")),
            Promise::InTurn => none(&found.passed, "passed in a queue of permits"),
            Promise::NoLoss => none(&found.lost, "leases lost"),
            Promise::NothingVanished => {
                none(&found.vanished, "acknowledged grants or renewals gone")
            }
            Promise::NoError => {
                (!found.failed.is_empty()).then(|| format!("errors: {:?}", found.failed))
            }
            Promise::OnlyErrors(kinds) => {
                let other = found.failed.keys().any(|kind| !kinds.contains(&kind.as_str()));
                other.then(|| format!("other errors than {kinds:?}: {:?}", found.failed))
            }
            Promise::ReleaseWorks => none(&found.unreleased, "releases failed").or_else(|| {
                (found.unknown > 0)
                    .then(|| format!("{} releases without a certain outcome", found.unknown))
            }),
            Promise::ToldInTime if found.late_though_awake.count > 0 => {
                Some(told(&found.late_though_awake, "holders were told after a rival was granted"))
            }
            Promise::ToldInTime => (faults >= TELLING && found.noticed_in_time == 0)
                .then(|| "nobody lost a lease to a rival: this shows nothing".into()),
        }
    }
}

/// The promises of every row.
fn always(found: &Findings) -> Vec<String> {
    let kinds = [
        (&found.denied, "tries refused with nobody in their way"),
        (&found.disagreements, "histories of which judge and search say different things"),
        (&found.stale, "stale writes accepted"),
        (&found.stuck, "stuck"),
        (&found.timed_out, "requests timed out"),
    ];
    let broken = kinds.into_iter().filter(|(seen, _)| seen.count > 0);
    broken.map(|(seen, what)| told(seen, what)).collect()
}

fn told(seen: &CaseCount, what: &str) -> String {
    format!("{} {what}: {}", seen.count, seen.examples.join("; "))
}

/// The grants of each lock: their times and workers.
struct Grants(HashMap<usize, Vec<(Nanos, usize)>>);

impl Grants {
    fn of(history: &History) -> Grants {
        let mut all: HashMap<usize, Vec<(Nanos, usize)>> = HashMap::new();
        for hold in history.holds() {
            let granted = hold.granted.map(|grant| (grant.at, hold.worker));
            all.entry(hold.name).or_default().extend(granted);
        }
        all.values_mut().for_each(|grants| grants.sort_unstable());
        Grants(all)
    }

    /// Returns nothing if no lock that it struck was granted after the fault.
    fn longest_pause(&self, fault: &Fault) -> Option<Nanos> {
        let mut times = Vec::new();
        for name in &fault.struck {
            let grants = self.0.get(name).map_or(&[][..], Vec::as_slice);
            let since = grants.partition_point(|(at, _)| *at < fault.at);
            for (at, worker) in &grants[since..] {
                if fault.far.contains(worker) {
                    continue;
                }
                times.push(*at);
                if *at > fault.until {
                    break;
                }
            }
        }
        times.sort_unstable();
        let first_after = times.partition_point(|at| *at <= fault.until);
        let until = times.get(..=first_after)?;
        let before = std::iter::once(&fault.at).chain(until);
        before.zip(until).map(|(from, to)| to - from).max()
    }
}
