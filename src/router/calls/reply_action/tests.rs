use std::sync::Arc;

use super::*;
use crate::router::connections::error_reply::{invalidates_connection, moved_target};

fn asked() -> Address {
    Address { host: "asked".into(), port: 7000 }
}

fn slot() -> Slot {
    Slot::new(3999).unwrap()
}

fn error(text: &str) -> ServerError {
    ServerError::parse(text)
}

fn on(text: &str) -> ReplyAction {
    action_for_reply(RespValue::Error(error(text)), slot(), &asked(), &AddressTranslator::default())
}

fn to(host: &str, port: u16) -> Address {
    Address { host: host.into(), port }
}

#[test]
fn redirects() {
    assert_eq!(on("MOVED 3999 127.0.0.1:6381"), ReplyAction::Moved(to("127.0.0.1", 6381)));
    assert_eq!(on("ASK 3999 node-1.example:6381"), ReplyAction::Ask(to("node-1.example", 6381)));
    assert_eq!(on("MOVED 3999 :6379"), ReplyAction::Moved(to("asked", 6379)), "the same host");
    assert_eq!(on("MOVED 3999 ::1:6379"), ReplyAction::Moved(to("::1", 6379)));
    assert_eq!(on("ASK 3999 [fe80::2]:6379"), ReplyAction::Ask(to("fe80::2", 6379)));
}

#[test]
fn redirect_to_a_node_that_cannot_be_dialled_is_waited_out() {
    for place in ["?:6379", ":0", "host:0", "host:65536", "host:18446744073709551616", "\u{fffd}:1"]
    {
        for kind in ["MOVED", "ASK"] {
            let error = error(&format!("{kind} 3999 {place}"));
            let reply = RespValue::Error(error.clone());
            assert!(!invalidates_connection(&reply, slot()), "{error}");
            let decision = action_for_reply(reply, slot(), &asked(), &AddressTranslator::default());
            assert_eq!(decision, ReplyAction::RetryLater { error, refresh: true });
        }
        let moved = error(&format!("MOVED 3999 {place}"));
        assert_eq!(moved_target(&moved, &asked(), &AddressTranslator::default()), None);
    }
}

#[test]
fn redirects_are_translated() {
    let translation = AddressTranslator(Some(Arc::new(|_, port| ("outside".into(), port + 1))));
    let reply = RespValue::Error(error("MOVED 3999 inside:1"));
    assert_eq!(
        action_for_reply(reply, slot(), &asked(), &translation),
        ReplyAction::Moved(to("outside", 2))
    );
}

#[test]
fn garbage_for_a_redirect_is_an_error_of_its_own() {
    for text in [
        "MOVED",
        "MOVED 3999",
        "MOVED 3999 ",
        "MOVED 3999 host",
        "MOVED 3999 host:",
        "MOVED 3999 host:port",
        "MOVED 3999 host:+1",
        "MOVED 16384 host:1",
        "MOVED -1 host:1",
        "MOVED x host:1",
        "MOVED 4000 host:1",
        "MOVED 3999 host:1 more",
        "ASK",
        "ASK 3999",
        "ASK host:1 3999",
    ] {
        assert!(matches!(on(text), ReplyAction::Malformed(_)), "{text} gave {:?}", on(text));
    }
}

#[test]
fn decision_on_transient_error_is_backoff_otherwise_refused() {
    assert_eq!(on("NOSCRIPT No matching script. Please use EVAL."), ReplyAction::NoScript);
    for (text, refreshes) in [
        ("TRYAGAIN Multiple keys request during rehashing of slot", false),
        ("BUSY Redis is busy running a script.", false),
        ("CLUSTERDOWN The cluster is down", true),
        ("CLUSTERDOWN Hash slot not served", true),
        ("LOADING Redis is loading the dataset in memory", true),
        ("MASTERDOWN Link with MASTER is down", true),
        ("READONLY You can't write against a read only replica.", true),
        ("NOREPLICAS Not enough good replicas to write.", true),
    ] {
        assert_eq!(on(text), ReplyAction::RetryLater { error: error(text), refresh: refreshes });
    }
    for text in [
        "OOM command not allowed",
        "MISCONF Errors writing to the AOF file",
        "NOPERM no",
        "NOAUTH Authentication required.",
        "WRONGTYPE x",
        "LOCKTYPE x",
        "ERR x",
        "MOVEDX 1",
        "",
    ] {
        assert_eq!(on(text), ReplyAction::Rejected(error(text)));
    }
}

#[test]
fn errors_inside_a_script_of_an_old_server_are_unwrapped() {
    let wrapped = |inner: &str| {
        format!(
            "ERR Error running script (call to f_2fa2b029f72572e803ff55a09b1282699aecae6a): @user_script:1: {inner}"
        )
    };
    let readonly = "READONLY You can't write against a read only replica.";
    assert_eq!(
        on(&wrapped(&format!("@user_script: 1: -{readonly}"))),
        ReplyAction::RetryLater { error: error(readonly), refresh: true }
    );
    let oom = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(
        on(&wrapped(&format!("@user_script: 1: -{oom}"))),
        ReplyAction::Rejected(error(oom))
    );
    for inner in ["user_script:1: attempt to index a nil value", "a: -b c", "a: -"] {
        assert_eq!(on(&wrapped(inner)), ReplyAction::Rejected(error(&wrapped(inner))));
    }
}

#[test]
fn a_script_that_failed_while_it_ran_is_known() {
    for text in ["LOCKTYPE x", "OOM x", "MISCONF x", "READONLY x", "WRONGTYPE x"] {
        assert!(is_script_loaded(&RespValue::Error(error(text))), "{text}");
    }
    for text in ["MOVED 3999 a:1", "ASK 3999 a:1", "NOPERM x", "NOSCRIPT x", "ERR x"] {
        assert!(!is_script_loaded(&RespValue::Error(error(text))), "{text}");
    }
}

#[test]
fn a_reply_tells_the_time() {
    let reply = |reply| action_for_reply(reply, slot(), &asked(), &AddressTranslator::default());
    let text = |text: &'static str| RespValue::String(text.into());
    let list = RespValue::Array(vec![text("lock"), RespValue::Int(1700), RespValue::Int(0)]);
    for whole in [text("granted 1700 0 1 2"), list] {
        assert_eq!(server_ms(&whole), Some(1700));
        assert_eq!(reply(whole.clone()), ReplyAction::Done(whole));
    }
    assert_eq!(server_ms(&text("released 0 0")), Some(0));
    let odd = vec![text("1700"), text("granted x"), text("OK"), text(""), RespValue::Nil];
    let lists = [
        vec![],
        vec![RespValue::Nil],
        vec![text("lock")],
        vec![text("lock"), RespValue::Int(-1)],
        vec![RespValue::Int(1700), text("lock")],
    ];
    for other in odd.into_iter().chain(lists.map(RespValue::Array)).chain([RespValue::Int(1700)]) {
        assert!(matches!(reply(other), ReplyAction::Malformed(_)));
    }
}
