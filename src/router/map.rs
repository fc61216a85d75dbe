//! Which node serves which slot.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::node::{Address, Reply};
use crate::router::translation::Translation;
use crate::slot::Slot;

/// Marks a slot whose master is unknown.
const NOBODY: u16 = u16::MAX;

/// The master of every slot, and all known nodes.
#[derive(Clone, PartialEq)]
pub(crate) struct SlotMap {
    /// Masters and replicas.
    nodes: Vec<Address>,
    /// The id of each node, if it is known.
    ids: Vec<Option<Box<str>>>,
    /// The index of each node in `nodes`.
    index: HashMap<Address, u16>,
    /// For each slot an index into `nodes`, or [`NOBODY`].
    masters: Box<[u16]>,
}

impl SlotMap {
    /// A map that knows no master yet.
    pub(crate) fn empty() -> SlotMap {
        SlotMap {
            nodes: Vec::new(),
            ids: Vec::new(),
            index: HashMap::new(),
            masters: Slot::all().map(|_| NOBODY).collect(),
        }
    }

    /// The map of a server that is not in a cluster: it serves all slots.
    pub(crate) fn single(address: Address) -> SlotMap {
        let mut map = SlotMap::empty();
        let master = map.index_of(&address);
        map.masters.fill(master);
        map
    }

    /// Parses the reply of the server at `asked` to `CLUSTER SLOTS`. An error says what is wrong
    /// with the reply.
    pub(crate) fn parse(
        reply: &Reply,
        asked: &Address,
        translation: &Translation,
    ) -> Result<SlotMap, String> {
        let mut map = SlotMap::empty();
        for entry in list(reply, "the reply")? {
            let [first, last, master, replicas @ ..] = list(entry, "a range")? else {
                return Err(format!("a range of slots without an master: {entry:?}"));
            };
            let master = map.add(master, asked, translation)?;
            let (first, last) = (slot(first)?, slot(last)?);
            if first > last {
                return Err(format!("a range of slots that ends before it begins: {entry:?}"));
            }
            map.masters[first.index()..=last.index()].fill(master);
            for replica in replicas {
                map.add(replica, asked, translation)?;
            }
        }
        Ok(map)
    }

    /// The master of the slot.
    pub(crate) fn master_of(&self, slot: Slot) -> Option<&Address> {
        self.nodes.get(usize::from(self.masters[slot.index()]))
    }

    /// Notes that a server named `address` as the slot's master. Returns true if that is new.
    pub(crate) fn moved(&mut self, slot: Slot, address: &Address) -> bool {
        let master = self.index_of(address);
        std::mem::replace(&mut self.masters[slot.index()], master) != master
    }

    /// Returns true if the map has that node.
    pub(crate) fn has(&self, address: &Address) -> bool {
        self.index.contains_key(address)
    }

    /// All known nodes, masters and replicas.
    pub(crate) fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// The nodes that serve slots.
    pub(crate) fn masters(&self) -> Vec<Address> {
        let serving: BTreeSet<u16> = self.masters.iter().copied().collect();
        serving
            .into_iter()
            .filter_map(|master| self.nodes.get(usize::from(master)).cloned())
            .collect()
    }

    /// Returns true if no slot has a master.
    pub(crate) fn is_empty(&self) -> bool {
        self.masters.iter().all(|master| *master == NOBODY)
    }

    /// Returns true if both maps have the same master for every slot.
    pub(crate) fn agrees(&self, other: &SlotMap) -> bool {
        (self.nodes == other.nodes && self.masters == other.masters)
            || Slot::all().all(|slot| self.master_of(slot) == other.master_of(slot))
    }

    /// Returns true if each slot that has a master in the other map has the same one here.
    pub(crate) fn has_all_of(&self, other: &SlotMap) -> bool {
        Slot::all().all(|slot| {
            other.master_of(slot).is_none_or(|master| self.master_of(slot) == Some(master))
        })
    }

    /// Returns true if the ids of some nodes are known.
    pub(crate) fn has_ids(&self) -> bool {
        self.ids.iter().any(Option::is_some)
    }

    /// Returns true if a node has this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.ids.iter().flatten().any(|known| **known == *id)
    }

    /// Returns true if both maps have ids, and share none.
    pub(crate) fn is_disjoint(&self, other: &SlotMap) -> bool {
        let shared = || self.ids.iter().flatten().any(|id| other.has_id(id));
        self.has_ids() && other.has_ids() && !shared()
    }

    /// This map, with the masters from `known` for slots that this map leaves out.
    pub(crate) fn filled_from(mut self, known: &SlotMap) -> SlotMap {
        for slot in
            Slot::all().filter(|slot| self.masters[slot.index()] == NOBODY).collect::<Vec<_>>()
        {
            let master = usize::from(known.masters[slot.index()]);
            let Some(address) = known.nodes.get(master) else {
                continue;
            };
            let index = self.index_of(address);
            if let (Some(place), Some(id)) =
                (self.ids.get_mut(usize::from(index)), known.ids.get(master))
            {
                *place = place.take().or_else(|| id.clone());
            }
            self.masters[slot.index()] = index;
        }
        self
    }

    /// Adds a node of a `CLUSTER SLOTS` reply, and returns its index.
    fn add(
        &mut self,
        reply: &Reply,
        asked: &Address,
        translation: &Translation,
    ) -> Result<u16, String> {
        let (address, id) = node(reply, asked, translation)?;
        let index = self.index_of(&address);
        if let Some(place) = self.ids.get_mut(usize::from(index)) {
            *place = place.take().or(id);
        }
        Ok(index)
    }

    fn index_of(&mut self, address: &Address) -> u16 {
        if let Some(index) = self.index.get(address) {
            return *index;
        }
        let Some(index) = u16::try_from(self.nodes.len()).ok().filter(|index| *index != NOBODY)
        else {
            return NOBODY;
        };
        self.nodes.push(address.clone());
        self.ids.push(None);
        self.index.insert(address.clone(), index);
        index
    }
}

impl fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self.masters.iter().filter(|master| **master != NOBODY).count();
        f.debug_struct("SlotMap")
            .field("nodes", &self.nodes)
            .field("ids", &self.ids)
            .field("served", &served)
            .finish()
    }
}

fn list<'a>(reply: &'a Reply, what: &str) -> Result<&'a [Reply], String> {
    match reply {
        Reply::List(items) => Ok(items),
        other => Err(format!("{what} is no list: {other:?}")),
    }
}

fn slot(reply: &Reply) -> Result<Slot, String> {
    match reply {
        Reply::Int(number) => u16::try_from(*number).ok().and_then(Slot::new),
        _ => None,
    }
    .ok_or_else(|| format!("no slot: {reply:?}"))
}

/// A node of a `CLUSTER SLOTS` reply: host, port, and since 7.0 its id and further names.
fn node(
    reply: &Reply,
    asked: &Address,
    translation: &Translation,
) -> Result<(Address, Option<Box<str>>), String> {
    let garbled = || format!("no node: {reply:?}");
    let [host, port, rest @ ..] = list(reply, "a node")? else {
        return Err(garbled());
    };
    let host = match host {
        Reply::Nil => "",
        Reply::Text(text) => std::str::from_utf8(text).map_err(|_| garbled())?,
        _ => return Err(garbled()),
    };
    let port = match port {
        Reply::Int(port) => {
            u16::try_from(*port).ok().filter(|port| *port != 0).ok_or_else(garbled)?
        }
        _ => return Err(garbled()),
    };
    // A node that should announce a host name but has none is announced as `?`, with its IP address
    // among the further names.
    let host = if host == "?" { further_name(rest, "ip").unwrap_or(host) } else { host };
    let id = match rest.first() {
        Some(Reply::Text(id)) => std::str::from_utf8(id).ok().filter(|id| !id.is_empty()),
        _ => None,
    };
    Ok((translation.address(host, port, asked), id.map(Into::into)))
}

/// The further name of this kind in the fields after a node's host and port: its id, and a list of
/// kinds and names.
fn further_name<'a>(rest: &'a [Reply], kind: &str) -> Option<&'a str> {
    let [_, Reply::List(names), ..] = rest else {
        return None;
    };
    names.chunks_exact(2).find_map(|pair| match pair {
        [Reply::Text(key), Reply::Text(name)] if key == kind => std::str::from_utf8(name).ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    fn asked() -> Address {
        address("asked", 7000)
    }

    fn text(text: &'static str) -> Reply {
        Reply::Text(text.into())
    }

    fn range(first: i64, last: i64, nodes: impl IntoIterator<Item = Reply>) -> Reply {
        Reply::List([Reply::Int(first), Reply::Int(last)].into_iter().chain(nodes).collect())
    }

    fn node(host: Reply, port: i64) -> Reply {
        Reply::List(vec![host, Reply::Int(port), text("id")])
    }

    fn master_of(map: &SlotMap, slot: u16) -> Option<String> {
        map.master_of(Slot::new(slot).unwrap()).map(ToString::to_string)
    }

    #[test]
    fn ranges_and_replicas() {
        let reply = Reply::List(vec![
            range(0, 5460, [node(text("a"), 1), node(text("d"), 4)]),
            range(5461, 5461, [node(text("b"), 2)]),
            range(16383, 16383, [node(text("::1"), 3)]),
        ]);
        let map = SlotMap::parse(&reply, &asked(), &Translation::default()).unwrap();
        assert_eq!(master_of(&map, 0).as_deref(), Some("a:1"));
        assert_eq!(master_of(&map, 5460).as_deref(), Some("a:1"));
        assert_eq!(master_of(&map, 5461).as_deref(), Some("b:2"));
        assert_eq!(master_of(&map, 5462), None);
        assert_eq!(master_of(&map, 16383).as_deref(), Some("[::1]:3"));
        assert_eq!(map.nodes().len(), 4);
        let masters: Vec<_> = map.masters().iter().map(ToString::to_string).collect();
        assert_eq!(masters, ["a:1", "b:2", "[::1]:3"]);
        assert!(!map.is_empty());
    }

    #[test]
    fn a_host_that_is_not_known_is_the_one_that_was_asked() {
        let names = Reply::List(vec![text("hostname"), text("h"), text("ip"), text("10.0.0.9")]);
        let named_aside = Reply::List(vec![text("?"), Reply::Int(5), text("id"), names]);
        let translation =
            Translation(Some(Arc::new(|host, port| (format!("{host}.outside"), port + 1000))));
        let reply = Reply::List(vec![
            range(0, 0, [node(Reply::Nil, 1)]),
            range(1, 1, [node(text(""), 2)]),
            range(2, 2, [node(text("?"), 3)]),
            range(3, 3, [node(text("inside"), 4)]),
            range(4, 4, [named_aside]),
        ]);
        let map = SlotMap::parse(&reply, &asked(), &translation).unwrap();
        let masters: Vec<_> = (0..5).map(|slot| master_of(&map, slot).unwrap()).collect();
        assert_eq!(
            masters,
            ["asked:1", "asked:2", "asked:3", "inside.outside:1004", "10.0.0.9.outside:1005"]
        );
    }

    #[test]
    fn garbage_is_an_error() {
        for reply in [
            Reply::Nil,
            Reply::Int(1),
            Reply::List(vec![Reply::Int(1)]),
            Reply::List(vec![range(0, 1, [])]),
            Reply::List(vec![range(0, 16384, [node(text("a"), 1)])]),
            Reply::List(vec![range(-1, 1, [node(text("a"), 1)])]),
            Reply::List(vec![range(2, 1, [node(text("a"), 1)])]),
            Reply::List(vec![range(0, 1, [node(text("a"), 0)])]),
            Reply::List(vec![range(0, 1, [node(text("a"), 65536)])]),
            Reply::List(vec![range(0, 1, [node(Reply::Int(1), 1)])]),
            Reply::List(vec![range(0, 1, [Reply::List(vec![text("a")])])]),
            Reply::List(vec![range(0, 1, [text("a")])]),
        ] {
            let outcome = SlotMap::parse(&reply, &asked(), &Translation::default());
            assert!(outcome.is_err(), "{reply:?} gave {outcome:?}");
        }
    }

    #[test]
    fn a_moved_slot_has_a_new_owner_at_once() {
        let mut map = SlotMap::single(asked());
        let slot = Slot::of("x");
        assert!(map.moved(slot, &address("new", 1)));
        assert!(!map.moved(slot, &address("new", 1)), "no news");
        assert_eq!(map.master_of(slot), Some(&address("new", 1)));
        assert_eq!(map.master_of(Slot::of("y")), Some(&asked()));
        assert!(!map.agrees(&SlotMap::single(asked())));
        assert!(map.moved(slot, &asked()));
        assert!(map.agrees(&SlotMap::single(asked())), "nodes that own nothing do not matter");
        assert!(SlotMap::empty().is_empty());
        assert_eq!(SlotMap::empty().master_of(slot), None);
    }
}
