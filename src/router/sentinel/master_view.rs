//! Decides which sentinel is believed. This file only decides.
//!
//! - The report of the highest epoch counts. Each failover has its own epoch, and the sentinel that
//!   carried it out knows it first.
//! - A lower epoch than the known one, or another master at the same epoch, counts only if most of
//!   the sentinels report it and none has named the known master for [`MASTER_RETENTION`]:
//!   sentinels that were set up anew start again at epoch zero. Just after a failover, most
//!   sentinels are behind.
//! - A report of a sentinel of another deployment counts as a lower epoch does, even if its epoch
//!   is higher, because a sentinel of another deployment can get the address of a known one. A
//!   sentinel is of the same deployment if the client knows it or a sentinel that it knows, or if
//!   it reports the known master.

use std::collections::HashSet;
use std::time::Duration;

use rwlease_core::resp::Address;
use rwlease_core::time::LocalInstant;

use crate::router::sentinel::report::SentinelReport;

/// How long the known master is kept although no sentinel names it. News reaches all running
/// sentinels within a few seconds.
const MASTER_RETENTION: Duration = Duration::from_secs(10);

/// The master that is believed to be the current one.
#[derive(Debug, Default)]
pub(crate) struct MasterView {
    known: Option<KnownMaster>,
    /// The ids of the sentinels of this deployment, as far as they are known.
    sentinels: HashSet<Box<str>>,
}

#[derive(Debug)]
struct KnownMaster {
    epoch: u64,
    master: Address,
    /// When a sentinel last named it at this epoch.
    last_named: LocalInstant,
}

/// The result of weighing some reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MasterUpdate {
    /// No sentinel knows a master of that name.
    NoMaster,
    Unchanged,
    Changed,
    /// The reports are older than what is known.
    Outdated,
}

impl MasterView {
    pub(crate) fn master(&self) -> Option<&Address> {
        self.known.as_ref().map(|known| &known.master)
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.epoch)
    }

    /// Weighs reports that sentinels gave just now. `named` sentinels were configured.
    pub(crate) fn update(
        &mut self,
        reports: &[SentinelReport],
        named: usize,
        now: LocalInstant,
    ) -> MasterUpdate {
        self.note_sentinels(reports);
        let (own, foreign): (Vec<&SentinelReport>, Vec<&SentinelReport>) =
            latest_per_sentinel(reports).into_iter().partition(|report| self.is_own(report));
        let is_foreign = own.iter().all(|report| report.master.is_none());
        let reports = if is_foreign { foreign } else { own };
        if let Some(known) = &mut self.known
            && reports.iter().any(|report| known.is_named_by(report))
        {
            known.last_named = now;
        }
        let Some((best, votes)) = self.best_of(&reports) else {
            return MasterUpdate::NoMaster;
        };
        if let Some(known) = &self.known {
            if known.is_named_by(best) {
                return MasterUpdate::Unchanged;
            }
            let is_forgotten = now.saturating_duration_since(known.last_named) >= MASTER_RETENTION;
            let is_majority = votes > sentinel_count(&reports, named) / 2;
            let is_newer = best.epoch > known.epoch && !is_foreign;
            let is_replaced = is_forgotten && is_majority;
            if !(is_newer || is_replaced) {
                return MasterUpdate::Outdated;
            }
        }
        if let Some(named) = &best.master {
            self.known = Some(KnownMaster {
                epoch: best.epoch,
                master: named.address.clone(),
                last_named: now,
            });
        }
        if is_foreign {
            self.sentinels = reports.iter().flat_map(|report| ids_in(report)).collect();
        }
        MasterUpdate::Changed
    }

    /// Returns true unless a report is of another deployment. A sentinel that does not report its
    /// id or its known sentinels may be of the same deployment.
    pub(crate) fn is_own(&self, report: &SentinelReport) -> bool {
        let (Some(_), Some(_)) = (&report.id, &report.known) else {
            return true;
        };
        let master = self.master();
        self.sentinels.is_empty()
            || (master.is_some() && report.address() == master)
            || ids_in(report).any(|id| self.sentinels.contains(&id))
    }

    /// Keeps the sentinels that sent a report of this deployment or are listed in one. Other
    /// sentinels are gone, because sentinels also list sentinels that are down. A sentinel that was
    /// reset knows no other for a moment.
    fn note_sentinels(&mut self, reports: &[SentinelReport]) {
        let mut noted: HashSet<Box<str>> = HashSet::new();
        // One of them may be known by another one only.
        loop {
            let before = self.sentinels.len();
            let own = reports.iter().filter(|report| self.is_own(report));
            noted.extend(own.flat_map(ids_in));
            self.sentinels.extend(noted.iter().cloned());
            if self.sentinels.len() == before {
                break;
            }
        }
        if reports.iter().any(|report| self.is_own(report) && !report.peers.is_empty()) {
            self.sentinels = noted;
        }
    }

    /// Of the reports with the highest epoch, one with the master that most of them name, and how
    /// many name it.
    fn best_of<'a>(&self, reports: &[&'a SentinelReport]) -> Option<(&'a SentinelReport, usize)> {
        let naming = reports.iter().copied().filter(|report| report.master.is_some());
        let ranked = naming.map(|report| {
            let votes = reports.iter().filter(|other| other.agrees(report)).count();
            (report, votes)
        });
        let is_known = |report: &SentinelReport| {
            self.known.as_ref().is_some_and(|known| known.is_named_by(report))
        };
        ranked.max_by_key(|(report, votes)| (report.epoch, *votes, is_known(report)))
    }
}

impl KnownMaster {
    fn is_named_by(&self, report: &SentinelReport) -> bool {
        report.epoch == self.epoch && report.address() == Some(&self.master)
    }
}

/// Returns true if most of the sentinels that watch the master have named one. `named` sentinels
/// were configured.
pub(crate) fn is_majority(reports: &[SentinelReport], named: usize) -> bool {
    let reports = latest_per_sentinel(reports);
    let naming = reports.iter().filter(|report| report.master.is_some()).count();
    naming > sentinel_count(&reports, named) / 2
}

/// How many sentinels there are, by their own count. If none reports a count (a missing right, no
/// master of that name), the number that was configured.
fn sentinel_count(reports: &[&SentinelReport], named: usize) -> usize {
    let peer_count = reports.iter().filter_map(|report| report.peer_count).max();
    peer_count.map_or(named, |others| others.saturating_add(1)).max(reports.len())
}

/// The ids of the sentinel and of those that it knows.
fn ids_in(report: &SentinelReport) -> impl Iterator<Item = Box<str>> {
    report.id.iter().chain(report.known.iter().flatten()).cloned()
}

/// The newest report of each sentinel, which may be known by several addresses.
fn latest_per_sentinel(reports: &[SentinelReport]) -> Vec<&SentinelReport> {
    let mut distinct: Vec<&SentinelReport> = Vec::with_capacity(reports.len());
    for report in reports {
        match distinct.iter_mut().find(|other| other.is_of_same_sentinel(report)) {
            Some(other) if other.epoch < report.epoch => *other = report,
            Some(_) => {}
            None => distinct.push(report),
        }
    }
    distinct
}

#[cfg(test)]
mod tests;
