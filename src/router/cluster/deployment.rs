//! Checks whether the first views are of one deployment. The client refuses to choose between two
//! deployments: another client might choose differently, and both deployments would grant the same
//! lock.
//!
//! - Maps without a common node id belong to two clusters. A server without cluster mode belongs to
//!   no cluster. Two addresses without cluster mode are one server only if they report the same run
//!   id.
//! - A server without cluster mode, or of another cluster, at an address that a map lists is an
//!   unexpected server: the map says whose address it is. If two servers list each other's address,
//!   neither is unexpected.
//! - A fact that a server does not report (its map, the ids of nodes) is unknown, and no
//!   contradiction. Run ids are an exception: with two servers, a client needs them.

#[cfg(test)]
mod tests;

use rwlease_core::resp::Address;

use crate::router::cluster::node_view::{NodeView, ReportedTopology};
use crate::router::connections::unexpected_server::UnexpectedServer;

/// The deployment of the first views.
#[derive(Debug)]
pub(crate) enum Deployment {
    One {
        /// The views of its servers.
        views: Vec<NodeView>,
        /// Servers that do not belong to the deployment.
        unexpected: Vec<(Address, UnexpectedServer)>,
    },
    /// The seeds are of several deployments.
    Several(String),
    /// A server without cluster mode, and not all seeds tell whether they are the same server.
    Unsure(String),
}

impl Deployment {
    /// Judges the views of seeds, and of servers that they list.
    pub(crate) fn of(views: Vec<NodeView>, seeds: &[Address]) -> Deployment {
        let (mut of_seeds, listed): (Vec<NodeView>, Vec<NodeView>) =
            views.into_iter().partition(|view| seeds.contains(&view.node));
        of_seeds.sort_by_key(|view| seeds.iter().position(|seed| *seed == view.node));
        let (away, members): (Vec<&NodeView>, Vec<&NodeView>) =
            of_seeds.iter().partition(|view| is_at_address_of_another(view, &of_seeds));
        let members = if members.is_empty() { away.clone() } else { members };
        if let Some((first, second)) = contradiction(&members) {
            return Deployment::Several(explained(first, second));
        }
        let alone = members.iter().find(|view| !view.is_cluster());
        if let Some(alone) = alone.filter(|_| members.len() < seeds.len()) {
            return Deployment::Unsure(format!(
                "{} is a server without cluster mode, and not all of the other {} named servers answer to show that they are the same",
                alone.node,
                seeds.len() - 1
            ));
        }
        let is_member = |view: &NodeView| {
            members.iter().all(|member| member.shares_deployment(view) != Some(false))
        };
        let (kept, dropped): (Vec<&NodeView>, Vec<&NodeView>) =
            of_seeds.iter().chain(&listed).partition(|view| is_member(view));
        Deployment::One {
            views: kept.into_iter().cloned().collect(),
            unexpected: dropped
                .into_iter()
                .map(|view| (view.node.clone(), unexpected_reason(view)))
                .collect(),
        }
    }
}

/// Returns true if another view lists this one's address as that of a node of its cluster, but not
/// the other way round.
fn is_at_address_of_another(view: &NodeView, others: &[NodeView]) -> bool {
    others.iter().any(|other| {
        other.shares_deployment(view) == Some(false)
            && other.lists(&view.node)
            && !view.lists(&other.node)
    })
}

/// Two views that are not of one deployment, or may not be.
fn contradiction<'a>(views: &[&'a NodeView]) -> Option<(&'a NodeView, &'a NodeView)> {
    views.iter().enumerate().find_map(|(at, first)| {
        let contradicts = |second: &&&NodeView| {
            first.shares_deployment(second).map_or(!first.is_cluster(), |shared| !shared)
        };
        views[at + 1..].iter().find(contradicts).map(|second| (*first, *second))
    })
}

/// Why two views contradict each other, and what to do.
fn explained(first: &NodeView, second: &NodeView) -> String {
    let (a, b) = (&first.node, &second.node);
    let why = match (first.is_cluster(), second.is_cluster()) {
        (true, true) => {
            format!("{a} and {b} are nodes of two clusters, which have no node in common")
        }
        (true, false) => {
            format!("{a} is a node of a cluster and {b} a server without cluster mode")
        }
        (false, true) => {
            format!("{a} is a server without cluster mode and {b} a node of a cluster")
        }
        (false, false) if first.shares_deployment(second).is_none() => {
            format!("{a} and {b} are servers without cluster mode that do not report their run ids")
        }
        (false, false) => {
            format!("{a} and {b} are two servers without cluster mode")
        }
    };
    format!(
        "the named servers are of several deployments: {why}; name one server without cluster \
         mode, or nodes of one cluster"
    )
}

/// Why a server that contradicts the others gets no commands.
fn unexpected_reason(view: &NodeView) -> UnexpectedServer {
    match view.is_cluster() {
        true => UnexpectedServer::OtherCluster,
        false => UnexpectedServer::Standalone,
    }
}

impl NodeView {
    /// Whether both are of one deployment. `None` if that is unknown.
    fn shares_deployment(&self, other: &NodeView) -> Option<bool> {
        match (&self.topology, &other.topology) {
            (ReportedTopology::Cluster(own), ReportedTopology::Cluster(others)) => {
                let has_ids = own.map.has_ids() && others.map.has_ids();
                has_ids.then(|| !own.map.is_disjoint(&others.map))
            }
            (ReportedTopology::Standalone(own), ReportedTopology::Standalone(others)) => {
                Some(own.as_ref()?.name == others.as_ref()?.name)
            }
            _ => Some(false),
        }
    }
}
