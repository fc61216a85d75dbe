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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::node::Address;
use crate::router::map::SlotMap;
use crate::slot::Slot;

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
}

impl Stranger {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Stranger::Standalone => "standalone",
            Stranger::OtherCluster => "other_cluster",
            Stranger::OtherServer => "other_server",
        }
    }
}

/// Whether a server that was just connected to is one of those that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Welcome,
    /// Its id is not known: its map tells whether it is of the same cluster.
    AskItsMap,
    /// It is not the process that was met first at this name.
    FindTheFirst,
    Refused(Stranger),
}

/// Whether servers without a cluster are one deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sole {
    Fine,
    /// They are several servers, and each would grant what the others have granted.
    Several(String),
    /// Not all seeds have answered: they may be several.
    Unsure(String),
}

/// Judges the first views that there are, of so many seeds. One server may have several names.
pub(crate) fn sole(views: &[View], seeds: usize) -> Sole {
    let alone = views.iter().map(|view| match &view.told {
        Told::Alone(process) => Some((&view.node, process.as_ref().map(|process| &process.name))),
        Told::Cluster { .. } => None,
    });
    let Some(alone) = alone.collect::<Option<Vec<_>>>() else {
        return Sole::Fine;
    };
    let [(first, process), others @ ..] = &*alone else {
        return Sole::Fine;
    };
    if let Some((other, _)) = others.iter().find(|(_, other)| process.is_none() || other != process)
    {
        return Sole::Several(format!(
            "{first} and {other} are servers without cluster mode: name one of them, or the nodes of a cluster"
        ));
    }
    if alone.len() < seeds {
        return Sole::Unsure(format!(
            "{first} is a server without cluster mode, and not all of the other {} named servers tell whether they are the same",
            seeds - 1
        ));
    }
    Sole::Fine
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
                Admission::AskItsMap
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
        // Those that do not serve are only heard where those that do may not be believed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Reply;
    use crate::node::fake::{address, id_of, slots, text};
    use crate::router::translation::Translation;

    const BEFORE: [(u16, u16, &str); 3] = [(0, 5460, "a"), (5461, 10922, "b"), (10923, 16383, "c")];
    const AFTER: [(u16, u16, &str); 3] = [(0, 5460, "d"), (5461, 10922, "b"), (10923, 16383, "c")];

    fn map(ranges: &[(u16, u16, &str)]) -> SlotMap {
        SlotMap::parse(&slots(ranges), &address("asked"), &Translation::default()).unwrap()
    }

    fn view(node: &str, ranges: &[(u16, u16, &str)], epoch: u64) -> View {
        let (map, epoch, serves) = (map(ranges), Some(epoch), Some(true));
        let told = Told::Cluster { map, epoch, serves };
        View { node: address(node), told }
    }

    /// One that does not serve.
    fn down(view: View) -> View {
        let Told::Cluster { map, epoch, .. } = view.told else { panic!() };
        let told = Told::Cluster { map, epoch, serves: Some(false) };
        View { told, ..view }
    }

    /// One that tells neither epoch nor state.
    fn silent(view: View) -> View {
        let Told::Cluster { map, .. } = view.told else { panic!() };
        let told = Told::Cluster { map, epoch: None, serves: None };
        View { told, ..view }
    }

    fn alone(node: &str, process: Option<&str>) -> View {
        let process = process.map(|name| Process { name: name.into(), place: None });
        let told = Told::Alone(process);
        View { node: address(node), told }
    }

    /// The same slots, and other nodes behind them.
    fn of_others() -> View {
        let node = Reply::List(vec![text("a"), Reply::Int(1), text("z-id")]);
        let all = Reply::List(vec![Reply::Int(0), Reply::Int(16383), node]);
        let map = SlotMap::parse(&Reply::List(vec![all]), &address("a"), &Translation::default())
            .unwrap();
        let told = Told::Cluster { map, epoch: Some(99), serves: Some(true) };
        View { node: address("a"), told }
    }

    fn known(ranges: &[(u16, u16, &str)], epoch: u64) -> Known {
        let mut known = Known::default();
        known.install(view("a", ranges, epoch), 0);
        known
    }

    fn gone(hosts: &[&str]) -> HashSet<Address> {
        hosts.iter().map(|host| address(host)).collect()
    }

    fn master_of(known: &Known, slot: u16) -> Option<String> {
        known.map.master_of(Slot::new(slot).unwrap()).map(|master| master.host.to_string())
    }

    #[test]
    fn after_a_cluster_there_is_no_single_server() {
        let known = known(&BEFORE, 1);
        assert_eq!(known.refusal(&alone("a", None)), Some(Stranger::Standalone));
        assert!(known.choose(&[alone("a", None)], &gone(&[])).is_none());
        let refused = Admission::Refused(Stranger::Standalone);
        assert_eq!(known.admission(&address("a"), &Identity::Alone, None), refused);
        assert_eq!(Known::default().refusal(&alone("a", None)), None);
    }

    #[test]
    fn a_single_server_is_not_installed_over_a_cluster() {
        let mut known = known(&BEFORE, 1);
        assert!(!known.install(alone("a", Some("a")), 0));
        assert_eq!(known.kind, Kind::Cluster);
        assert_eq!(master_of(&known, 16383).as_deref(), Some("c"));
    }

    #[test]
    fn a_map_that_shares_no_id_is_of_another_cluster() {
        let known = known(&BEFORE, 1);
        assert_eq!(known.refusal(&of_others()), Some(Stranger::OtherCluster));
        assert!(known.choose(&[of_others()], &gone(&[])).is_none());
        // One node in common will do.
        let few = view("c", &[(0, 5460, "x"), (5461, 16383, "c")], 1);
        assert_eq!(known.refusal(&few), None);
    }

    #[test]
    fn a_node_whose_id_is_not_known_shows_its_map() {
        let known = known(&BEFORE, 1);
        let admission = |id: &str| known.admission(&address("a"), &Identity::Node(id.into()), None);
        assert_eq!(admission(&id_of("a")), Admission::Welcome);
        assert_eq!(admission(&id_of("b")), Admission::Welcome, "addresses change");
        assert_eq!(admission("z-id"), Admission::AskItsMap);
        // What is not told is not a no.
        assert_eq!(known.admission(&address("a"), &Identity::Unknown, None), Admission::Welcome);
        assert_eq!(
            Known::default().admission(&address("a"), &Identity::Alone, None),
            Admission::Welcome
        );
    }

    #[test]
    fn a_single_server_is_known_by_its_process() {
        let mut known = Known::default();
        known.install(alone("a", Some("first")), 0);
        let admission = |process| known.admission(&address("a"), &Identity::Alone, process);
        assert_eq!(admission(Some("first")), Admission::Welcome);
        assert_eq!(admission(Some("second")), Admission::FindTheFirst);
        assert_eq!(admission(None), Admission::Welcome);
    }

    #[test]
    fn the_highest_epoch_counts_however_few_have_it() {
        let known = known(&BEFORE, 1);
        let views = [view("a", &BEFORE, 1), view("b", &BEFORE, 1), view("d", &AFTER, 2)];
        assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("d"));
        // Nothing known: the same.
        let views = [view("a", &BEFORE, 1), view("d", &AFTER, 2)];
        assert_eq!(Known::default().choose(&views, &gone(&[])).unwrap().node, address("d"));
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
        assert_eq!(Known::default().choose(&views, &gone(&[])).unwrap().node, address("a"));
        // Where nobody serves the highest epoch counts, as ever.
        let views = [down(view("a", &BEFORE, 1)), down(view("d", &AFTER, 2))];
        assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("d"));
    }

    #[test]
    fn what_does_not_serve_is_heard_before_a_minority_of_an_older_epoch() {
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
        // Where nobody of those is left, others do not take their place.
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
        let views =
            [down(view("a", &BEFORE, 2)), down(view("b", &BEFORE, 2)), view("c", &AFTER, 2)];
        assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("c"));
        // In a draw what is known stays.
        let views = [view("c", &AFTER, 1), view("a", &BEFORE, 1)];
        assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("a"));
    }

    #[test]
    fn epochs_that_are_not_told_are_not_lower() {
        let known = known(&BEFORE, 7);
        let views = [silent(view("b", &AFTER, 0)), silent(view("c", &AFTER, 0))];
        assert_eq!(known.choose(&views, &gone(&[])).unwrap().node, address("b"));
        assert!(known.is_confirmed_by(&silent(view("b", &BEFORE, 0))));
    }

    #[test]
    fn what_confirms_and_what_is_news() {
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
        assert!(!Known::default().is_confirmed_by(&view("b", &BEFORE, 2)));
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
        known.moved(early, &address("b"));
        let since = known.lesson();
        known.moved(late, &address("c"));
        known.install(view("d", &AFTER, 2), since);
        assert_eq!([1, 2, 3].map(|slot| master_of(&known, slot).unwrap()), ["d", "c", "d"]);
        let since = known.lesson();
        known.install(view("d", &AFTER, 2), since);
        assert_eq!(
            master_of(&known, 2).as_deref(),
            Some("d"),
            "one that was asked later knows better"
        );
    }

    #[test]
    fn several_single_servers_are_no_deployment() {
        let (first, other) = (Some("first"), Some("other"));
        assert_eq!(sole(&[alone("a", first)], 1), Sole::Fine);
        assert_eq!(sole(&[alone("a", None)], 1), Sole::Fine);
        assert_eq!(
            sole(&[alone("a", first), alone("b", first)], 2),
            Sole::Fine,
            "two names of one"
        );
        assert!(matches!(sole(&[alone("a", first), alone("b", other)], 2), Sole::Several(_)));
        assert!(matches!(sole(&[alone("a", None), alone("b", None)], 2), Sole::Several(_)));
        assert!(matches!(sole(&[alone("a", first)], 2), Sole::Unsure(_)));
        assert_eq!(sole(&[alone("a", first), view("b", &BEFORE, 1)], 3), Sole::Fine);
    }
}
