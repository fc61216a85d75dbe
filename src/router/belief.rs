//! Decides which node's view of the cluster is installed. This file only decides: `topology`
//! queries the nodes and installs the result.
//!
//! - Once a cluster's map is known, a server without cluster mode is not believed, and neither is a
//!   map that shares no node id with the known one.
//! - Views of nodes that serve (`cluster_state:ok`) are preferred, then those of the highest epoch,
//!   then the one that most nodes have.
//! - A lower epoch than the known one counts only if most masters of the known map report no higher
//!   one. A master whose address refuses connections, or now belongs to another cluster, has no
//!   vote.
//! - If too few masters serve for that, nodes that do not serve count as well.
//! - What a node does not report (a missing right, an old server) is unknown. It counts neither for
//!   the node nor against it.

mod deployment;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::backend::Address;
use crate::router::slot_map::SlotMap;
use crate::slot::Slot;

pub(crate) use deployment::Deployment;

/// What a server says about itself when a connection to it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerIdentity {
    /// A node of a cluster, with this id.
    ClusterNode(Box<str>),
    /// A server without cluster mode.
    Standalone,
    /// The user may not send the query, or the server does not know it.
    Unknown,
}

/// A server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    pub(crate) name: Box<str>,
    /// The address of the host name at which it was found; `None` if that is unknown.
    pub(crate) resolved_addr: Option<Arc<str>>,
}

/// What one node says about the cluster.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) node: Address,
    pub(crate) topology: ReportedTopology,
}

#[derive(Clone, Debug)]
pub(crate) enum ReportedTopology {
    /// The node has no cluster mode. Holds its process, if the node reports its run id.
    Standalone(Option<ServerProcess>),
    Cluster {
        map: SlotMap,
        /// `cluster_current_epoch`
        epoch: Option<u64>,
        /// Whether `cluster_state` is `ok`.
        serves: Option<bool>,
    },
}

/// What is known about the servers.
#[derive(Clone, Debug)]
pub(crate) struct KnownCluster {
    pub(crate) kind: DeploymentKind,
    pub(crate) map: SlotMap,
    /// The node whose view was installed last, if it is one of a cluster.
    source: Option<Address>,
    /// The epoch of the view that was installed last.
    epoch: Option<u64>,
    /// Masters that redirects named, each with the number of its lesson.
    redirected_masters: HashMap<Slot, (u64, Address)>,
    /// The number of lessons so far.
    redirect_count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeploymentKind {
    /// No server has said anything yet.
    Unknown,
    /// A server without cluster mode, and the process that was found there first, if it has a name.
    Standalone(Option<ServerProcess>),
    Cluster,
}

/// Why a server is not believed and gets no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnexpectedServer {
    #[error("a server without cluster mode, where a node of the known cluster was")]
    Standalone,
    #[error("a node of another cluster, where one of the known cluster was")]
    OtherCluster,
    #[error("another server of the same name, and the one that was met first may still be there")]
    OtherServer,
    #[error("a server that was the master: the sentinels name another one")]
    Replaced,
    #[error("a replica, where the sentinels name a master")]
    Replica,
    #[error("another server than the master that the sentinels name: its run id differs")]
    OtherProcess,
    #[error("a node of a cluster, where the sentinels name a single server")]
    ClusterNode,
    #[error("a sentinel of another deployment, where one of the known sentinels was")]
    OtherSentinel,
}

impl UnexpectedServer {
    pub(crate) fn label(self) -> &'static str {
        match self {
            UnexpectedServer::Standalone => "standalone",
            UnexpectedServer::OtherCluster => "other_cluster",
            UnexpectedServer::OtherServer => "other_server",
            UnexpectedServer::Replaced => "replaced",
            UnexpectedServer::Replica => "replica",
            UnexpectedServer::OtherProcess => "other_process",
            UnexpectedServer::ClusterNode => "cluster_node",
            UnexpectedServer::OtherSentinel => "other_sentinel",
        }
    }
}

/// Whether a server that was just connected to is a known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// Its id is unknown: its map shows whether it is in the same cluster.
    CheckSlotMap,
    /// It is not the process that was found first at this name.
    FindOriginal,
    Rejected(UnexpectedServer),
}

impl Default for KnownCluster {
    fn default() -> Self {
        KnownCluster {
            kind: DeploymentKind::Unknown,
            map: SlotMap::empty(),
            source: None,
            epoch: None,
            redirected_masters: HashMap::new(),
            redirect_count: 0,
        }
    }
}

impl KnownCluster {
    /// Notes that a server named the master of a slot. Returns true if that is new.
    pub(crate) fn record_redirect(&mut self, slot: Slot, to: &Address) -> bool {
        self.redirect_count += 1;
        self.redirected_masters.insert(slot, (self.redirect_count, to.clone()));
        self.map.set_master(slot, to)
    }

    /// The number of lessons so far. A view that is requested from now on should include them.
    pub(crate) fn redirect_count(&self) -> u64 {
        self.redirect_count
    }

    /// Whether a server with this identity may be sent commands.
    pub(crate) fn admission(
        &self,
        address: &Address,
        identity: &ServerIdentity,
        process: Option<&str>,
    ) -> Admission {
        match (&self.kind, identity) {
            (DeploymentKind::Cluster, ServerIdentity::Standalone) => {
                Admission::Rejected(UnexpectedServer::Standalone)
            }
            (DeploymentKind::Cluster, ServerIdentity::ClusterNode(id))
                if self.map.has_ids() && !self.map.has_id(id) =>
            {
                Admission::CheckSlotMap
            }
            (DeploymentKind::Standalone(Some(first)), _)
                if self.map.contains(address)
                    && process.is_some_and(|process| process != &*first.name) =>
            {
                Admission::FindOriginal
            }
            _ => Admission::Admitted,
        }
    }

    /// The node that told the addresses of the map.
    pub(crate) fn source(&self) -> Option<Address> {
        self.source.clone()
    }

    /// The process that was found first, if there is no cluster.
    pub(crate) fn original_process(&self) -> Option<ServerProcess> {
        match &self.kind {
            DeploymentKind::Standalone(first) => first.clone(),
            _ => None,
        }
    }

    /// Replaces the process that was found first by `heir`, if `first` is still that process.
    pub(crate) fn replace_process(&mut self, first: &ServerProcess, heir: ServerProcess) {
        if matches!(&self.kind, DeploymentKind::Standalone(Some(known)) if known == first) {
            self.kind = DeploymentKind::Standalone(Some(heir));
        }
    }

    /// Why this view is rejected; `None` if it is acceptable.
    pub(crate) fn reject_reason(&self, view: &NodeView) -> Option<UnexpectedServer> {
        match (&self.kind, &view.topology) {
            (DeploymentKind::Cluster, ReportedTopology::Standalone(_)) => {
                Some(UnexpectedServer::Standalone)
            }
            (DeploymentKind::Cluster, ReportedTopology::Cluster { map, .. })
                if self.map.is_disjoint(map) =>
            {
                Some(UnexpectedServer::OtherCluster)
            }
            _ => None,
        }
    }

    /// Returns true if this view says nothing new, so that no other node needs to be queried.
    pub(crate) fn is_confirmed_by(&self, view: &NodeView) -> bool {
        match (&self.kind, &view.topology) {
            (DeploymentKind::Standalone(_), ReportedTopology::Standalone(_)) => true,
            (DeploymentKind::Cluster, ReportedTopology::Cluster { map, epoch, serves }) => {
                let same_epoch = self.epoch.zip(*epoch).is_none_or(|(known, told)| known == told);
                same_epoch && *serves != Some(false) && self.map.covers(map)
            }
            _ => false,
        }
    }

    /// The view to install. `None` if too few masters have answered to go back to a lower epoch. No
    /// node of the cluster is at the addresses in `gone`.
    pub(crate) fn choose<'a>(
        &self,
        views: &'a [NodeView],
        gone: &HashSet<Address>,
    ) -> Option<&'a NodeView> {
        let views: Vec<&NodeView> =
            views.iter().filter(|view| self.reject_reason(view).is_none()).collect();
        let told: Vec<&NodeView> = views.iter().copied().filter(|view| view.is_cluster()).collect();
        if told.is_empty() {
            return views.first().copied();
        }
        let serving: Vec<&NodeView> =
            told.iter().copied().filter(|view| view.is_serving()).collect();
        // Nodes that do not serve count only if the serving ones cannot be believed.
        let mut groups = [serving, told].into_iter().filter(|group| !group.is_empty());
        let believed = groups
            .find(|group| !self.is_epoch_regression(group) || self.is_majority(group, gone))?;
        self.best_of(&believed)
    }

    /// Returns true if all of them report an epoch below the known one.
    fn is_epoch_regression(&self, views: &[&NodeView]) -> bool {
        self.epoch.zip(highest(views)).is_some_and(|(known, highest)| highest < known)
    }

    /// Returns true if the views include most masters of the known map, not counting masters that
    /// are `gone`. Replicas have no vote, as in the cluster itself. A master that merely does not
    /// answer keeps its vote: it may be on the other side of a partition.
    fn is_majority(&self, views: &[&NodeView], gone: &HashSet<Address>) -> bool {
        let mut masters = self.map.masters();
        masters.retain(|master| !gone.contains(master));
        let told = masters.iter().filter(|master| views.iter().any(|view| view.node == **master));
        2 * told.count() > masters.len()
    }

    /// The view that most nodes have, of those with the highest epoch.
    fn best_of<'a>(&self, views: &[&'a NodeView]) -> Option<&'a NodeView> {
        let highest = highest(views);
        let newest = |view: &&&NodeView| view.epoch().is_none_or(|epoch| Some(epoch) == highest);
        let newest: Vec<&NodeView> = views.iter().filter(newest).copied().collect();
        let rank = |view: &&NodeView| {
            let same: Vec<_> = newest.iter().filter(|other| view.has_same_masters(other)).collect();
            let serving = same.iter().filter(|other| other.is_serving()).count();
            (serving, same.len(), view.served(), self.is_same_cluster(view))
        };
        // The first one among equals.
        newest.iter().copied().rev().max_by_key(rank)
    }

    /// Installs a view that was requested when `since` lessons were known. Returns true if a slot
    /// has another master now.
    pub(crate) fn install(&mut self, view: NodeView, since: u64) -> bool {
        // More may be known now than when the view was chosen.
        if self.reject_reason(&view).is_some() {
            return false;
        }
        let map = match view.topology {
            ReportedTopology::Standalone(process) => {
                self.kind = DeploymentKind::Standalone(process);
                SlotMap::single(view.node)
            }
            ReportedTopology::Cluster { map, epoch, .. } => {
                let known = std::mem::replace(&mut self.kind, DeploymentKind::Cluster)
                    == DeploymentKind::Cluster;
                self.epoch = epoch.or(self.epoch);
                self.source = Some(view.node);
                if known { map.with_gaps_from(&self.map) } else { map }
            }
        };
        let before = std::mem::replace(&mut self.map, map);
        self.redirected_masters.retain(|_, (lesson, _)| *lesson > since);
        for (slot, (_, master)) in &self.redirected_masters {
            self.map.set_master(*slot, master);
        }
        !before.has_same_masters(&self.map)
    }

    fn is_same_cluster(&self, view: &NodeView) -> bool {
        matches!(&view.topology, ReportedTopology::Cluster { map, .. } if self.map.has_same_masters(map))
    }
}

/// The highest epoch among them, if any of them reports one.
fn highest(views: &[&NodeView]) -> Option<u64> {
    views.iter().filter_map(|view| view.epoch()).max()
}

impl NodeView {
    fn is_cluster(&self) -> bool {
        matches!(self.topology, ReportedTopology::Cluster { .. })
    }

    fn epoch(&self) -> Option<u64> {
        match self.topology {
            ReportedTopology::Cluster { epoch, .. } => epoch,
            ReportedTopology::Standalone(_) => None,
        }
    }

    /// A node that does not report its state is assumed to serve.
    fn is_serving(&self) -> bool {
        match self.topology {
            ReportedTopology::Cluster { serves, .. } => serves.unwrap_or(true),
            ReportedTopology::Standalone(_) => true,
        }
    }

    /// How many slots have a master in this view.
    fn served(&self) -> usize {
        match &self.topology {
            ReportedTopology::Cluster { map, .. } => map.served(),
            ReportedTopology::Standalone(_) => 0,
        }
    }

    fn has_same_masters(&self, other: &NodeView) -> bool {
        match (&self.topology, &other.topology) {
            (
                ReportedTopology::Cluster { map, .. },
                ReportedTopology::Cluster { map: others, .. },
            ) => map.has_same_masters(others),
            _ => false,
        }
    }
}
