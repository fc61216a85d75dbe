//! Which views are of one deployment.

use rwlease_core::resp::RespValue;

use super::*;
use crate::backend::fake::{address, text};
use crate::router::cluster::node_view::ClusterView;
use crate::router::cluster::node_view::fixture::{AFTER, BEFORE, all_on, alone, map_in, view};

/// A view of one of two clusters, both at epoch 1.
fn of_cluster(node: &str, ranges: &[(u16, u16, &str)]) -> NodeView {
    view(node, ranges, 1)
}

enum Judged {
    One(Vec<String>, Vec<String>),
    Several(String),
    Unsure,
}

fn judged(views: &[NodeView], seeds: &[&str]) -> Judged {
    let seeds: Vec<Address> = seeds.iter().map(|host| address(host)).collect();
    match Deployment::of(views.to_vec(), &seeds) {
        Deployment::One { views, unexpected } => Judged::One(
            views.iter().map(|view| view.node.host.to_string()).collect(),
            unexpected.iter().map(|(address, _)| address.host.to_string()).collect(),
        ),
        Deployment::Several(why) => Judged::Several(why),
        Deployment::Unsure(_) => Judged::Unsure,
    }
}

#[test]
fn deployment_of_one_server_or_cluster_is_one() {
    let (first, other) = (Some("first"), Some("other"));
    let is_one = |views: &[NodeView], seeds: &[&str]| {
        matches!(judged(views, seeds), Judged::One(views, unexpected)
            if views.len() == seeds.len() && unexpected.is_empty())
    };
    assert!(is_one(&[alone("a", first)], &["a"]));
    assert!(is_one(&[alone("a", None)], &["a"]));
    assert!(is_one(&[alone("a", first), alone("b", first)], &["a", "b"]), "two names of one");
    assert!(is_one(&[view("a", &BEFORE, 1), view("d", &AFTER, 9)], &["a", "d"]));
    assert!(matches!(judged(&[alone("a", first)], &["a", "b"]), Judged::Unsure));
    let one_of_two = judged(&[alone("a", first), alone("b", other)], &["a", "b", "c"]);
    assert!(matches!(one_of_two, Judged::Several(_)));
}

#[test]
fn deployment_of_contradicting_seed_nodes_is_several_and_names_both() {
    let cluster = || of_cluster("a", &BEFORE);
    let other = || of_cluster("x", &[(0, 16383, "x")]);
    let named = |process| alone("s", process);
    for (first, second) in [
        (cluster(), other()),
        (cluster(), named(Some("first"))),
        (cluster(), named(None)),
        (named(Some("first")), alone("t", Some("other"))),
        (named(Some("first")), alone("t", None)),
        (named(None), alone("t", None)),
    ] {
        let nodes = [&first, &second].map(|view| view.node.host.to_string());
        let seeds = [&*nodes[0], &nodes[1], "unheard"];
        for views in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
            let Judged::Several(why) = judged(&views, &seeds) else { panic!("{views:?}") };
            assert!(seeds[..2].iter().all(|node| why.contains(&format!("{node}:1"))), "{why}");
        }
    }
}

#[test]
fn deployment_with_cluster_node_without_id_contradicts_no_seed() {
    let unnamed = |host: &str| RespValue::Array(vec![text(host), RespValue::Int(1)]);
    let all = RespValue::Array(vec![RespValue::Int(0), RespValue::Int(16383), unnamed("x")]);
    let (map, epoch, serves) = (map_in(&RespValue::Array(vec![all]), "x"), Some(1), Some(true));
    let topology = ReportedTopology::Cluster(ClusterView { map, epoch, serves });
    let unnamed = NodeView { node: address("x"), topology };
    let views = [of_cluster("a", &BEFORE), unnamed];
    assert!(matches!(judged(&views, &["a", "x"]), Judged::One(views, _) if views.len() == 2));
}

#[test]
fn deployment_drops_a_server_at_the_address_of_a_node() {
    let seeds = ["a", "b"];
    let elsewhere = of_cluster("b", &[(0, 16383, "x")]);
    for foreign in [alone("b", Some("first")), elsewhere.clone()] {
        for views in [
            [of_cluster("a", &BEFORE), foreign.clone()],
            [foreign.clone(), of_cluster("a", &BEFORE)],
        ] {
            let Judged::One(views, unexpected) = judged(&views, &seeds) else {
                panic!("{views:?}")
            };
            assert_eq!((views, unexpected), (vec!["a".to_owned()], vec!["b".to_owned()]));
        }
    }
    // Only the views of seeds count.
    let views = [of_cluster("a", &BEFORE), elsewhere];
    assert!(matches!(judged(&views, &["a"]), Judged::One(_, unexpected) if unexpected == ["b"]));
    // Two clusters that list each other's nodes.
    let a_has_b = of_cluster("a", &BEFORE);
    let b_has_a = all_on("b", "a", "z-id", 1);
    assert!(matches!(judged(&[a_has_b, b_has_a], &seeds), Judged::Several(_)));
}
