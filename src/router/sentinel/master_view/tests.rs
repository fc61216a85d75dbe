use super::*;
use crate::backend::fake::address;
use crate::router::sentinel::report::ReportedMaster;

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

fn master(view: &MasterView) -> &str {
    &view.master().unwrap().host
}

/// Believes in the second master, at epoch 5.
fn knowing() -> MasterView {
    let mut view = MasterView::default();
    assert_eq!(view.update(&[says("1", 5, "b")], 3, at(0)), MasterUpdate::Changed);
    view
}

#[test]
fn learn_follows_the_highest_epoch_of_any_sentinel() {
    let mut view = MasterView::default();
    let reports = [says("1", 4, "a"), says("2", 5, "b"), says("3", 4, "a")];
    assert_eq!(view.update(&reports, 3, at(0)), MasterUpdate::Changed);
    assert_eq!((master(&view), view.epoch()), ("b", Some(5)));
    assert_eq!(view.update(&reports, 3, at(100)), MasterUpdate::Unchanged);
    assert_eq!(view.update(&[says("3", 6, "a")], 3, at(0)), MasterUpdate::Changed);
    assert_eq!(master(&view), "a");
    // The same server is the master again: another one was the master meanwhile.
    assert_eq!(view.update(&[says("3", 8, "a")], 3, at(0)), MasterUpdate::Changed);
}

#[test]
fn sentinel_lower_epoch_is_rejected() {
    let mut view = knowing();
    for reports in [
        &[says("2", 4, "a")][..],
        &[says("2", 4, "a"), says("3", 4, "a")],
        &[says("2", 4, "a"), says("3", 4, "a"), says("1", 4, "a")],
        &[says("2", 5, "a")],
    ] {
        assert_eq!(view.update(reports, 3, at(9)), MasterUpdate::Outdated, "{reports:?}");
        assert_eq!(master(&view), "b");
    }
    assert_eq!(
        view.update(&[says("2", 4, "a")], 3, at(60)),
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
    let mut view = knowing();
    let anew = [says("4", 0, "c"), says("5", 0, "c")];
    assert_eq!(view.update(&anew, 3, at(9)), MasterUpdate::Outdated);
    let one = says("1", 5, "b");
    let with_one = [anew[0].clone(), one, anew[1].clone()];
    assert_eq!(view.update(&with_one, 3, at(11)), MasterUpdate::Unchanged, "one still names it");
    assert_eq!(view.update(&anew, 3, at(20)), MasterUpdate::Outdated);
    assert_eq!(view.update(&anew, 3, at(21)), MasterUpdate::Changed);
    assert_eq!((master(&view), view.epoch()), ("c", Some(0)));
}

#[test]
fn learn_with_two_masters_at_one_epoch_keeps_the_known_master() {
    let mut view = knowing();
    let two = [says("1", 5, "b"), says("2", 5, "a")];
    assert_eq!(view.update(&two, 3, at(60)), MasterUpdate::Unchanged);
    let three = [says("1", 5, "b"), says("2", 5, "a"), says("3", 5, "a")];
    assert_eq!(view.update(&three, 3, at(60)), MasterUpdate::Outdated, "one still names it");
    assert_eq!(view.update(&three[1..], 3, at(60)), MasterUpdate::Outdated);
    assert_eq!(view.update(&three[1..], 3, at(70)), MasterUpdate::Changed);
}

#[test]
fn sentinel_at_two_addresses_has_one_vote() {
    let twice = [says("2", 4, "a"), says("2", 4, "a")];
    assert!(!is_majority(&twice, 1));
    assert!(is_majority(&[says("2", 4, "a"), says("3", 4, "a")], 1));
    assert_eq!(knowing().update(&twice, 3, at(60)), MasterUpdate::Outdated);
    let newer = [says("2", 5, "b"), says("2", 6, "a")];
    let mut view = MasterView::default();
    view.update(&newer, 3, at(0));
    assert_eq!(master(&view), "a");
}

#[test]
fn learn_without_a_reported_master_returns_nothing() {
    let unknown = SentinelReport { master: None, ..says("1", 0, "") };
    assert_eq!(
        MasterView::default().update(std::slice::from_ref(&unknown), 3, at(0)),
        MasterUpdate::NoMaster
    );
    let mut view = MasterView::default();
    assert_eq!(view.update(&[unknown, says("2", 0, "a")], 3, at(0)), MasterUpdate::Changed);
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
    let mut view = knowing();
    assert_eq!(view.update(&[many], 3, at(0)), MasterUpdate::Changed, "the highest epoch counts");
}
