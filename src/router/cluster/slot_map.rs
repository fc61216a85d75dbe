use std::collections::{BTreeSet, HashMap};

use rwlease_core::resp::Address;
use rwlease_core::slot::Slot;

/// Marks a slot whose master is unknown.
const UNASSIGNED: u16 = u16::MAX;

/// The master of every slot, and all known nodes.
#[derive(Clone, PartialEq)]
pub(crate) struct SlotMap {
    /// Masters and replicas.
    nodes: Vec<Address>,
    /// The id of each node, if it is known.
    ids: Vec<Option<Box<str>>>,
    /// The ids of nodes that cannot be dialled.
    without_address: Vec<Box<str>>,
    /// The index of each node in `nodes`.
    index: HashMap<Address, u16>,
    /// For each slot an index into `nodes`, or [`UNASSIGNED`].
    masters: Box<[u16]>,
}

impl SlotMap {
    /// A map that knows no master yet.
    pub(crate) fn empty() -> SlotMap {
        SlotMap {
            nodes: Vec::new(),
            ids: Vec::new(),
            without_address: Vec::new(),
            index: HashMap::new(),
            masters: Slot::all().map(|_| UNASSIGNED).collect(),
        }
    }

    /// The map of a server that is not in a cluster: it serves all slots.
    pub(crate) fn single(address: Address) -> SlotMap {
        let mut map = SlotMap::empty();
        let master = map.index_of(&address);
        map.masters.fill(master);
        map
    }

    /// Adds a node, with its id if that is known.
    pub(crate) fn add(&mut self, address: &Address, id: Option<&str>) {
        let index = self.index_of(address);
        if let Some(place) = self.ids.get_mut(usize::from(index)) {
            *place = place.take().or_else(|| id.map(Into::into));
        }
    }

    /// Adds a node that cannot be dialled.
    pub(crate) fn add_without_address(&mut self, id: &str) {
        if !self.has_id(id) {
            self.without_address.push(id.into());
        }
    }

    pub(crate) fn assign(&mut self, first: Slot, last: Slot, master: &Address) {
        let master = self.index_of(master);
        self.masters[first.index()..=last.index()].fill(master);
    }

    pub(crate) fn master_of(&self, slot: Slot) -> Option<&Address> {
        self.nodes.get(usize::from(self.masters[slot.index()]))
    }

    /// Notes that a server named `address` as the slot's master. Returns true if that is new.
    pub(crate) fn set_master(&mut self, slot: Slot, address: &Address) -> bool {
        let master = self.index_of(address);
        std::mem::replace(&mut self.masters[slot.index()], master) != master
    }

    /// Returns true if the map has that node.
    pub(crate) fn contains(&self, address: &Address) -> bool {
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
        self.served() == 0
    }

    /// How many slots have a master.
    pub(crate) fn served(&self) -> usize {
        self.masters.iter().filter(|master| **master != UNASSIGNED).count()
    }

    /// Returns true if both maps have the same master for every slot.
    pub(crate) fn has_same_masters(&self, other: &SlotMap) -> bool {
        (self.nodes == other.nodes && self.masters == other.masters)
            || Slot::all().all(|slot| self.master_of(slot) == other.master_of(slot))
    }

    /// Returns true if each slot that has a master in the other map has the same one here.
    pub(crate) fn covers(&self, other: &SlotMap) -> bool {
        Slot::all().all(|slot| {
            other.master_of(slot).is_none_or(|master| self.master_of(slot) == Some(master))
        })
    }

    /// Returns true if the ids of some nodes are known.
    pub(crate) fn has_ids(&self) -> bool {
        self.ids().next().is_some()
    }

    /// Returns true if a node has this id.
    pub(crate) fn has_id(&self, id: &str) -> bool {
        self.ids().any(|known| known == id)
    }

    /// Returns true if both maps have ids, and share none.
    pub(crate) fn is_disjoint(&self, other: &SlotMap) -> bool {
        let shared = || self.ids().any(|id| other.has_id(id));
        self.has_ids() && other.has_ids() && !shared()
    }

    /// This map, with the masters from `known` for slots that this map leaves out.
    pub(crate) fn with_gaps_from(mut self, known: &SlotMap) -> SlotMap {
        for slot in
            Slot::all().filter(|slot| self.masters[slot.index()] == UNASSIGNED).collect::<Vec<_>>()
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

    /// The ids of all known nodes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.ids.iter().flatten().chain(&self.without_address).map(|id| &**id)
    }

    fn index_of(&mut self, address: &Address) -> u16 {
        if let Some(index) = self.index.get(address) {
            return *index;
        }
        let Some(index) = u16::try_from(self.nodes.len()).ok().filter(|index| *index != UNASSIGNED)
        else {
            return UNASSIGNED;
        };
        self.nodes.push(address.clone());
        self.ids.push(None);
        self.index.insert(address.clone(), index);
        index
    }
}

debug_fields!(|map| SlotMap {
    nodes: map.nodes,
    ids: map.ids,
    without_address: map.without_address,
    served: map.served()
});

#[cfg(test)]
mod tests;
