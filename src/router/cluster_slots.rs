//! Reads replies to `CLUSTER SLOTS`. An entry that cannot be used costs no other one its slots.

use crate::backend::{Address, RespValue};
use crate::router::address_translation::AddressTranslator;
use crate::router::bad_entries::BadEntry;
use crate::router::slot_map::SlotMap;
use crate::slot::Slot;

/// A reply to `CLUSTER SLOTS`.
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
        return Err(format!("the reply is no list: {reply:?}"));
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
            return self.skip(format!("entry {entry:?}"), "it is no range of slots");
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

/// The slots of an entry, and its nodes.
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
        return Node { id: None, place: Err("it is no list of a host and a port") };
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
        _ => return Err("its port is no number"),
    };
    let host = match host {
        RespValue::Nil => "",
        host => text(host).ok_or("its host is no text")?,
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

fn text(reply: &RespValue) -> Option<&str> {
    match reply {
        RespValue::String(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
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

    fn text(text: &str) -> RespValue {
        RespValue::String(text.to_owned().into())
    }

    fn range(first: i64, last: i64, nodes: impl IntoIterator<Item = RespValue>) -> RespValue {
        RespValue::Array(
            [RespValue::Int(first), RespValue::Int(last)].into_iter().chain(nodes).collect(),
        )
    }

    fn node(host: RespValue, port: i64, id: &str) -> RespValue {
        RespValue::Array(vec![host, RespValue::Int(port), text(id)])
    }

    fn read_from(entries: Vec<RespValue>) -> ClusterSlots {
        read(&RespValue::Array(entries), &asked(), &AddressTranslator::default()).unwrap()
    }

    fn master_of(map: &SlotMap, slot: u16) -> Option<String> {
        map.master_of(Slot::new(slot).unwrap()).map(ToString::to_string)
    }

    #[test]
    fn read_takes_ranges_and_replicas() {
        let ClusterSlots { map, bad_entries } = read_from(vec![
            range(0, 5460, [node(text("a"), 1, "1"), node(text("d"), 4, "4")]),
            range(5461, 5461, [node(text("b"), 2, "2")]),
            range(16383, 16383, [node(text("::1"), 3, "3")]),
        ]);
        assert_eq!(master_of(&map, 0).as_deref(), Some("a:1"));
        assert_eq!(master_of(&map, 5460).as_deref(), Some("a:1"));
        assert_eq!(master_of(&map, 5461).as_deref(), Some("b:2"));
        assert_eq!(master_of(&map, 5462), None);
        assert_eq!(master_of(&map, 16383).as_deref(), Some("[::1]:3"));
        assert_eq!(map.nodes().len(), 4);
        let masters: Vec<_> = map.masters().iter().map(ToString::to_string).collect();
        assert_eq!(masters, ["a:1", "b:2", "[::1]:3"]);
        assert!(!map.is_empty() && bad_entries.is_empty());
    }

    #[test]
    fn read_takes_an_unknown_host_for_the_one_that_was_asked() {
        let names =
            RespValue::Array(vec![text("hostname"), text("h"), text("ip"), text("10.0.0.9")]);
        let named_aside = RespValue::Array(vec![text("?"), RespValue::Int(5), text("id"), names]);
        let translation = AddressTranslator(Some(Arc::new(|host, port| {
            (format!("{host}.outside"), port + 1000)
        })));
        let reply = RespValue::Array(vec![
            range(0, 0, [node(RespValue::Nil, 1, "1")]),
            range(1, 1, [node(text(""), 2, "2")]),
            range(2, 2, [node(text("?"), 3, "3")]),
            range(3, 3, [node(text("inside"), 4, "4")]),
            range(4, 4, [named_aside]),
        ]);
        let map = read(&reply, &asked(), &translation).unwrap().map;
        let masters: Vec<_> = (0..5).map(|slot| master_of(&map, slot).unwrap()).collect();
        assert_eq!(
            masters,
            ["asked:1", "asked:2", "asked:3", "inside.outside:1004", "10.0.0.9.outside:1005"]
        );
    }

    #[test]
    fn read_of_something_that_is_no_list_is_an_error() {
        for reply in [RespValue::Nil, RespValue::Int(1), text("x")] {
            assert!(read(&reply, &asked(), &AddressTranslator::default()).is_err(), "{reply:?}");
        }
        assert!(read_from(vec![]).map.is_empty());
    }

    #[test]
    fn read_skips_what_cannot_be_used_and_says_why() {
        let a = || node(text("a"), 1, "1");
        let no_utf8 = RespValue::String(bytes::Bytes::from_static(b"\xff"));
        for (entry, subject, reason) in [
            (RespValue::Int(1), "entry 1", "it is no range of slots"),
            (range(0, 16384, [a()]), "entry ", "it is no range of slots"),
            (range(-1, 1, [a()]), "entry ", "it is no range of slots"),
            (range(2, 1, [a()]), "entry ", "it is no range of slots"),
            (range(0, 1, []), "slots 0-1", "they have no master"),
            (range(0, 1, [node(text(""), 0, "dead")]), "node dead", "it has no address"),
            (range(0, 1, [node(text("a"), 0, "dead")]), "node dead", "it has no address"),
            (range(0, 1, [node(text("a"), 65536, "x")]), "node x", "its port is out of range"),
            (range(0, 1, [node(text("a"), -1, "x")]), "node x", "its port is out of range"),
            (range(0, 1, [node(RespValue::Int(1), 1, "x")]), "node x", "its host is no text"),
            (range(0, 1, [node(no_utf8, 1, "x")]), "node x", "its host is no text"),
            (
                range(0, 1, [RespValue::Array(vec![text("a"), text("1")])]),
                "node [",
                "its port is no number",
            ),
            (range(0, 1, [text("a")]), "node \"", "it is no list of a host and a port"),
        ] {
            let good = range(5, 5, [node(text("b"), 2, "2")]);
            let ClusterSlots { map, bad_entries } = read_from(vec![entry.clone(), good]);
            assert_eq!((master_of(&map, 0), master_of(&map, 1)), (None, None), "{entry:?}");
            assert_eq!(master_of(&map, 5).as_deref(), Some("b:2"));
            let [bad] = &bad_entries[..] else { panic!("{entry:?}: {bad_entries:?}") };
            assert!(bad.subject.starts_with(subject), "{bad:?}");
            assert_eq!(bad.reason, reason, "{bad:?}");
        }
        // A bad replica costs nothing but itself.
        let dead = node(RespValue::Nil, 0, "dead");
        let ClusterSlots { map, bad_entries } = read_from(vec![range(0, 1, [a(), dead])]);
        assert_eq!(master_of(&map, 0).as_deref(), Some("a:1"));
        assert_eq!(bad_entries.len(), 1);
        assert!(map.has_id("dead"), "it is a node of the cluster");
    }

    /// Ten shards, with a replica each.
    fn ten_shards() -> Vec<RespValue> {
        let shard = |number: i64| {
            let nodes = [(1, "m"), (2, "r")].map(|(port, kind)| {
                node(text("host"), number * 10 + port, &format!("{kind}{number}-id"))
            });
            range(number * 1_000, number * 1_000 + 999, nodes)
        };
        (1..=10).map(shard).collect()
    }

    /// A value that does not belong where it is.
    fn odd_value(random: &mut fastrand::Rng) -> RespValue {
        match random.u8(..16) {
            0 => RespValue::Nil,
            1 => RespValue::Int(0),
            2 => RespValue::Int(-1),
            3 => RespValue::Int(i64::MIN),
            4 => RespValue::Int(i64::MAX),
            5 => RespValue::Int(65_536),
            6 => RespValue::Int(16_384),
            7 => text(""),
            8 => text("?"),
            9 => RespValue::String(bytes::Bytes::from_static(b"\xff\xfe\x00")),
            10 => RespValue::Array(vec![]),
            11 => RespValue::Array(vec![RespValue::Nil, RespValue::Int(0), RespValue::Nil]),
            12 => RespValue::Array(vec![text("ip"), RespValue::Nil, text("hostname")]),
            13 => RespValue::Error(crate::backend::ServerError {
                code: "ERR".into(),
                message: "x".into(),
            }),
            14 => RespValue::String(vec![b'x'; 1 << 10].into()),
            _ => RespValue::Array((0..random.usize(1..5)).map(|_| text("x")).collect()),
        }
    }

    /// Replaces, removes or adds something in a list, at any depth.
    fn mutate(reply: &mut RespValue, random: &mut fastrand::Rng) {
        let RespValue::Array(items) = reply else {
            *reply = odd_value(random);
            return;
        };
        match random.u8(..8) {
            0 => *reply = odd_value(random),
            1 => items.truncate(random.usize(0..=items.len())),
            2 => items.insert(random.usize(0..=items.len()), odd_value(random)),
            _ if items.is_empty() => items.push(odd_value(random)),
            _ => {
                let place = random.usize(..items.len());
                mutate(&mut items[place], random);
            }
        }
    }

    /// Returns true if an entry claims slots of others, as no server's does: then nobody can tell
    /// which of the two is bad.
    fn claims_slots_of_others(entry: &RespValue, number: usize) -> bool {
        let own = (number * 1_000) as u16;
        super::range(entry)
            .is_some_and(|(first, last, _)| first.get() < own || last.get() > own + 999)
    }

    #[test]
    fn read_of_a_reply_with_one_mutated_entry_keeps_the_slots_of_the_others() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut mutated = 0;
        while mutated < 5_000 {
            let mut entries = ten_shards();
            let number = random.usize(1..=10);
            let entry = &mut entries[number - 1];
            (0..random.u8(1..4)).for_each(|_| mutate(entry, &mut random));
            if claims_slots_of_others(entry, number) {
                continue;
            }
            mutated += 1;
            let entry = entry.clone();
            let map = read_from(entries).map;
            for other in (1..=10).filter(|other| *other != number) {
                let master = Some(format!("host:{}", other * 10 + 1));
                for slot in [other * 1_000, other * 1_000 + 999] {
                    assert_eq!(master_of(&map, slot as u16), master, "seed {seed}: {entry:?}");
                }
                let ids = ["m", "r"].map(|kind| format!("{kind}{other}-id"));
                assert!(ids.iter().all(|id| map.has_id(id)), "seed {seed}: {entry:?}");
            }
        }
    }
}
