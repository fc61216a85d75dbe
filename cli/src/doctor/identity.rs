//! Checks who answers: one cluster or one server, and no other behind the same address or name.

use super::finding::{Finding, Severity};
use super::probe::{Address, Deployment, NodeFacts, Role};
use super::server_identity::{ServerIdentities, UrlTarget};

pub fn all(deployment: &Deployment) -> Vec<Finding> {
    let mut findings = unreachable(deployment);
    findings.extend(multiple_servers_at_address(deployment));
    findings.extend(mixed_deployment(deployment));
    if deployment.is_cluster {
        findings.extend(clusters(deployment));
    } else {
        findings.extend(singles(deployment));
        findings.extend(endpoint(deployment));
    }
    findings
}

/// Everything that was queried, each address once: the nodes that the first URL leads to, then the
/// other URLs.
fn all_targets(deployment: &Deployment) -> Vec<(&Address, &ServerIdentities)> {
    let nodes = deployment.nodes.iter();
    let nodes = nodes.filter_map(|node| Some((&node.address, &node.facts.as_ref().ok()?.identity)));
    let others = foreign_targets(deployment)
        .filter_map(|named| Some((&named.address, named.who.as_ref().ok()?)));
    nodes.chain(others).collect()
}

/// The URLs that lead to no node of the cluster.
fn foreign_targets(deployment: &Deployment) -> impl Iterator<Item = &UrlTarget> {
    deployment.named.iter().filter(|named| !is_node(deployment, &named.address))
}

fn is_node(deployment: &Deployment, address: &Address) -> bool {
    deployment.nodes.iter().any(|node| node.address == *address)
}

/// URLs that cannot be queried. Nodes are reported elsewhere.
fn unreachable(deployment: &Deployment) -> Vec<Finding> {
    let gone = foreign_targets(deployment).filter_map(|named| {
        let why = named.who.as_ref().err()?;
        let says = format!(
            "this URL cannot be queried: {why}; check that the server runs, or leave the URL out"
        );
        Some(Finding::warning(says).at(named.address.to_string()))
    });
    gone.collect()
}

/// An address must lead to one server, unless it is only a way to find the nodes of a cluster.
fn multiple_servers_at_address(deployment: &Deployment) -> Vec<Finding> {
    let is_entrance = |address| deployment.is_cluster && !is_node(deployment, address);
    let several = all_targets(deployment)
        .into_iter()
        .filter(|(address, who)| who.run_ids.len() > 1 && !is_entrance(address));
    let findings = several.map(|(address, who)| {
        let servers = who.run_ids.len();
        let says = format!(
            "{servers} servers answer at this address, each with its own locks, so two can hold one lock; name the server itself \
             (or was it just restarted?)"
        );
        Finding::error(says).at(address.to_string())
    });
    findings.collect()
}

/// A mix of cluster nodes and servers without a cluster.
fn mixed_deployment(deployment: &Deployment) -> Vec<Finding> {
    let wrong = deployment.named.iter().filter_map(|named| {
        let in_cluster = named.who.as_ref().ok()?.in_cluster?;
        let says = match (deployment.is_cluster, in_cluster) {
            (true, false) => {
                "is no node of the cluster that other URLs lead to, and has its own locks; leave it out"
            }
            // Reported elsewhere.
            (false, true) if is_node(deployment, &named.address) => return None,
            (false, true) => {
                "is a node of a cluster, but other URLs lead to a server without a cluster; name one or the other"
            }
            _ => return None,
        };
        Some(Finding::error(says).at(named.address.to_string()))
    });
    wrong.collect()
}

/// Nodes that do not know each other.
fn clusters(deployment: &Deployment) -> Vec<Finding> {
    let everyone = all_targets(deployment);
    let mut known = everyone
        .into_iter()
        .filter_map(|(address, who)| Some((address, who.id.as_ref()?, &who.known_nodes)))
        .filter(|(_, _, knows)| !knows.is_empty());
    let Some((first, first_id, first_knows)) = known.next() else {
        return Vec::new();
    };
    let findings = known.filter_map(|(address, id, knows)| {
        let (level, says) = match (first_knows.contains(id), knows.contains(first_id)) {
            (true, true) => return None,
            (false, false) => (
                Severity::Error,
                format!("is a node of another cluster than {first}, with its own locks; name the nodes of one"),
            ),
            _ => (
                Severity::Warning,
                format!(
                    "{first} and this node do not both know each other: one is new, or was forgotten; see CLUSTER NODES"
                ),
            ),
        };
        Some(Finding::new(level, says).at(address.to_string()))
    });
    findings.collect()
}

/// Servers without a cluster: there may be only one, under any names.
fn singles(deployment: &Deployment) -> Vec<Finding> {
    let servers = deployment.named.iter().filter_map(|named| {
        let who = named.who.as_ref().ok()?;
        (who.in_cluster != Some(true)).then_some((&named.address, who.run_ids.first()?))
    });
    let mut servers: Vec<_> = servers.collect();
    let Some(&(first, first_id)) = servers.first() else {
        return Vec::new();
    };
    servers.retain(|(_, id)| *id != first_id);
    let findings = servers.into_iter().map(|(address, _)| {
        let says = format!(
            "is another server than {first}, without a cluster: it has its own locks, or none if it is a replica; name one server"
        );
        Finding::error(says).at(address.to_string())
    });
    findings.collect()
}

/// Whether the name of a server without a cluster may lead to another server some day.
fn endpoint(deployment: &Deployment) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in deployment.nodes.iter().filter(|node| node.role == Role::Single) {
        let named = deployment.named.iter().find(|named| named.address == node.address);
        let has_name = named.is_some_and(|named| !named.resolved.is_empty());
        let facts = node.facts.as_ref().ok();
        let found =
            facts.and_then(is_replica).or_else(|| facts.filter(|_| has_name).and_then(moves));
        let found = found.into_iter().chain(named.and_then(several_addresses));
        findings.extend(found.map(|finding| finding.at(node.address.to_string())));
    }
    findings
}

fn is_replica(facts: &NodeFacts) -> Option<Finding> {
    let is_replica = facts.info.get("role")? == "slave";
    let part = |name| facts.info.get(name).map_or("?", String::as_str);
    is_replica.then(|| {
        let (host, port) = (part("master_host").to_owned(), part("master_port"));
        let master = match port.parse() {
            Ok(port) => Address { host, port }.to_string(),
            Err(_) => format!("{host}:{port}"),
        };
        let says = format!(
            "is a replica of {master}, and grants no locks; name the primary, or an endpoint that follows it"
        );
        Finding::error(says)
    })
}

/// A name for a primary with replicas is moved when the primary dies.
fn moves(facts: &NodeFacts) -> Option<Finding> {
    let replicas: usize = facts.info.get("connected_slaves")?.parse().ok()?;
    (replicas > 0).then(|| {
        Finding::warning(
            "a primary with replicas behind a name: a failover moves the name to another server, which lacks the last locks, and \
             until then the old one may still grant locks; prefer a cluster, use `--min-replicas` and fencing tokens",
        )
    })
}

/// Several addresses of one family; most servers have one for IPv4 and one for IPv6.
fn several_addresses(named: &UrlTarget) -> Option<Finding> {
    let addresses = named.resolved.len();
    let old = named.resolved.iter().filter(|address| address.is_ipv4()).count();
    (old > 1 || addresses - old > 1).then(|| {
        let says = format!(
            "this name stands for {addresses} addresses: without a cluster all must lead to one server, or two can hold one lock"
        );
        Finding::warning(says)
    })
}

#[cfg(test)]
mod tests;
