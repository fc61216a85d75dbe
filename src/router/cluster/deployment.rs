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

/// The relation of two views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Same,
    Different,
    Unknown,
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
        let alone =
            members.iter().find(|view| matches!(view.topology, ReportedTopology::Standalone(_)));
        if let Some(alone) = alone.filter(|_| members.len() < seeds.len()) {
            return Deployment::Unsure(format!(
                "{} is a server without cluster mode, and not all of the other {} named servers answer to show that they are the same",
                alone.node,
                seeds.len() - 1
            ));
        }
        let is_member = |view: &NodeView| {
            members.iter().all(|member| member.relation(view) != Relation::Different)
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
        other.relation(view) == Relation::Different
            && other.lists(&view.node)
            && !view.lists(&other.node)
    })
}

/// Two views that are not of one deployment, or may not be.
fn contradiction<'a>(views: &[&'a NodeView]) -> Option<(&'a NodeView, &'a NodeView)> {
    views.iter().enumerate().find_map(|(at, first)| {
        let contradicts = |second: &&&NodeView| match first.relation(second) {
            Relation::Same => false,
            Relation::Different => true,
            Relation::Unknown => matches!(first.topology, ReportedTopology::Standalone(_)),
        };
        views[at + 1..].iter().find(contradicts).map(|second| (*first, *second))
    })
}

/// Why two views contradict each other, and what to do.
fn explained(first: &NodeView, second: &NodeView) -> String {
    let (a, b) = (&first.node, &second.node);
    let why = match (&first.topology, &second.topology) {
        (ReportedTopology::Cluster { .. }, ReportedTopology::Cluster { .. }) => {
            format!("{a} and {b} are nodes of two clusters, which have no node in common")
        }
        (ReportedTopology::Cluster { .. }, ReportedTopology::Standalone(_)) => {
            format!("{a} is a node of a cluster and {b} a server without cluster mode")
        }
        (ReportedTopology::Standalone(_), ReportedTopology::Cluster { .. }) => {
            format!("{a} is a server without cluster mode and {b} a node of a cluster")
        }
        (ReportedTopology::Standalone(_), ReportedTopology::Standalone(_))
            if first.relation(second) == Relation::Unknown =>
        {
            format!("{a} and {b} are servers without cluster mode that do not report their run ids")
        }
        (ReportedTopology::Standalone(_), ReportedTopology::Standalone(_)) => {
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
    match view.topology {
        ReportedTopology::Standalone(_) => UnexpectedServer::Standalone,
        ReportedTopology::Cluster { .. } => UnexpectedServer::OtherCluster,
    }
}

impl NodeView {
    /// Whether both are of one deployment.
    fn relation(&self, other: &NodeView) -> Relation {
        let (same, is_known) = match (&self.topology, &other.topology) {
            (
                ReportedTopology::Cluster { map, .. },
                ReportedTopology::Cluster { map: others, .. },
            ) => (!map.is_disjoint(others), map.has_ids() && others.has_ids()),
            (
                ReportedTopology::Standalone(Some(process)),
                ReportedTopology::Standalone(Some(others)),
            ) => (process.name == others.name, true),
            (ReportedTopology::Standalone(_), ReportedTopology::Standalone(_)) => (false, false),
            (ReportedTopology::Standalone(_), ReportedTopology::Cluster { .. })
            | (ReportedTopology::Cluster { .. }, ReportedTopology::Standalone(_)) => (false, true),
        };
        match (same, is_known) {
            (_, false) => Relation::Unknown,
            (true, true) => Relation::Same,
            (false, true) => Relation::Different,
        }
    }

    /// Returns true if the view's map has a node at that address.
    pub(crate) fn lists(&self, address: &Address) -> bool {
        matches!(&self.topology, ReportedTopology::Cluster { map, .. } if map.contains(address))
    }
}
