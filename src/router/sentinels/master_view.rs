//! Decides which sentinel is believed. This file only decides.
//!
//! - The report of the highest epoch counts. Each failover has its own epoch, and the sentinel that
//!   carried it out knows it first.
//! - A lower epoch than the known one, or another master at the same epoch, counts only if most of
//!   the sentinels report it and none has named the known master for [`MASTER_RETENTION`]:
//!   sentinels that were set up anew start again at epoch zero. Just after a failover, most
//!   sentinels are behind.
//! - A sentinel of another deployment counts no more than that, whatever its epoch: the address of
//!   a sentinel can become that of another deployment's. It is one of the same deployment if it or
//!   one that it knows is known, or if it names the known master.

use std::collections::HashSet;
use std::time::Duration;

use crate::backend::Address;
use crate::clock::LocalInstant;
use crate::router::sentinels::report::SentinelReport;

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

    /// Returns true unless a report is of another deployment. A sentinel that does not tell its id,
    /// or which others it knows, may be one of the same.
    pub(crate) fn is_own(&self, report: &SentinelReport) -> bool {
        let (Some(_), Some(_)) = (&report.id, &report.known) else {
            return true;
        };
        let master = self.master();
        self.sentinels.is_empty()
            || (master.is_some() && report.address() == master)
            || ids_in(report).any(|id| self.sentinels.contains(&id))
    }

    /// Keeps the sentinels that own reports are from or tell of. The others are gone: sentinels
    /// keep those that are down. One that was reset knows no other for a moment.
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
    let said = reports.iter().filter_map(|report| report.peer_count).max();
    said.map_or(named, |others| others.saturating_add(1)).max(reports.len())
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
mod tests {
    use super::*;
    use crate::backend::fake::address;
    use crate::router::sentinels::report::ReportedMaster;

    fn at(seconds: u64) -> LocalInstant {
        LocalInstant::from_duration(Duration::from_secs(seconds))
    }

    /// A report of one of three sentinels.
    fn says(sentinel: &str, epoch: u64, master: &str) -> SentinelReport {
        let all = if "123".contains(sentinel) { ["1", "2", "3"] } else { ["4", "5", "6"] };
        let known = all.into_iter().filter(|other| *other != sentinel);
        SentinelReport {
            source: address(sentinel),
            id: Some(sentinel.into()),
            epoch,
            master: Some(ReportedMaster { address: address(master), run_id: None }),
            malformed: None,
            peer_count: Some(2),
            known: Some(known.map(Into::into).collect()),
            peers: Vec::new(),
        }
    }

    fn master(belief: &MasterView) -> &str {
        &belief.master().unwrap().host
    }

    /// Believes in the second master, at epoch 5.
    fn knowing() -> MasterView {
        let mut belief = MasterView::default();
        assert_eq!(belief.update(&[says("1", 5, "b")], 3, at(0)), MasterUpdate::Changed);
        belief
    }

    #[test]
    fn learn_follows_the_highest_epoch_of_any_sentinel() {
        let mut belief = MasterView::default();
        let reports = [says("1", 4, "a"), says("2", 5, "b"), says("3", 4, "a")];
        assert_eq!(belief.update(&reports, 3, at(0)), MasterUpdate::Changed);
        assert_eq!((master(&belief), belief.epoch()), ("b", Some(5)));
        assert_eq!(belief.update(&reports, 3, at(100)), MasterUpdate::Unchanged);
        assert_eq!(belief.update(&[says("3", 6, "a")], 3, at(0)), MasterUpdate::Changed);
        assert_eq!(master(&belief), "a");
        // The same server is the master again: another one was the master meanwhile.
        assert_eq!(belief.update(&[says("3", 8, "a")], 3, at(0)), MasterUpdate::Changed);
    }

    #[test]
    fn a_lower_epoch_is_refused() {
        let mut belief = knowing();
        for reports in [
            &[says("2", 4, "a")][..],
            &[says("2", 4, "a"), says("3", 4, "a")],
            &[says("2", 4, "a"), says("3", 4, "a"), says("1", 4, "a")],
            &[says("2", 5, "a")],
        ] {
            assert_eq!(belief.update(reports, 3, at(9)), MasterUpdate::Outdated, "{reports:?}");
            assert_eq!(master(&belief), "b");
        }
        assert_eq!(
            belief.update(&[says("2", 4, "a")], 3, at(60)),
            MasterUpdate::Outdated,
            "one of three"
        );
    }

    #[test]
    fn half_of_the_sentinels_are_no_majority() {
        let of_four = |sentinel, master| SentinelReport {
            peer_count: Some(3),
            known: Some(["1", "2", "3", "4"].map(Into::into).into()),
            ..says(sentinel, 4, master)
        };
        let half = [of_four("2", "a"), of_four("3", "a")];
        assert!(!is_majority(&half, 4));
        assert_eq!(knowing().update(&half, 4, at(60)), MasterUpdate::Outdated);
        let most = [of_four("2", "a"), of_four("3", "a"), of_four("4", "a")];
        assert!(is_majority(&most, 4));
        assert_eq!(knowing().update(&most, 4, at(60)), MasterUpdate::Changed);
    }

    #[test]
    fn sentinels_that_were_set_up_anew_count_when_most_have_said_so_for_long() {
        let mut belief = knowing();
        let anew = [says("4", 0, "c"), says("5", 0, "c")];
        assert_eq!(belief.update(&anew, 3, at(9)), MasterUpdate::Outdated);
        let one = says("1", 5, "b");
        let with_one = [anew[0].clone(), one, anew[1].clone()];
        assert_eq!(
            belief.update(&with_one, 3, at(11)),
            MasterUpdate::Unchanged,
            "one still names it"
        );
        assert_eq!(belief.update(&anew, 3, at(20)), MasterUpdate::Outdated);
        assert_eq!(belief.update(&anew, 3, at(21)), MasterUpdate::Changed);
        assert_eq!((master(&belief), belief.epoch()), ("c", Some(0)));
    }

    #[test]
    fn learn_with_two_masters_at_one_epoch_keeps_the_known_master() {
        let mut belief = knowing();
        let two = [says("1", 5, "b"), says("2", 5, "a")];
        assert_eq!(belief.update(&two, 3, at(60)), MasterUpdate::Unchanged);
        let three = [says("1", 5, "b"), says("2", 5, "a"), says("3", 5, "a")];
        assert_eq!(belief.update(&three, 3, at(60)), MasterUpdate::Outdated, "one still names it");
        assert_eq!(belief.update(&three[1..], 3, at(60)), MasterUpdate::Outdated);
        assert_eq!(belief.update(&three[1..], 3, at(70)), MasterUpdate::Changed);
    }

    #[test]
    fn sentinel_at_two_addresses_has_one_vote() {
        let twice = [says("2", 4, "a"), says("2", 4, "a")];
        assert!(!is_majority(&twice, 1));
        assert!(is_majority(&[says("2", 4, "a"), says("3", 4, "a")], 1));
        assert_eq!(knowing().update(&twice, 3, at(60)), MasterUpdate::Outdated);
        let newer = [says("2", 5, "b"), says("2", 6, "a")];
        let mut belief = MasterView::default();
        belief.update(&newer, 3, at(0));
        assert_eq!(master(&belief), "a");
    }

    #[test]
    fn learn_without_a_reported_master_returns_nothing() {
        let unknown = SentinelReport { master: None, ..says("1", 0, "") };
        assert_eq!(
            MasterView::default().update(std::slice::from_ref(&unknown), 3, at(0)),
            MasterUpdate::NoMaster
        );
        let mut belief = MasterView::default();
        assert_eq!(belief.update(&[unknown, says("2", 0, "a")], 3, at(0)), MasterUpdate::Changed);
    }

    /// It may be of another deployment, or have lost its configuration.
    #[test]
    fn sentinel_without_master_does_not_count_for_a_majority() {
        let unknown = |sentinel| SentinelReport {
            master: None,
            peer_count: None,
            known: None,
            ..says(sentinel, 0, "")
        };
        assert!(!is_majority(&[unknown("1")], 1));
        assert!(!is_majority(&[unknown("1"), unknown("2")], 3));
        assert!(!is_majority(&[unknown("1"), says("2", 4, "a")], 3));
        assert!(is_majority(&[unknown("1"), says("2", 4, "a"), says("3", 4, "a")], 3));
    }

    #[test]
    fn sentinel_that_reports_no_peer_count_is_no_majority_alone() {
        let tells_little = |sentinel, master| SentinelReport {
            peer_count: None,
            known: None,
            ..says(sentinel, 0, master)
        };
        let one = [tells_little("1", "a")];
        assert!(!is_majority(&one, 3));
        assert_eq!(knowing().update(&one, 3, at(60)), MasterUpdate::Outdated);
        let two = [tells_little("1", "a"), tells_little("2", "a")];
        assert!(is_majority(&two, 3));
        assert_eq!(knowing().update(&two, 3, at(60)), MasterUpdate::Changed);
        // Another sentinel reports the same.
        let with_another = [tells_little("1", "a"), says("2", 4, "b")];
        assert_eq!(knowing().update(&with_another[..1], 1, at(60)), MasterUpdate::Changed);
        assert_eq!(knowing().update(&with_another, 1, at(60)), MasterUpdate::Outdated);
    }

    #[test]
    fn a_count_of_sentinels_that_does_not_fit_is_no_majority() {
        let many =
            SentinelReport { peer_count: Some(usize::MAX), epoch: u64::MAX, ..says("1", 0, "a") };
        assert!(!is_majority(std::slice::from_ref(&many), 1));
        let mut belief = knowing();
        assert_eq!(
            belief.update(&[many], 3, at(0)),
            MasterUpdate::Changed,
            "the highest epoch counts"
        );
    }
}
