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

use crate::node::Address;
use crate::router::map::SlotMap;
use crate::slot::Slot;

pub(crate) use deployment::Deployment;

/// What a server says about itself when a connection to it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A node of a cluster, with this id.
    Node(Box<str>),
    /// A server without cluster mode.
    Alone,
    /// The user may not send the query, or the server does not know it.
    Unknown,
}

/// A server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) name: Box<str>,
    /// The address of the host name at which it was found; `None` if that is unknown.
    pub(crate) place: Option<Arc<str>>,
}

/// What one node says about the cluster.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) node: Address,
    pub(crate) told: Told,
}

#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The node has no cluster mode. Holds its process, if the node reports its run id.
    Alone(Option<Process>),
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
pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) map: SlotMap,
    /// The node whose view was installed last, if it is one of a cluster.
    source: Option<Address>,
    /// The epoch of the view that was installed last.
    epoch: Option<u64>,
    /// Masters that redirects named, each with the number of its lesson.
    lessons: HashMap<Slot, (u64, Address)>,
    /// The number of lessons so far.
    lesson: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No server has said anything yet.
    Nothing,
    /// A server without cluster mode, and the process that was found there first, if it has a name.
    Single(Option<Process>),
    Cluster,
}

/// Why a server is not believed and gets no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
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

impl Stranger {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Stranger::Standalone => "standalone",
            Stranger::OtherCluster => "other_cluster",
            Stranger::OtherServer => "other_server",
            Stranger::Replaced => "replaced",
            Stranger::Replica => "replica",
            Stranger::OtherProcess => "other_process",
            Stranger::ClusterNode => "cluster_node",
            Stranger::OtherSentinel => "other_sentinel",
        }
    }
}

/// Whether a server that was just connected to is a known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Welcome,
    /// Its id is unknown: its map shows whether it is in the same cluster.
    QueryItsMap,
    /// It is not the process that was found first at this name.
    FindTheFirst,
    Refused(Stranger),
}

impl Default for Known {
    fn default() -> Self {
        Known {
            kind: Kind::Nothing,
            map: SlotMap::empty(),
            source: None,
            epoch: None,
            lessons: HashMap::new(),
            lesson: 0,
        }
    }
}

impl Known {
    /// Notes that a server named the master of a slot. Returns true if that is new.
    pub(crate) fn moved(&mut self, slot: Slot, to: &Address) -> bool {
        self.lesson += 1;
        self.lessons.insert(slot, (self.lesson, to.clone()));
        self.map.moved(slot, to)
    }

    /// The number of lessons so far. A view that is requested from now on should include them.
    pub(crate) fn lesson(&self) -> u64 {
        self.lesson
    }

    /// Whether a server with this identity may be sent commands.
    pub(crate) fn admission(
        &self,
        address: &Address,
        identity: &Identity,
        process: Option<&str>,
    ) -> Admission {
        match (&self.kind, identity) {
            (Kind::Cluster, Identity::Alone) => Admission::Refused(Stranger::Standalone),
            (Kind::Cluster, Identity::Node(id)) if self.map.has_ids() && !self.map.has_id(id) => {
                Admission::QueryItsMap
            }
            (Kind::Single(Some(first)), _)
                if self.map.has(address)
                    && process.is_some_and(|process| process != &*first.name) =>
            {
                Admission::FindTheFirst
            }
            _ => Admission::Welcome,
        }
    }

    /// The node that told the addresses of the map.
    pub(crate) fn source(&self) -> Option<Address> {
        self.source.clone()
    }

    /// The process that was found first, if there is no cluster.
    pub(crate) fn first(&self) -> Option<Process> {
        match &self.kind {
            Kind::Single(first) => first.clone(),
            _ => None,
        }
    }

    /// Replaces the process that was found first by `heir`, if `first` is still that process.
    pub(crate) fn succeed(&mut self, first: &Process, heir: Process) {
        if matches!(&self.kind, Kind::Single(Some(known)) if known == first) {
            self.kind = Kind::Single(Some(heir));
        }
    }

    /// Why this view is rejected; `None` if it is acceptable.
    pub(crate) fn refusal(&self, view: &View) -> Option<Stranger> {
        match (&self.kind, &view.told) {
            (Kind::Cluster, Told::Alone(_)) => Some(Stranger::Standalone),
            (Kind::Cluster, Told::Cluster { map, .. }) if self.map.is_disjoint(map) => {
                Some(Stranger::OtherCluster)
            }
            _ => None,
        }
    }

    /// Returns true if this view says nothing new, so that no other node needs to be queried.
    pub(crate) fn is_confirmed_by(&self, view: &View) -> bool {
        match (&self.kind, &view.told) {
            (Kind::Single(_), Told::Alone(_)) => true,
            (Kind::Cluster, Told::Cluster { map, epoch, serves }) => {
                let same_epoch = self.epoch.zip(*epoch).is_none_or(|(known, told)| known == told);
                same_epoch && *serves != Some(false) && self.map.has_all_of(map)
            }
            _ => false,
        }
    }

    /// The view to install. `None` if too few masters have answered to go back to a lower epoch. No
    /// node of the cluster is at the addresses in `gone`.
    pub(crate) fn choose<'a>(
        &self,
        views: &'a [View],
        gone: &HashSet<Address>,
    ) -> Option<&'a View> {
        let views: Vec<&View> = views.iter().filter(|view| self.refusal(view).is_none()).collect();
        let told: Vec<&View> = views.iter().copied().filter(|view| view.is_of_cluster()).collect();
        if told.is_empty() {
            return views.first().copied();
        }
        let serving: Vec<&View> = told.iter().copied().filter(|view| view.serves()).collect();
        // Nodes that do not serve count only if the serving ones cannot be believed.
        let mut groups = [serving, told].into_iter().filter(|group| !group.is_empty());
        let believed =
            groups.find(|group| !self.falls_back(group) || self.is_majority(group, gone))?;
        self.best_of(&believed)
    }

    /// Returns true if all of them report an epoch below the known one.
    fn falls_back(&self, views: &[&View]) -> bool {
        self.epoch.zip(highest(views)).is_some_and(|(known, highest)| highest < known)
    }

    /// Returns true if the views include most masters of the known map, not counting masters that
    /// are `gone`. Replicas have no vote, as in the cluster itself. A master that merely does not
    /// answer keeps its vote: it may be on the other side of a partition.
    fn is_majority(&self, views: &[&View], gone: &HashSet<Address>) -> bool {
        let mut masters = self.map.masters();
        masters.retain(|master| !gone.contains(master));
        let told = masters.iter().filter(|master| views.iter().any(|view| view.node == **master));
        2 * told.count() > masters.len()
    }

    /// The view that most nodes have, of those with the highest epoch.
    fn best_of<'a>(&self, views: &[&'a View]) -> Option<&'a View> {
        let highest = highest(views);
        let newest = |view: &&&View| view.epoch().is_none_or(|epoch| Some(epoch) == highest);
        let newest: Vec<&View> = views.iter().filter(newest).copied().collect();
        let rank = |view: &&View| {
            let same: Vec<_> = newest.iter().filter(|other| view.agrees(other)).collect();
            let serving = same.iter().filter(|other| other.serves()).count();
            (serving, same.len(), view.served(), self.agrees(view))
        };
        // The first one among equals.
        newest.iter().copied().rev().max_by_key(rank)
    }

    /// Installs a view that was requested when `since` lessons were known. Returns true if a slot
    /// has another master now.
    pub(crate) fn install(&mut self, view: View, since: u64) -> bool {
        // More may be known now than when the view was chosen.
        if self.refusal(&view).is_some() {
            return false;
        }
        let map = match view.told {
            Told::Alone(process) => {
                self.kind = Kind::Single(process);
                SlotMap::single(view.node)
            }
            Told::Cluster { map, epoch, .. } => {
                let known = std::mem::replace(&mut self.kind, Kind::Cluster) == Kind::Cluster;
                self.epoch = epoch.or(self.epoch);
                self.source = Some(view.node);
                if known { map.filled_from(&self.map) } else { map }
            }
        };
        let before = std::mem::replace(&mut self.map, map);
        self.lessons.retain(|_, (lesson, _)| *lesson > since);
        for (slot, (_, master)) in &self.lessons {
            self.map.moved(*slot, master);
        }
        !before.agrees(&self.map)
    }

    fn agrees(&self, view: &View) -> bool {
        matches!(&view.told, Told::Cluster { map, .. } if self.map.agrees(map))
    }
}

/// The highest epoch among them, if any of them reports one.
fn highest(views: &[&View]) -> Option<u64> {
    views.iter().filter_map(|view| view.epoch()).max()
}

impl View {
    fn is_of_cluster(&self) -> bool {
        matches!(self.told, Told::Cluster { .. })
    }

    fn epoch(&self) -> Option<u64> {
        match self.told {
            Told::Cluster { epoch, .. } => epoch,
            Told::Alone(_) => None,
        }
    }

    /// A node that does not report its state is assumed to serve.
    fn serves(&self) -> bool {
        match self.told {
            Told::Cluster { serves, .. } => serves.unwrap_or(true),
            Told::Alone(_) => true,
        }
    }

    /// How many slots have a master in this view.
    fn served(&self) -> usize {
        match &self.told {
            Told::Cluster { map, .. } => map.served(),
            Told::Alone(_) => 0,
        }
    }

    fn agrees(&self, other: &View) -> bool {
        match (&self.told, &other.told) {
            (Told::Cluster { map, .. }, Told::Cluster { map: others, .. }) => map.agrees(others),
            _ => false,
        }
    }
}
