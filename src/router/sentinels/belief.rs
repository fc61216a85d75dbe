//! Decides which sentinel is believed. This file only decides.
//!
//! - The report of the highest epoch counts. Each failover has its own epoch, and the sentinel that
//!   carried it out knows it first.
//! - A lower epoch than the known one, or another master at the same epoch, counts only if most of
//!   the sentinels report it and none has named the known master for [`STANDS`]: sentinels that
//!   were set up anew start again at epoch zero. Just after a failover, most sentinels are behind.
//! - A sentinel of another deployment counts no more than that, whatever its epoch: the address of
//!   a sentinel can become that of another deployment's. It is one of the same deployment if it or
//!   one that it knows is known, or if it names the known master.

use std::collections::HashSet;
use std::time::Duration;

use crate::clock::Moment;
use crate::node::Address;
use crate::router::sentinels::report::Report;

/// How long the known master is kept although no sentinel names it. News reaches all running
/// sentinels within a few seconds.
const STANDS: Duration = Duration::from_secs(10);

/// The master that is believed to be the current one.
#[derive(Debug, Default)]
pub(crate) struct Belief {
    known: Option<Known>,
    /// The ids of the sentinels of this deployment, as far as they are known.
    sentinels: HashSet<Box<str>>,
}

#[derive(Debug)]
struct Known {
    epoch: u64,
    master: Address,
    /// When a sentinel last named it at this epoch.
    named: Moment,
}

/// The result of weighing some reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// No sentinel knows a master of that name.
    Nothing,
    Same,
    Changed,
    /// The reports are older than what is known.
    Outdated,
}

impl Belief {
    pub(crate) fn master(&self) -> Option<&Address> {
        self.known.as_ref().map(|known| &known.master)
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.known.as_ref().map(|known| known.epoch)
    }

    /// Weighs reports that sentinels gave just now. `named` sentinels were configured.
    pub(crate) fn learn(&mut self, reports: &[Report], named: usize, now: Moment) -> Learned {
        self.note_sentinels(reports);
        let (own, foreign): (Vec<&Report>, Vec<&Report>) =
            distinct(reports).into_iter().partition(|report| self.is_own(report));
        let is_foreign = own.iter().all(|report| report.master.is_none());
        let reports = if is_foreign { foreign } else { own };
        if let Some(known) = &mut self.known
            && reports.iter().any(|report| known.is_named_by(report))
        {
            known.named = now;
        }
        let Some((best, votes)) = self.best_of(&reports) else {
            return Learned::Nothing;
        };
        if let Some(known) = &self.known {
            if known.is_named_by(best) {
                return Learned::Same;
            }
            let is_forgotten = now.since(known.named) >= STANDS;
            let is_majority = votes > sentinels(&reports, named) / 2;
            let is_newer = best.epoch > known.epoch && !is_foreign;
            let is_replaced = is_forgotten && is_majority;
            if !(is_newer || is_replaced) {
                return Learned::Outdated;
            }
        }
        if let Some(named) = &best.master {
            self.known =
                Some(Known { epoch: best.epoch, master: named.address.clone(), named: now });
        }
        if is_foreign {
            self.sentinels = reports.iter().flat_map(|report| ids_in(report)).collect();
        }
        Learned::Changed
    }

    /// Returns true unless a report is of another deployment. A sentinel that does not tell its id,
    /// or which others it knows, may be one of the same.
    pub(crate) fn is_own(&self, report: &Report) -> bool {
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
    fn note_sentinels(&mut self, reports: &[Report]) {
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
    fn best_of<'a>(&self, reports: &[&'a Report]) -> Option<(&'a Report, usize)> {
        let naming = reports.iter().copied().filter(|report| report.master.is_some());
        let ranked = naming.map(|report| {
            let votes = reports.iter().filter(|other| other.agrees(report)).count();
            (report, votes)
        });
        let is_known =
            |report: &Report| self.known.as_ref().is_some_and(|known| known.is_named_by(report));
        ranked.max_by_key(|(report, votes)| (report.epoch, *votes, is_known(report)))
    }
}

impl Known {
    fn is_named_by(&self, report: &Report) -> bool {
        report.epoch == self.epoch && report.address() == Some(&self.master)
    }
}

/// Returns true if most of the sentinels that watch the master have named one. `named` sentinels
/// were configured.
pub(crate) fn is_majority(reports: &[Report], named: usize) -> bool {
    let reports = distinct(reports);
    let naming = reports.iter().filter(|report| report.master.is_some()).count();
    naming > sentinels(&reports, named) / 2
}

/// How many sentinels there are, by their own count. If none reports a count (a missing right, no
/// master of that name), the number that was configured.
fn sentinels(reports: &[&Report], named: usize) -> usize {
    let said = reports.iter().filter_map(|report| report.others).max();
    said.map_or(named, |others| others.saturating_add(1)).max(reports.len())
}

/// The ids of the sentinel and of those that it knows.
fn ids_in(report: &Report) -> impl Iterator<Item = Box<str>> {
    report.id.iter().chain(report.known.iter().flatten()).cloned()
}

/// The newest report of each sentinel, which may be known by several addresses.
fn distinct(reports: &[Report]) -> Vec<&Report> {
    let mut distinct: Vec<&Report> = Vec::with_capacity(reports.len());
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
    use crate::node::fake::address;
    use crate::router::sentinels::report::Named;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    /// A report of one of three sentinels.
    fn says(sentinel: &str, epoch: u64, master: &str) -> Report {
        let all = if "123".contains(sentinel) { ["1", "2", "3"] } else { ["4", "5", "6"] };
        let known = all.into_iter().filter(|other| *other != sentinel);
        Report {
            source: address(sentinel),
            id: Some(sentinel.into()),
            epoch,
            master: Some(Named { address: address(master), process: None }),
            malformed: None,
            others: Some(2),
            known: Some(known.map(Into::into).collect()),
            peers: Vec::new(),
        }
    }

    fn master(belief: &Belief) -> &str {
        &belief.master().unwrap().host
    }

    /// Believes in the second master, at epoch 5.
    fn knowing() -> Belief {
        let mut belief = Belief::default();
        assert_eq!(belief.learn(&[says("1", 5, "b")], 3, at(0)), Learned::Changed);
        belief
    }

    #[test]
    fn learn_follows_the_highest_epoch_of_any_sentinel() {
        let mut belief = Belief::default();
        let reports = [says("1", 4, "a"), says("2", 5, "b"), says("3", 4, "a")];
        assert_eq!(belief.learn(&reports, 3, at(0)), Learned::Changed);
        assert_eq!((master(&belief), belief.epoch()), ("b", Some(5)));
        assert_eq!(belief.learn(&reports, 3, at(100)), Learned::Same);
        assert_eq!(belief.learn(&[says("3", 6, "a")], 3, at(0)), Learned::Changed);
        assert_eq!(master(&belief), "a");
        // The same server is the master again: another one was the master meanwhile.
        assert_eq!(belief.learn(&[says("3", 8, "a")], 3, at(0)), Learned::Changed);
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
            assert_eq!(belief.learn(reports, 3, at(9)), Learned::Outdated, "{reports:?}");
            assert_eq!(master(&belief), "b");
        }
        assert_eq!(
            belief.learn(&[says("2", 4, "a")], 3, at(60)),
            Learned::Outdated,
            "one of three"
        );
    }

    #[test]
    fn half_of_the_sentinels_are_no_majority() {
        let of_four = |sentinel, master| Report {
            others: Some(3),
            known: Some(["1", "2", "3", "4"].map(Into::into).into()),
            ..says(sentinel, 4, master)
        };
        let half = [of_four("2", "a"), of_four("3", "a")];
        assert!(!is_majority(&half, 4));
        assert_eq!(knowing().learn(&half, 4, at(60)), Learned::Outdated);
        let most = [of_four("2", "a"), of_four("3", "a"), of_four("4", "a")];
        assert!(is_majority(&most, 4));
        assert_eq!(knowing().learn(&most, 4, at(60)), Learned::Changed);
    }

    #[test]
    fn sentinels_that_were_set_up_anew_count_when_most_have_said_so_for_long() {
        let mut belief = knowing();
        let anew = [says("4", 0, "c"), says("5", 0, "c")];
        assert_eq!(belief.learn(&anew, 3, at(9)), Learned::Outdated);
        let one = says("1", 5, "b");
        let with_one = [anew[0].clone(), one, anew[1].clone()];
        assert_eq!(belief.learn(&with_one, 3, at(11)), Learned::Same, "one still names it");
        assert_eq!(belief.learn(&anew, 3, at(20)), Learned::Outdated);
        assert_eq!(belief.learn(&anew, 3, at(21)), Learned::Changed);
        assert_eq!((master(&belief), belief.epoch()), ("c", Some(0)));
    }

    #[test]
    fn learn_with_two_masters_at_one_epoch_keeps_the_known_master() {
        let mut belief = knowing();
        let two = [says("1", 5, "b"), says("2", 5, "a")];
        assert_eq!(belief.learn(&two, 3, at(60)), Learned::Same);
        let three = [says("1", 5, "b"), says("2", 5, "a"), says("3", 5, "a")];
        assert_eq!(belief.learn(&three, 3, at(60)), Learned::Outdated, "one still names it");
        assert_eq!(belief.learn(&three[1..], 3, at(60)), Learned::Outdated);
        assert_eq!(belief.learn(&three[1..], 3, at(70)), Learned::Changed);
    }

    #[test]
    fn sentinel_at_two_addresses_has_one_vote() {
        let twice = [says("2", 4, "a"), says("2", 4, "a")];
        assert!(!is_majority(&twice, 1));
        assert!(is_majority(&[says("2", 4, "a"), says("3", 4, "a")], 1));
        assert_eq!(knowing().learn(&twice, 3, at(60)), Learned::Outdated);
        let newer = [says("2", 5, "b"), says("2", 6, "a")];
        let mut belief = Belief::default();
        belief.learn(&newer, 3, at(0));
        assert_eq!(master(&belief), "a");
    }

    #[test]
    fn learn_without_a_reported_master_returns_nothing() {
        let unknown = Report { master: None, ..says("1", 0, "") };
        assert_eq!(
            Belief::default().learn(std::slice::from_ref(&unknown), 3, at(0)),
            Learned::Nothing
        );
        let mut belief = Belief::default();
        assert_eq!(belief.learn(&[unknown, says("2", 0, "a")], 3, at(0)), Learned::Changed);
    }

    /// It may be of another deployment, or have lost its configuration.
    #[test]
    fn sentinel_without_master_does_not_count_for_a_majority() {
        let unknown =
            |sentinel| Report { master: None, others: None, known: None, ..says(sentinel, 0, "") };
        assert!(!is_majority(&[unknown("1")], 1));
        assert!(!is_majority(&[unknown("1"), unknown("2")], 3));
        assert!(!is_majority(&[unknown("1"), says("2", 4, "a")], 3));
        assert!(is_majority(&[unknown("1"), says("2", 4, "a"), says("3", 4, "a")], 3));
    }

    #[test]
    fn sentinel_that_reports_no_peer_count_is_no_majority_alone() {
        let tells_little =
            |sentinel, master| Report { others: None, known: None, ..says(sentinel, 0, master) };
        let one = [tells_little("1", "a")];
        assert!(!is_majority(&one, 3));
        assert_eq!(knowing().learn(&one, 3, at(60)), Learned::Outdated);
        let two = [tells_little("1", "a"), tells_little("2", "a")];
        assert!(is_majority(&two, 3));
        assert_eq!(knowing().learn(&two, 3, at(60)), Learned::Changed);
        // Another sentinel reports the same.
        let with_another = [tells_little("1", "a"), says("2", 4, "b")];
        assert_eq!(knowing().learn(&with_another[..1], 1, at(60)), Learned::Changed);
        assert_eq!(knowing().learn(&with_another, 1, at(60)), Learned::Outdated);
    }

    #[test]
    fn a_count_of_sentinels_that_does_not_fit_is_no_majority() {
        let many = Report { others: Some(usize::MAX), epoch: u64::MAX, ..says("1", 0, "a") };
        assert!(!is_majority(std::slice::from_ref(&many), 1));
        let mut belief = knowing();
        assert_eq!(belief.learn(&[many], 3, at(0)), Learned::Changed, "the highest epoch counts");
    }
}
