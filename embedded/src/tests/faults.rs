//! Faults of an engine's servers, and what clients see of them.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use rwlease_core::resp::{Command, RespValue};
use rwlease_core::slot::Slot;

use super::{at_once, text, words};
use crate::EmbeddedCluster;
use crate::link::CommandLink;

const KEY: &str = "key";
const UNKNOWN: &str = "return 'unknown elsewhere'";

fn code(reply: &RespValue) -> &str {
    match reply {
        RespValue::Error(error) => &error.code,
        other => panic!("no error: {other:?}"),
    }
}

/// An engine whose time stands still, the master of the key, and a connection to it.
fn engine(replicas: u16) -> (EmbeddedCluster, usize, CommandLink) {
    let engine = EmbeddedCluster::builder().replicas(replicas).manual_time().build();
    let master = engine.faults().master_of(Slot::of(KEY));
    let node = connect(&engine, master);
    (engine, master, node)
}

fn connect(engine: &EmbeddedCluster, server: usize) -> CommandLink {
    engine.connect(&engine.addresses()[server]).unwrap()
}

fn set(value: &str) -> Command {
    words(&["SET", KEY, value])
}

fn get() -> Command {
    words(&["GET", KEY])
}

fn call(node: &CommandLink, command: &Command) -> RespValue {
    at_once(super::call(node, command.clone())).unwrap()
}

/// Loads a script that the other servers do not know, and returns its digest.
fn load_script(node: &CommandLink) -> Bytes {
    match call(node, &words(&["SCRIPT", "LOAD", UNKNOWN])) {
        RespValue::String(digest) => digest,
        other => panic!("not loaded: {other:?}"),
    }
}

fn run_id(engine: &EmbeddedCluster, server: usize) -> String {
    let RespValue::String(info) = engine.query(server, &words(&["INFO", "server"])) else {
        panic!("no INFO");
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    line.expect("a run id").to_owned()
}

#[test]
fn a_promoted_replica_has_not_got_the_last_writes_nor_the_scripts() {
    let (engine, master, node) = engine(1);
    for value in ["1", "2", "3"] {
        call(&node, &set(value));
    }
    let digest = load_script(&node);
    for server in 0..engine.addresses().len() {
        load_script(&connect(&engine, server));
    }
    let new = engine.faults().promote(master, 2).unwrap();
    assert_ne!(new, master);
    assert_ne!(run_id(&engine, new), run_id(&engine, master));
    assert_eq!(engine.faults().master_of(Slot::of(KEY)), new);
    assert_eq!(engine.query(new, &get()), text("1"));
    let evalsha = words(&[b"EVALSHA".as_slice(), &digest, b"1", KEY.as_bytes()]);
    assert_eq!(code(&engine.query(new, &evalsha)), "NOSCRIPT");
    let moved = call(&node, &get());
    assert_eq!(code(&moved), "MOVED");
    assert!(format!("{moved:?}").contains(&engine.addresses()[new].to_string()));
    assert_eq!(engine.faults().promote(master, 0), None, "it is a replica now");
}

#[test]
fn a_master_without_replicas_is_replaced_at_its_address() {
    let (engine, master, node) = engine(0);
    let before = run_id(&engine, master);
    call(&node, &set("1"));
    call(&node, &set("2"));
    assert_eq!(engine.faults().promote(master, 1), Some(master));
    assert!(!node.is_open());
    assert!(!at_once(super::call(&node, get())).unwrap_err().maybe_sent);
    assert_ne!(run_id(&engine, master), before);
    assert_eq!(call(&connect(&engine, master), &get()), text("1"));
}

#[test]
fn a_paused_master_serves_what_was_sent_before_it_learns_of_its_successor() {
    let (engine, master, node) = engine(1);
    call(&node, &set("before"));
    engine.faults().pause(master);
    let mut pending = Box::pin(super::call(&node, set("while it was paused")));
    assert!((&mut pending).now_or_never().is_none());
    let abandoned = words(&["SET", &format!("{{{KEY}}}other"), "v"]);
    assert!(super::call(&node, abandoned).now_or_never().is_none());
    let new = engine.faults().promote(master, 0).unwrap();
    assert_eq!(engine.query(new, &get()), text("before"));
    engine.faults().resume(master);
    assert_eq!(at_once(pending).unwrap(), text("OK"), "it did not know better");
    assert_eq!(code(&call(&node, &get())), "MOVED");
    assert_eq!(engine.query(new, &get()), text("before"), "and it is lost");
}

#[test]
fn a_command_to_a_paused_server_is_run_though_nobody_waits_for_it() {
    let (engine, master, node) = engine(1);
    engine.faults().pause(master);
    drop(super::call(&node, set("v")).now_or_never());
    engine.faults().resume(master);
    assert_eq!(call(&node, &get()), text("v"));
}

#[test]
fn call_pending_at_paused_server_that_stops_may_have_been_sent() {
    let (engine, master, node) = engine(1);
    engine.faults().pause(master);
    let mut pending = Box::pin(super::call(&node, set("v")));
    assert!((&mut pending).now_or_never().is_none());
    engine.faults().stop(master);
    assert!(at_once(pending).unwrap_err().maybe_sent);
}

#[test]
fn an_isolated_master_serves_until_it_hears_of_its_successor() {
    let (engine, master, node) = engine(1);
    engine.faults().isolate(master);
    let new = engine.faults().promote(master, 0).unwrap();
    assert_eq!(call(&node, &set("here")), text("OK"));
    assert_eq!(engine.query(new, &set("there")), text("OK"));
    assert_eq!(call(&node, &get()), text("here"));
    engine.faults().rejoin(master);
    assert_eq!(code(&call(&node, &get())), "MOVED");
    assert_eq!(engine.query(new, &get()), text("there"));
    // It can take over again, and then has the other master's writes.
    assert_eq!(engine.faults().promote(new, 0), Some(master));
    assert_eq!(call(&node, &get()), text("there"));
}

#[test]
fn a_killed_server_refuses_connections_and_starts_with_its_data_but_without_scripts() {
    let (engine, master, node) = engine(1);
    call(&node, &set("v"));
    let digest = load_script(&node);
    let before = run_id(&engine, master);
    engine.faults().stop(master);
    assert!(!node.is_open());
    assert!(!engine.connect(&engine.addresses()[master]).unwrap_err().maybe_sent);
    engine.faults().start(master);
    assert!(!node.is_open(), "the old connection stays broken");
    let node = connect(&engine, master);
    assert_eq!(call(&node, &get()), text("v"));
    assert_ne!(run_id(&engine, master), before);
    let exists = words(&[b"SCRIPT".as_slice(), b"EXISTS", &digest]);
    assert_eq!(call(&node, &exists), RespValue::Array(vec![RespValue::Int(0)]));
}

#[test]
fn a_master_that_was_replaced_while_it_was_down_starts_as_a_replica() {
    let (engine, master, node) = engine(1);
    call(&node, &set("v"));
    engine.faults().stop(master);
    let new = engine.faults().promote(master, 0).unwrap();
    engine.faults().start(master);
    assert_eq!(code(&engine.query(master, &get())), "MOVED");
    assert_eq!(engine.query(new, &get()), text("v"));
}

#[test]
fn no_replica_is_left_to_promote_when_all_are_down() {
    let (engine, master, _) = engine(1);
    engine.faults().stop(engine.faults().promote(master, 0).unwrap());
    engine.faults().stop(master);
    let master = engine.faults().master_of(Slot::of(KEY));
    assert_eq!(engine.faults().promote(master, 0), None);
}

#[test]
fn two_misled_masters_name_each_other() {
    let (engine, master, _) = engine(1);
    let other = (master + 1) % 3;
    engine.faults().set_wrong_owner(master, Slot::of(KEY), other);
    for (asked, named) in [(master, other), (other, master)] {
        let reply = engine.query(asked, &get());
        let address = engine.addresses()[named].to_string();
        assert!(
            format!("{reply:?}").contains(&format!("{} {address}", Slot::of(KEY))),
            "{reply:?}"
        );
    }
}

#[test]
fn a_slot_moves_key_by_key_with_the_time_that_is_left() {
    let (engine, source, node) = engine(1);
    let (slot, target) = (Slot::of(KEY), (source + 1) % 3);
    engine.faults().set_clock(target, 60_000);
    call(&node, &words(&["SET", KEY, "v", "PX", "5000"]));
    engine.faults().begin_move(slot, target);
    assert!(engine.faults().move_key(slot));
    assert!(!engine.faults().move_key(slot));
    assert_eq!(code(&call(&node, &get())), "ASK");
    assert!(engine.faults().finish_move(slot));
    assert!(!engine.faults().finish_move(slot));
    assert_eq!(code(&call(&node, &get())), "MOVED");
    assert_eq!(engine.query(target, &words(&["PTTL", KEY])), RespValue::Int(5000));
}

#[test]
fn a_failover_of_either_side_leaves_a_slot_open() {
    for side in 0..2 {
        let (engine, source, node) = engine(1);
        let (slot, target) = (Slot::of(KEY), (source + 1) % 3);
        call(&node, &set("v"));
        engine.faults().begin_move(slot, target);
        let replaced = if side == 0 { source } else { target };
        let new = engine.faults().promote(replaced, 0).unwrap();
        assert!(engine.faults().finish_move(slot));
        let master = engine.faults().master_of(slot);
        assert_eq!(master, if side == 0 { target } else { new });
        assert_eq!(engine.query(master, &get()), text("v"));
    }
}

#[test]
fn keys_end_by_the_clock_of_their_server() {
    let (engine, master, node) = engine(1);
    call(&node, &words(&["SET", KEY, "v", "PX", "5000"]));
    assert_eq!(engine.key_count(), 1);
    engine.advance(Duration::from_millis(5000));
    assert_eq!(call(&node, &get()), text("v"));
    engine.faults().step_clock(master, 1);
    assert_eq!(call(&node, &get()), RespValue::Nil);
    assert_eq!(engine.key_count(), 0);
}

#[test]
fn time_is_the_same_for_all_who_are_not_off_and_stands_still_within_a_script() {
    let (engine, master, _) = engine(1);
    let script = "local a = redis.call('TIME') for i = 1, 1000 do redis.call('PING') end local b = redis.call('TIME')
        return {a[1] == b[1] and a[2] == b[2], a[1], a[2]}";
    engine.advance(Duration::from_micros(1_500_042));
    let eval = words(&["EVAL", script, "0"]);
    let now = RespValue::Array(vec![RespValue::Int(1), text("1735689601"), text("500042")]);
    assert_eq!(engine.query(0, &eval), now);
    assert_eq!(engine.query(1, &eval), now);
    assert_eq!(engine.now(), Duration::from_micros(1_735_689_601_500_042));
    engine.faults().set_clock(master, -1_000);
    assert_ne!(engine.query(master, &eval), now);
}

#[test]
fn a_server_refuses_as_it_is_told() {
    let (engine, master, node) = engine(1);
    engine
        .faults()
        .reply_with_error(master, Some("LOADING Redis is loading the dataset in memory"));
    assert_eq!(code(&call(&node, &get())), "LOADING");
    engine.faults().reply_with_error(master, None);
    engine.faults().set_cluster_down(master, true);
    assert_eq!(code(&call(&node, &get())), "CLUSTERDOWN");
    assert_eq!(call(&node, &words(&["PING"])), text("PONG"));
    engine.faults().set_cluster_down(master, false);
    assert_eq!(call(&node, &get()), RespValue::Nil);
    engine.faults().set_eviction_policy(master, "allkeys-lru");
    let policy = call(&node, &words(&["CONFIG", "GET", "maxmemory-policy"]));
    assert_eq!(policy, RespValue::Array(vec![text("maxmemory-policy"), text("allkeys-lru")]));
    engine.faults().flush_scripts(99); // there is no such server
}

#[test]
fn a_slot_without_a_living_master_stops_all_slots_if_full_coverage_is_required() {
    for is_required in [false, true] {
        let builder = EmbeddedCluster::builder().manual_time();
        let builder = if is_required { builder.require_full_coverage() } else { builder };
        let engine = builder.build();
        let (master, faults) = (engine.faults().master_of(Slot::of(KEY)), engine.faults());
        let other = (master + 1) % 3;
        faults.stop(other);
        let script = words(&["EVAL", "return redis.call('GET', KEYS[1])", "1", KEY]);
        for command in [get(), script] {
            let reply = engine.query(master, &command);
            match is_required {
                true => assert_eq!(code(&reply), "CLUSTERDOWN"),
                false => assert_eq!(reply, RespValue::Nil),
            }
        }
        assert_eq!(engine.query(master, &words(&["PING"])), text("PONG"));
        faults.promote(other, 0).unwrap();
        assert_eq!(engine.query(master, &get()), RespValue::Nil, "all slots have a master");
        faults.stop(faults.replicas(master)[0]);
        assert_eq!(engine.query(master, &get()), RespValue::Nil, "a replica serves no slot");
    }
}

#[test]
fn the_slots_are_listed_with_masters_and_replicas() {
    let (engine, ..) = engine(1);
    let RespValue::Array(ranges) = engine.query(2, &words(&["CLUSTER", "SLOTS"])) else {
        panic!("no slots");
    };
    assert_eq!(ranges.len(), 3);
    let RespValue::Array(first) = &ranges[0] else { panic!("no range") };
    assert_eq!(first[..2], [RespValue::Int(0), RespValue::Int(5460)]);
    let port = |node: &RespValue| match node {
        RespValue::Array(parts) => parts[..2].to_vec(),
        other => panic!("no node: {other:?}"),
    };
    assert_eq!(port(&first[2]), [text("embedded"), RespValue::Int(7000)]);
    assert_eq!(port(&first[3]), [text("embedded"), RespValue::Int(7003)]);
}

#[test]
fn a_scan_finds_all_keys_that_stay() {
    let engine = EmbeddedCluster::builder().standalone().manual_time().build();
    for number in 0..500 {
        engine.query(0, &words(&["SET", &format!("stays:{number}"), "v"]));
        engine.query(0, &words(&["SET", &format!("goes:{number}"), "v"]));
    }
    let (mut cursor, mut found, mut round) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let scan = words(&["SCAN", &cursor, "MATCH", "stays:*", "COUNT", "7"]);
        let RespValue::Array(parts) = engine.query(0, &scan) else {
            panic!("no scan");
        };
        let [RespValue::String(next), RespValue::Array(keys)] = &parts[..] else {
            panic!("no scan: {parts:?}");
        };
        found.extend(keys.iter().map(|key| format!("{key:?}")));
        cursor = String::from_utf8_lossy(next).into_owned();
        engine.query(0, &words(&["DEL", &format!("goes:{round}")]));
        engine.query(0, &words(&["SET", &format!("comes:{round}"), "v"]));
        round += 1;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 500);
    assert!(round > 100);
}

#[test]
fn calls_of_scripts_are_counted() {
    let (engine, master, _) = engine(1);
    for (script, keys) in
        [("redis.call('GET', KEYS[1]) redis.pcall('NOSUCH')", "1"), ("return 1", "1")]
    {
        engine.query(master, &words(&["EVAL", script, keys, KEY]));
    }
    let tally = engine.script_stats();
    assert_eq!((tally.scripts, tally.calls, tally.last, tally.most), (2, 2, 0, 2));
    engine.reset_script_stats();
    assert_eq!(engine.script_stats(), crate::ScriptStats::default());
}

#[test]
fn two_engines_with_manual_time_are_the_same() {
    let run = || {
        let engine = EmbeddedCluster::builder().manual_time().build();
        let mut seen = Vec::new();
        for number in 0..200 {
            let key = format!("key{number}");
            let master = engine.faults().master_of(Slot::of(&key));
            let script = "redis.call('HSET', KEYS[1], math.random(), redis.call('TIME')[2]) return redis.call('HGETALL', KEYS[1])";
            seen.push(engine.query(master, &words(&["EVAL", script, "1", &key])));
            seen.push(engine.query(master, &words(&["SCAN", "0"])));
            engine.advance(Duration::from_micros(777));
            if number % 50 == 49 {
                engine.faults().promote(master, 3);
            }
        }
        seen
    };
    assert_eq!(run(), run());
}
