//! Which view is installed.

use super::*;
use crate::backend::fake::{address, id_of};
use crate::router::cluster::node_view::fixture::{AFTER, BEFORE, all_on, alone, view};

/// A view of a node that does not serve.
fn down(view: NodeView) -> NodeView {
    let ReportedTopology::Cluster(ClusterView { map, epoch, .. }) = view.topology else { panic!() };
    let topology = ReportedTopology::Cluster(ClusterView { map, epoch, serves: Some(false) });
    NodeView { topology, ..view }
}

/// A view without epoch and state.
fn silent(view: NodeView) -> NodeView {
    let ReportedTopology::Cluster(ClusterView { map, .. }) = view.topology else { panic!() };
    let topology = ReportedTopology::Cluster(ClusterView { map, epoch: None, serves: None });
    NodeView { topology, ..view }
}

/// The same slots on other nodes.
fn of_others() -> NodeView {
    all_on("a", "a", "z-id", 99)
}

fn known(ranges: &[(u16, u16, &str)], epoch: u64) -> KnownCluster {
    let mut known = KnownCluster::default();
    known.install(view("a", ranges, epoch), 0);
    known
}

fn gone(hosts: &[&str]) -> HashSet<Address> {
    hosts.iter().map(|host| address(host)).collect()
}

fn master_of(known: &KnownCluster, slot: u16) -> Option<String> {
    known.map.master_of(Slot::new(slot).unwrap()).map(|master| master.host.to_string())
}

#[test]
fn after_a_cluster_there_is_no_single_server() {
    let known = known(&BEFORE, 1);
    assert_eq!(known.reject_reason(&alone("a", None)), Some(UnexpectedServer::Standalone));
    assert!(known.choose(&[alone("a", None)], &gone(&[])).is_none());
    let refused = Admission::Rejected(UnexpectedServer::Standalone);
    assert_eq!(known.admission(&address("a"), &ServerIdentity::Standalone, None), refused);
    assert_eq!(KnownCluster::default().reject_reason(&alone("a", None)), None);
}

#[test]
fn a_single_server_is_not_installed_over_a_cluster() {
    let mut known = known(&BEFORE, 1);
    assert!(!known.install(alone("a", Some("a")), 0));
    assert_eq!(known.kind, DeploymentKind::Cluster);
    assert_eq!(master_of(&known, 16383).as_deref(), Some("c"));
}

#[test]
fn a_map_that_shares_no_id_is_of_another_cluster() {
    let known = known(&BEFORE, 1);
    assert_eq!(known.reject_reason(&of_others()), Some(UnexpectedServer::OtherCluster));
    assert!(known.choose(&[of_others()], &gone(&[])).is_none());
    // One node in common is enough.
    let few = view("c", &[(0, 5460, "x"), (5461, 16383, "c")], 1);
    assert_eq!(known.reject_reason(&few), None);
}

#[test]
fn a_node_whose_id_is_not_known_shows_its_map() {
    let known = known(&BEFORE, 1);
    let admission =
        |id: &str| known.admission(&address("a"), &ServerIdentity::ClusterNode(id.into()), None);
    assert_eq!(admission(&id_of("a")), Admission::Admitted);
    assert_eq!(admission(&id_of("b")), Admission::Admitted, "addresses change");
    assert_eq!(admission("z-id"), Admission::CheckSlotMap);
    // An unknown identity is no refusal.
    assert_eq!(known.admission(&address("a"), &ServerIdentity::Unknown, None), Admission::Admitted);
    assert_eq!(
        KnownCluster::default().admission(&address("a"), &ServerIdentity::Standalone, None),
        Admission::Admitted
    );
}

#[test]
fn a_single_server_is_known_by_its_process() {
    let mut known = KnownCluster::default();
    known.install(alone("a", Some("first")), 0);
    let admission = |process| known.admission(&address("a"), &ServerIdentity::Standalone, process);
    assert_eq!(admission(Some("first")), Admission::Admitted);
    assert_eq!(admission(Some("second")), Admission::FindOriginal);
    assert_eq!(admission(None), Admission::Admitted);
}

#[test]
fn choose_prefers_the_highest_epoch_even_of_one_node() {
    let known = known(&BEFORE, 1);
    let views = [view("a", &BEFORE, 1), view("b", &BEFORE, 1), view("d", &AFTER, 2)];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("d"));
    // Nothing known: the same.
    let views = [view("a", &BEFORE, 1), view("d", &AFTER, 2)];
    assert_eq!(KnownCluster::default().choose(&views, &gone(&[])).unwrap().node, address("d"));
}

#[test]
fn nodes_that_do_not_serve_overrule_none_that_does() {
    let known = known(&BEFORE, 1);
    let views = [
        view("a", &BEFORE, 1),
        down(view("d", &AFTER, 2)),
        down(view("e", &AFTER, 2)),
        view("b", &BEFORE, 1),
    ];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("a"));
    // Nothing known: the same.
    assert_eq!(KnownCluster::default().choose(&views, &gone(&[])).unwrap().node, address("a"));
    // If no node serves, the highest epoch counts, as always.
    let views = [down(view("a", &BEFORE, 1)), down(view("d", &AFTER, 2))];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("d"));
}

#[test]
fn choose_prefers_failed_nodes_to_a_serving_minority_of_older_epoch() {
    let known = known(&BEFORE, 5);
    let views = [view("a", &BEFORE, 3), down(view("b", &AFTER, 6)), down(view("c", &AFTER, 6))];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("b"));
    // Nor do those bring back an older epoch while a node serves at a higher one.
    let views = [view("a", &BEFORE, 4), down(view("b", &AFTER, 3)), down(view("c", &AFTER, 3))];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("a"));
}

#[test]
fn an_epoch_below_the_known_one_needs_most_masters() {
    let known = known(&AFTER, 5);
    let old = |node| view(node, &BEFORE, 3);
    assert!(known.choose(&[old("b")], &gone(&[])).is_none());
    assert!(known.choose(&[old("b"), old("c")], &gone(&[])).is_some());
    // Replicas do not count.
    let views = ["a", "e", "f", "g", "b"].map(old);
    assert!(known.choose(&views, &gone(&[])).is_none());
    // Masters that are gone do not count, but those that do not answer do.
    assert!(known.choose(&[old("b")], &gone(&["d"])).is_none());
    assert!(known.choose(&[old("b")], &gone(&["c", "d"])).is_some());
    // If none of those is left, others do not replace them.
    assert!(known.choose(&[old("a")], &gone(&["b", "c", "d"])).is_none());
    // Not while one node has the known one.
    let views = [old("a"), old("b"), old("c"), view("d", &AFTER, 5)];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("d"));
    // Unless it does not serve.
    let views = [old("b"), old("c"), down(view("d", &AFTER, 5))];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("b"));
}

#[test]
fn among_equals_those_that_serve_and_then_the_majority() {
    let known = known(&BEFORE, 1);
    let views = [view("a", &BEFORE, 2), view("b", &AFTER, 2), view("c", &AFTER, 2)];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("b"));
    let views = [down(view("a", &BEFORE, 2)), down(view("b", &BEFORE, 2)), view("c", &AFTER, 2)];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("c"));
    // In a draw what is known stays.
    let views = [view("c", &AFTER, 1), view("a", &BEFORE, 1)];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("a"));
}

#[test]
fn choose_accepts_nodes_that_report_no_epoch() {
    let known = known(&BEFORE, 7);
    let views = [silent(view("b", &AFTER, 0)), silent(view("c", &AFTER, 0))];
    assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("b"));
    assert!(known.is_confirmed_by(&silent(view("b", &BEFORE, 0))));
}

#[test]
fn is_confirmed_by_view_with_other_masters_or_epoch_is_false() {
    let known = known(&BEFORE, 2);
    assert!(known.is_confirmed_by(&view("b", &BEFORE, 2)));
    assert!(known.is_confirmed_by(&view("b", &BEFORE[..2], 2)), "a part of it");
    for events in [
        view("b", &AFTER, 2),
        view("b", &BEFORE, 3),
        view("b", &BEFORE, 1),
        down(view("b", &BEFORE, 2)),
        alone("a", None),
    ] {
        assert!(!known.is_confirmed_by(&events), "{events:?}");
    }
    assert!(!KnownCluster::default().is_confirmed_by(&view("b", &BEFORE, 2)));
}

#[test]
fn a_part_of_the_map_takes_nothing_away() {
    let mut known = known(&BEFORE, 1);
    assert!(known.install(view("d", &[(0, 99, "d"), (100, 5460, "a")], 2), 0));
    let masters = [7, 100, 6000, 16383].map(|slot| master_of(&known, slot).unwrap());
    assert_eq!(masters, ["d", "a", "b", "c"]);
    for host in ["a", "b", "c", "d"] {
        assert!(known.map.has_id(&id_of(host)), "{host}");
    }
}

#[test]
fn a_lesson_outlives_what_was_asked_before_it() {
    let mut known = known(&BEFORE, 1);
    let (early, late) = (Slot::new(1).unwrap(), Slot::new(2).unwrap());
    known.record_redirect(early, &address("b"));
    let since = known.redirect_count();
    known.record_redirect(late, &address("c"));
    known.install(view("d", &AFTER, 2), since);
    assert_eq!([1, 2, 3].map(|slot| master_of(&known, slot).unwrap()), ["d", "c", "d"]);
    let since = known.redirect_count();
    known.install(view("d", &AFTER, 2), since);
    assert_eq!(master_of(&known, 2).as_deref(), Some("d"), "one that was asked later knows better");
}
