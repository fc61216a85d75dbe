//! Decides which node's view of the cluster is installed. This file only decides: `topology`
//! queries the nodes and installs the result.
//!
//! - Once a cluster's map is known, a server without cluster mode is not trusted, and neither is a
//!   map that shares no node id with the known one.
//! - Views of nodes that serve (`cluster_state:ok`) are preferred, then those of the highest epoch,
//!   then the one that most nodes have.
//! - A lower epoch than the known one counts only if most masters of the known map report no higher
//!   one. A master whose address refuses connections, or now belongs to another cluster, has no
//!   vote.
//! - If too few masters serve for that, nodes that do not serve count as well.
//! - A fact that a node does not report (a missing right, an old server) is unknown. An unknown
//!   fact is no reason to accept or to reject the node.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;

use crate::router::cluster::node_view::{ClusterView, NodeView, ReportedTopology};
use crate::router::cluster::slot_map::SlotMap;
use crate::router::connections::server_info::{ServerIdentity, ServerProcess};
use crate::router::connections::unexpected_server::UnexpectedServer;

/// The known servers.
#[derive(Clone, Debug)]
pub(crate) struct KnownCluster {
    pub(crate) kind: DeploymentKind,
    pub(crate) map: SlotMap,
    /// The node whose view was installed last, if the node belongs to a cluster.
    source: Option<Address>,
    /// The epoch of the view that was installed last.
    epoch: Option<u64>,
    /// Masters that redirects named, each with the number of its redirect.
    redirected_masters: HashMap<Slot, (u64, Address)>,
    /// The number of redirects that were recorded.
    redirect_count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeploymentKind {
    /// No server has replied yet.
    Unknown,
    /// A server without cluster mode, and the process that was found there first, if it has a name.
    Standalone(Option<ServerProcess>),
    Cluster,
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

    /// The number of redirects that were recorded. A view that is requested after this includes
    /// them.
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

    /// The node that reported the addresses of the map.
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

    /// Replaces the process that was found first by `successor`. Returns false if `first` is not
    /// that process any more.
    pub(crate) fn replace_process(
        &mut self,
        first: &ServerProcess,
        successor: ServerProcess,
    ) -> bool {
        let is_first =
            matches!(&self.kind, DeploymentKind::Standalone(Some(known)) if known == first);
        if is_first {
            self.kind = DeploymentKind::Standalone(Some(successor));
        }
        is_first
    }

    /// Why this view is rejected; `None` if it is acceptable.
    pub(crate) fn reject_reason(&self, view: &NodeView) -> Option<UnexpectedServer> {
        match (&self.kind, &view.topology) {
            (DeploymentKind::Cluster, ReportedTopology::Standalone(_)) => {
                Some(UnexpectedServer::Standalone)
            }
            (DeploymentKind::Cluster, ReportedTopology::Cluster(cluster))
                if self.map.is_disjoint(&cluster.map) =>
            {
                Some(UnexpectedServer::OtherCluster)
            }
            _ => None,
        }
    }

    /// Returns true if this view reports nothing new, so that no other node needs to be queried.
    pub(crate) fn is_confirmed_by(&self, view: &NodeView) -> bool {
        match (&self.kind, &view.topology) {
            (DeploymentKind::Standalone(_), ReportedTopology::Standalone(_)) => true,
            (DeploymentKind::Cluster, ReportedTopology::Cluster(cluster)) => {
                let both = self.epoch.zip(cluster.epoch);
                both.is_none_or(|(known, reported)| known == reported)
                    && cluster.serves != Some(false)
                    && self.map.covers(&cluster.map)
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
        let cluster_views: Vec<&NodeView> =
            views.iter().copied().filter(|view| view.is_cluster()).collect();
        if cluster_views.is_empty() {
            return views.first().copied();
        }
        let serving: Vec<&NodeView> =
            cluster_views.iter().copied().filter(|view| view.is_serving()).collect();
        // Nodes that do not serve count only if the serving ones cannot be trusted.
        let mut groups = [serving, cluster_views].into_iter().filter(|group| !group.is_empty());
        let trusted = groups
            .find(|group| !self.is_epoch_regression(group) || self.is_majority(group, gone))?;
        self.best_of(&trusted)
    }

    /// Returns true if all views report an epoch below the known one.
    fn is_epoch_regression(&self, views: &[&NodeView]) -> bool {
        self.epoch.zip(highest(views)).is_some_and(|(known, highest)| highest < known)
    }

    /// Returns true if the views include most masters of the known map, not counting masters that
    /// are `gone`. Replicas have no vote, as in the cluster itself. A master that merely does not
    /// answer keeps its vote: it may be on the other side of a partition.
    fn is_majority(&self, views: &[&NodeView], gone: &HashSet<Address>) -> bool {
        let mut masters = self.map.masters();
        masters.retain(|master| !gone.contains(master));
        let cluster_views =
            masters.iter().filter(|master| views.iter().any(|view| view.node == **master));
        2 * cluster_views.count() > masters.len()
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

    /// Installs a view that was requested when `since` redirects were recorded. Returns true if a
    /// slot has another master now.
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
            ReportedTopology::Cluster(ClusterView { map, epoch, .. }) => {
                let known = std::mem::replace(&mut self.kind, DeploymentKind::Cluster)
                    == DeploymentKind::Cluster;
                self.epoch = epoch.or(self.epoch);
                self.source = Some(view.node);
                if known { map.with_gaps_from(&self.map) } else { map }
            }
        };
        let before = std::mem::replace(&mut self.map, map);
        self.redirected_masters.retain(|_, (count, _)| *count > since);
        for (slot, (_, master)) in &self.redirected_masters {
            self.map.set_master(*slot, master);
        }
        !before.has_same_masters(&self.map)
    }

    fn is_same_cluster(&self, view: &NodeView) -> bool {
        view.cluster().is_some_and(|cluster| self.map.has_same_masters(&cluster.map))
    }
}

/// Returns the highest reported epoch. `None` if no view reports an epoch.
fn highest(views: &[&NodeView]) -> Option<u64> {
    views.iter().filter_map(|view| view.epoch()).max()
}
