//! Reads replies to `CLUSTER SLOTS`. An entry that cannot be used costs no other one its slots.

use rwlease_core::resp::{Address, RespValue};
use rwlease_core::slot::Slot;

use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntry;
use crate::router::cluster::slot_map::SlotMap;
use crate::router::connections::server_info::text;

#[derive(Debug)]
pub(crate) struct ClusterSlots {
    pub(crate) map: SlotMap,
    /// The entries that were skipped. Their slots have no master in the map.
    pub(crate) bad_entries: Vec<BadEntry>,
}

/// Reads the reply of the server at `asked`. Fails if the reply is no list at all.
pub(crate) fn read(
    reply: &RespValue,
    asked: &Address,
    translation: &AddressTranslator,
) -> Result<ClusterSlots, String> {
    let RespValue::Array(entries) = reply else {
        return Err(format!("expected a list, got {reply:?}"));
    };
    let slots = ClusterSlots { map: SlotMap::empty(), bad_entries: Vec::new() };
    let mut reader = Reader { slots, asked, translation };
    for entry in entries {
        reader.read_entry(entry);
    }
    Ok(reader.slots)
}

struct Reader<'a> {
    slots: ClusterSlots,
    asked: &'a Address,
    translation: &'a AddressTranslator,
}

/// A node in a reply.
struct Node<'a> {
    id: Option<&'a str>,
    /// Or why it cannot be dialled.
    place: Result<(&'a str, u16), &'static str>,
}

impl Reader<'_> {
    /// Reads an entry: the first and the last slot of a range, its master, its replicas.
    fn read_entry(&mut self, entry: &RespValue) {
        let Some((first, last, nodes)) = range(entry) else {
            return self.skip(format!("entry {entry:?}"), "it is not a range of slots");
        };
        let [master, replicas @ ..] = nodes else {
            return self.skip(format!("slots {first}-{last}"), "they have no master");
        };
        if let Some(master) = self.read_node(master) {
            self.slots.map.assign(first, last, &master);
        }
        for replica in replicas {
            self.read_node(replica);
        }
    }

    /// Adds a node to the map. `None` if it cannot be dialled. Its id is known to be a node's all
    /// the same.
    fn read_node(&mut self, reply: &RespValue) -> Option<Address> {
        let Node { id, place } = node(reply);
        match place {
            Ok((host, port)) => {
                let address = self.translation.address(host, port, self.asked);
                self.slots.map.add(&address, id);
                Some(address)
            }
            Err(reason) => {
                if let Some(id) = id {
                    self.slots.map.add_without_address(id);
                }
                let subject = match id {
                    Some(id) => format!("node {id}"),
                    None => format!("node {reply:?}"),
                };
                self.skip(subject, reason);
                None
            }
        }
    }

    fn skip(&mut self, subject: String, reason: &'static str) {
        self.slots.bad_entries.push(BadEntry { subject, reason });
    }
}

fn range(entry: &RespValue) -> Option<(Slot, Slot, &[RespValue])> {
    let RespValue::Array(items) = entry else {
        return None;
    };
    let [first, last, nodes @ ..] = items.as_slice() else {
        return None;
    };
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then_some((first, last, nodes))
}

fn slot(reply: &RespValue) -> Option<Slot> {
    match reply {
        RespValue::Int(number) => u16::try_from(*number).ok().and_then(Slot::new),
        _ => None,
    }
}

/// Reads a node: host, port, and since 7.0 its id and further names. A node whose address the
/// server does not know (its address belongs to another node now) has port 0.
fn node(reply: &RespValue) -> Node<'_> {
    let items = match reply {
        RespValue::Array(items) => items.as_slice(),
        _ => &[],
    };
    let [host, port, rest @ ..] = items else {
        return Node { id: None, place: Err("it is not a list of a host and a port") };
    };
    let id = rest.first().and_then(text).filter(|id| !id.is_empty());
    Node { id, place: place(host, port, rest) }
}

fn place<'a>(
    host: &'a RespValue,
    port: &RespValue,
    rest: &'a [RespValue],
) -> Result<(&'a str, u16), &'static str> {
    let port = match port {
        RespValue::Int(0) => return Err("it has no address"),
        RespValue::Int(port) => u16::try_from(*port).map_err(|_| "its port is out of range")?,
        _ => return Err("its port is not a number"),
    };
    let host = match host {
        RespValue::Nil => "",
        host => text(host).ok_or("its host is not a text")?,
    };
    // A node that should announce a host name but has none is announced as `?`, with its IP address
    // among the further names.
    let host = if host == "?" { further_name(rest, "ip").unwrap_or(host) } else { host };
    Ok((host, port))
}

/// The further name of this kind in the fields after a node's host and port: its id, and a list of
/// kinds and names.
fn further_name<'a>(rest: &'a [RespValue], kind: &str) -> Option<&'a str> {
    let [_, RespValue::Array(names), ..] = rest else {
        return None;
    };
    names.chunks_exact(2).find_map(|pair| match pair {
        [key, name] if text(key) == Some(kind) => text(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
