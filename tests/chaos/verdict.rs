//! What a run came to: the counts, and every promise that was broken.

use serde_json::{Value, json};

use super::checker::{Findings, Seen};
use super::history::{History, Nanos};
use super::rows::{Promise, Variant};
use super::scene::Fault;

#[derive(Clone, Debug)]
pub struct Verdict {
    pub findings: Findings,
    pub faults: usize,
    /// From each fault to the next grant to one who asked after it, of a lock that it struck.
    pub recoveries: Vec<Nanos>,
    pub broken: Vec<String>,
}

impl Verdict {
    /// What can be said while it goes on, or at its end with what only shows then.
    pub fn of(history: &History, faults: &[Fault], variant: &Variant, seen_elsewhere: &[String]) -> Verdict {
        let findings = Findings::of(history);
        let mut broken = always(&findings);
        broken.extend(variant.promises.iter().filter_map(|promise| promise.broken(&findings)));
        broken.extend_from_slice(seen_elsewhere);
        Verdict {
            faults: faults.len(),
            recoveries: faults.iter().filter_map(|fault| recovery(history, fault)).collect(),
            findings,
            broken,
        }
    }

    /// As it is kept.
    pub fn json(&self) -> Value {
        let found = &self.findings;
        let wait = |quantile: f64| {
            let place = (found.waits.len() as f64 * quantile) as usize;
            found.waits.get(place.min(found.waits.len().saturating_sub(1))).copied()
        };
        json!({
            "faults": self.faults,
            "requests": found.requests,
            "acquisitions": found.grants,
            "writes": found.writes,
            "overlaps": found.overlaps.count,
            "tokens_out_of_order": found.tokens.count,
            "stale_writes_accepted": found.stale.count,
            "writes_refused": found.refused,
            "lost": found.lost.count,
            "noticed_late": found.noticed_late,
            "vanished": found.vanished.count,
            "releases_unknown": found.unknown,
            "releases_failed": found.unreleased.count,
            "stuck": found.stuck.count,
            "failed": found.failed,
            "wait_ns": { "median": wait(0.5), "p99": wait(0.99), "worst": wait(1.0) },
            "recovery_ns": self.recoveries,
            "broken": self.broken,
        })
    }
}

impl Promise {
    fn broken(self, found: &Findings) -> Option<String> {
        let none = |seen: &Seen, what: &str| (seen.count > 0).then(|| told(seen, what));
        match self {
            Promise::NoOverlap => none(&found.overlaps, "overlaps"),
            Promise::NoLoss => none(&found.lost, "leases lost"),
            Promise::NothingVanished => none(&found.vanished, "acknowledged grants or renewals gone"),
            Promise::NoError => (!found.failed.is_empty()).then(|| format!("errors: {:?}", found.failed)),
            Promise::OnlyErrors(kinds) => {
                let other = found.failed.keys().any(|kind| !kinds.contains(&kind.as_str()));
                other.then(|| format!("other errors than {kinds:?}: {:?}", found.failed))
            }
            Promise::ReleaseWorks => none(&found.unreleased, "releases failed").or_else(|| {
                (found.unknown > 0).then(|| format!("{} releases without a certain outcome", found.unknown))
            }),
            Promise::ToldInTime => (found.noticed_late > 0)
                .then(|| format!("{} holders were told after a rival was granted", found.noticed_late)),
        }
    }
}

/// What must hold in every row.
fn always(found: &Findings) -> Vec<String> {
    let kinds = [
        (&found.tokens, "tokens out of order"),
        (&found.stale, "stale writes accepted"),
        (&found.stuck, "stuck"),
    ];
    let broken = kinds.into_iter().filter(|(seen, _)| seen.count > 0);
    broken.map(|(seen, what)| told(seen, what)).collect()
}

fn told(seen: &Seen, what: &str) -> String {
    format!("{} {what}: {}", seen.count, seen.examples.join("; "))
}

fn recovery(history: &History, fault: &Fault) -> Option<Nanos> {
    let after = history
        .recent(fault.at)
        .filter(|hold| fault.struck.contains(&hold.name) && !fault.far.contains(&hold.worker));
    let granted = after.filter_map(|hold| hold.granted);
    granted.map(|grant| grant.at - fault.at).min()
}
