//! Replies to `CLUSTER SLOTS`, and the first answers of a server.

use std::collections::BTreeSet;

use rwlease::testing::{ParsedSlots, parse_cluster_slots, parse_server_info};
use rwlease_core::resp::{Address, RespValue};

use crate::resp::{replies, text};

pub fn check(data: &[u8]) {
    let replies = replies(data);
    let _ = parse_server_info(&replies);
    let asked = Address { host: "asked".into(), port: 7000 };
    for reply in replies {
        let slots = parse_cluster_slots(&reply, &asked);
        assert_eq!(slots.is_ok(), matches!(reply, RespValue::Array(_)));
        if let Ok(slots) = slots {
            check_map(&slots, &asked);
        }
    }
}

fn check_map(slots: &ParsedSlots, asked: &Address) {
    let nodes: BTreeSet<&Address> = slots.nodes.iter().collect();
    assert_eq!(nodes.len(), slots.nodes.len(), "a node is there twice");
    for (first, last, master) in &slots.masters {
        assert!(first <= last && nodes.contains(master));
    }
    assert!(nodes.iter().all(|node| node.port != 0 && !node.host.is_empty()));
    let again = parse_cluster_slots(&encode(slots), asked).unwrap();
    assert_eq!((&again.masters, again.bad_entries), (&slots.masters, 0));
    if !slots.masters.is_empty() {
        assert_eq!(again.nodes.iter().collect::<BTreeSet<_>>(), nodes);
    }
}

/// A reply with this map. The first entry has all nodes as its replicas.
fn encode(slots: &ParsedSlots) -> RespValue {
    let node = |node: &Address| {
        RespValue::Array(vec![text(&*node.host), RespValue::Int(node.port.into())])
    };
    let entry = |(index, (first, last, master)): (usize, &(_, _, Address))| {
        let (first, last): (rwlease::Slot, rwlease::Slot) = (*first, *last);
        let replicas = slots.nodes.iter().filter(|_| index == 0).map(node);
        let range = [first, last].map(|slot| RespValue::Int(slot.get().into()));
        RespValue::Array(range.into_iter().chain([node(master)]).chain(replicas).collect())
    };
    RespValue::Array(slots.masters.iter().enumerate().map(entry).collect())
}
