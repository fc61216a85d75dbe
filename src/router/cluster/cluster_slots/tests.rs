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
    let names = RespValue::Array(vec![text("hostname"), text("h"), text("ip"), text("10.0.0.9")]);
    let named_aside = RespValue::Array(vec![text("?"), RespValue::Int(5), text("id"), names]);
    let translation =
        AddressTranslator(Some(Arc::new(|host, port| (format!("{host}.outside"), port + 1000))));
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
        (RespValue::Int(1), "entry 1", "it is not a range of slots"),
        (range(0, 16384, [a()]), "entry ", "it is not a range of slots"),
        (range(-1, 1, [a()]), "entry ", "it is not a range of slots"),
        (range(2, 1, [a()]), "entry ", "it is not a range of slots"),
        (range(0, 1, []), "slots 0-1", "they have no master"),
        (range(0, 1, [node(text(""), 0, "dead")]), "node dead", "it has no address"),
        (range(0, 1, [node(text("a"), 0, "dead")]), "node dead", "it has no address"),
        (range(0, 1, [node(text("a"), 65536, "x")]), "node x", "its port is out of range"),
        (range(0, 1, [node(text("a"), -1, "x")]), "node x", "its port is out of range"),
        (range(0, 1, [node(RespValue::Int(1), 1, "x")]), "node x", "its host is not a text"),
        (range(0, 1, [node(no_utf8, 1, "x")]), "node x", "its host is not a text"),
        (
            range(0, 1, [RespValue::Array(vec![text("a"), text("1")])]),
            "node [",
            "its port is not a number",
        ),
        (range(0, 1, [text("a")]), "node \"", "it is not a list of a host and a port"),
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
        13 => RespValue::Error(rwlease_core::resp::ServerError {
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

/// Returns true if an entry claims slots of another entry, which no server reports. The reader
/// cannot know which of the two entries is wrong.
fn claims_slots_of_others(entry: &RespValue, number: usize) -> bool {
    let own = (number * 1_000) as u16;
    super::range(entry).is_some_and(|(first, last, _)| first.get() < own || last.get() > own + 999)
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
