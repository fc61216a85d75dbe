use std::collections::BTreeSet;
use std::net::IpAddr;

use super::*;
use crate::doctor::probe::Node;

fn address(port: u16) -> Address {
    Address { host: "name".to_owned(), port }
}

fn named(port: u16, who: ServerIdentities) -> UrlTarget {
    UrlTarget { address: address(port), resolved: BTreeSet::new(), who: Ok(who) }
}

fn node_of(id: &str, knows: &[&str]) -> ServerIdentities {
    ServerIdentities {
        in_cluster: Some(true),
        id: Some(id.to_owned()),
        known_nodes: knows.iter().map(|id| id.to_string()).collect(),
        ..ServerIdentities::default()
    }
}

fn levels(deployment: &Deployment) -> Vec<Severity> {
    all(deployment).into_iter().map(|finding| finding.severity).collect()
}

fn cluster(named: Vec<UrlTarget>) -> Deployment {
    Deployment { is_cluster: true, nodes: Vec::new(), named, sentinels: None }
}

#[test]
fn cluster_nodes_that_do_not_know_each_other_are_reported() {
    let with = |other| cluster(vec![named(1, node_of("a", &["a", "b"])), named(2, other)]);
    assert_eq!(levels(&with(node_of("b", &["a", "b"]))), []);
    assert_eq!(levels(&with(node_of("c", &["c", "d"]))), [Severity::Error]);
    assert_eq!(levels(&with(node_of("b", &["b"]))), [Severity::Warning]);
    let mute = ServerIdentities { in_cluster: Some(true), ..ServerIdentities::default() };
    assert_eq!(levels(&with(mute)), [], "one that does not tell is unknown");
}

#[test]
fn node_of_another_cluster_at_a_known_address_is_wrong() {
    let node = |port, who| Node {
        address: address(port),
        role: Role::Master(vec![(0, 8_191)]),
        facts: Ok(NodeFacts { identity: who, ..NodeFacts::default() }),
    };
    let deployment = Deployment {
        nodes: vec![node(1, node_of("a", &["a", "b"])), node(2, node_of("c", &["c"]))],
        ..cluster(Vec::new())
    };
    let [stranger] = &all(&deployment)[..] else { panic!("one finding") };
    assert_eq!(
        (stranger.severity, &*stranger.nodes),
        (Severity::Error, &["name:2".to_owned()][..])
    );
}

#[test]
fn server_name_of_several_addresses_or_a_primary_is_a_warning() {
    let with = |resolved: &[&str], info: &[(&str, &str)]| {
        let who = ServerIdentities {
            run_ids: BTreeSet::from(["run".to_owned()]),
            in_cluster: Some(false),
            ..ServerIdentities::default()
        };
        let info = info.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let facts =
            NodeFacts { info: info.collect(), identity: who.clone(), ..NodeFacts::default() };
        let resolved = resolved.iter().map(|address| address.parse::<IpAddr>().unwrap());
        let deployment = Deployment {
            is_cluster: false,
            nodes: vec![Node { address: address(1), role: Role::Single, facts: Ok(facts) }],
            named: vec![UrlTarget { resolved: resolved.collect(), ..named(1, who) }],
            sentinels: None,
        };
        levels(&deployment)
    };
    let (alone, primary) = (("connected_slaves", "0"), ("connected_slaves", "1"));
    let (one, two) = (["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(with(&[], &[primary]), []);
    assert_eq!(with(&one, &[alone]), []);
    assert_eq!(with(&one, &[primary]), [Severity::Warning]);
    assert_eq!(with(&two, &[alone]), [Severity::Warning]);
    assert_eq!(with(&two, &[primary]), [Severity::Warning, Severity::Warning]);
    assert_eq!(with(&["127.0.0.1", "::1"], &[alone]), [], "one of each kind");
    assert_eq!(with(&one, &[("role", "slave"), primary]), [Severity::Error]);
}
