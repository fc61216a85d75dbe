//! Which node's view of the cluster is believed. Decisions only: `topology` queries the nodes, and
//! installs what is decided here.
//!
//! - After the map of a cluster, no server without cluster mode is believed, nor a map that shares
//!   no node id with the known one.
//! - Views of nodes that serve (`cluster_state:ok`) come first, then those of the highest epoch,
//!   then the majority.
//! - A lower epoch than the known one counts only if most masters of the known map tell no higher
//!   one. A master whose address refuses connections, or is a stranger's now, has no vote.
//! - If too few masters serve for that, nodes that do not serve are heard, too.
//! - What a node does not tell (a missing right, an old server) is unknown: it counts neither for
//!   the node nor against it.

mod sole;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::node::Address;
use crate::router::map::SlotMap;
use crate::slot::Slot;

pub(crate) use sole::{Sole, sole};

/// What a server says of itself when a connection to it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A node of a cluster, with this id.
    Node(Box<str>),
    /// A server without cluster mode.
    Alone,
    /// The user may not send the query, or the server does not know it.
    Unknown,
}

/// A process of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) name: Box<str>,
    /// Where it was met, of the addresses of its host name; none where that is not known.
    pub(crate) place: Option<Arc<str>>,
}

/// What one node says of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) node: Address,
    pub(crate) told: Told,
}

#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The node has no cluster mode. Its process, if it tells the name of that.
    Alone(Option<Process>),
    Cluster {
        map: SlotMap,
        /// `cluster_current_epoch`
        epoch: Option<u64>,
        /// Whether `cluster_state` is `ok`.
        serves: Option<bool>,
    },
}

/// What is known of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) kind: Kind,
    pub(crate) map: SlotMap,
    /// The epoch of the view that was installed last.
    epoch: Option<u64>,
    /// Masters that redirects named, and when.
    lessons: HashMap<Slot, (u64, Address)>,
    /// Counts lessons.
    lesson: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No server has said anything yet.
    Nothing,
    /// A server without cluster mode, and its process as it was met first, if it has a name.
    Single(Option<Process>),
    Cluster,
}

/// Why a server is not believed, and gets no commands.
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
        }
    }
}

/// Whether a server that was just connected to is a known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Welcome,
    /// Its id is not known: its map tells whether it is of the same cluster.
    QueryItsMap,
    /// It is not the process that was met first at this name.
    FindTheFirst,
    Refused(Stranger),
}

impl Default for Known {
    fn default() -> Self {
        Known {
            kind: Kind::Nothing,
            map: SlotMap::empty(),
            epoch: None,
            lessons: HashMap::new(),
            lesson: 0,
        }
    }
}

impl Known {
    /// Notes that a server named the master of a slot. True if that is new.
    pub(crate) fn moved(&mut self, slot: Slot, to: &Address) -> bool {
        self.lesson += 1;
        self.lessons.insert(slot, (self.lesson, to.clone()));
        self.map.moved(slot, to)
    }

    /// The number of lessons so far: what is sent from now on knows of them, or should.
    pub(crate) fn lesson(&self) -> u64 {
        self.lesson
    }

    /// Whether a server that says this of itself may be sent commands.
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

    /// The process that was met first, where there is no cluster.
    pub(crate) fn first(&self) -> Option<Process> {
        match &self.kind {
            Kind::Single(first) => first.clone(),
            _ => None,
        }
    }

    /// Has `heir` take the place of the process that was met first, if `first` still is that one.
    pub(crate) fn succeed(&mut self, first: &Process, heir: Process) {
        if matches!(&self.kind, Kind::Single(Some(known)) if known == first) {
            self.kind = Kind::Single(Some(heir));
        }
    }

    /// Why this view does not count at all, if so.
    pub(crate) fn refusal(&self, view: &View) -> Option<Stranger> {
        match (&self.kind, &view.told) {
            (Kind::Cluster, Told::Alone(_)) => Some(Stranger::Standalone),
            (Kind::Cluster, Told::Cluster { map, .. }) if self.map.is_disjoint(map) => {
                Some(Stranger::OtherCluster)
            }
            _ => None,
        }
    }

    /// Whether this view says nothing new, so that no other node need be queried.
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

    /// The view to install; none if too few masters have answered to go back to a lower epoch. No
    /// node of the cluster is at the addresses that are `gone`.
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
        // Nodes that do not serve count only where the serving ones may not be believed.
        let mut groups = [serving, told].into_iter().filter(|group| !group.is_empty());
        let believed =
            groups.find(|group| !self.falls_back(group) || self.is_majority(group, gone))?;
        self.best_of(&believed)
    }

    /// Whether all of them tell an epoch below the known one.
    fn falls_back(&self, views: &[&View]) -> bool {
        self.epoch.zip(highest(views)).is_some_and(|(known, highest)| highest < known)
    }

    /// Whether most masters of the known map that are not gone are among them. As in the cluster
    /// itself, replicas have no vote. A master that only does not answer has one, since it may be
    /// on the other side of a partition.
    fn is_majority(&self, views: &[&View], gone: &HashSet<Address>) -> bool {
        let mut masters = self.map.masters();
        masters.retain(|master| !gone.contains(master));
        let told = masters.iter().filter(|master| views.iter().any(|view| view.node == **master));
        2 * told.count() > masters.len()
    }

    /// Of the views of the highest epoch the one that most nodes have.
    fn best_of<'a>(&self, views: &[&'a View]) -> Option<&'a View> {
        let highest = highest(views);
        let newest = |view: &&&View| view.epoch().is_none_or(|epoch| Some(epoch) == highest);
        let newest: Vec<&View> = views.iter().filter(newest).copied().collect();
        let rank = |view: &&View| {
            let same: Vec<_> = newest.iter().filter(|other| view.agrees(other)).collect();
            let serving = same.iter().filter(|other| other.serves()).count();
            (serving, same.len(), self.agrees(view))
        };
        // The first one among equals.
        newest.iter().copied().rev().max_by_key(rank)
    }

    /// Installs a view that was requested when `since` lessons were known. True if a slot has
    /// another master now.
    pub(crate) fn install(&mut self, view: View, since: u64) -> bool {
        // More may be known than when it was chosen.
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

/// The highest epoch that they tell, if any does.
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

    /// A node that does not tell is taken to serve.
    fn serves(&self) -> bool {
        match self.told {
            Told::Cluster { serves, .. } => serves.unwrap_or(true),
            Told::Alone(_) => true,
        }
    }

    fn agrees(&self, other: &View) -> bool {
        match (&self.told, &other.told) {
            (Told::Cluster { map, .. }, Told::Cluster { map: others, .. }) => map.agrees(others),
            _ => false,
        }
    }
}
