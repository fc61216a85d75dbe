//! Maps each answer of a server to the decision that follows.

use crate::backend::{Address, RespValue, ServerError, server_ms};
use crate::router::address_translation::AddressTranslator;
use crate::router::telemetry::AttemptResult;
use crate::slot::Slot;

/// What to do after an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum ReplyAction {
    /// The script ran, and this is its reply.
    Done(RespValue),
    /// The slot belongs to that node: send the call there, and update the map.
    Moved(Address),
    /// The slot migrates and the key is not here: send this one attempt to that node.
    Ask(Address),
    /// The server does not know the script: send its text there.
    NoScript,
    /// The slot or the server cannot serve the call at the moment. If `refresh` is set, another
    /// node may be able to.
    RetryLater { error: ServerError, refresh: bool },
    /// The server refused the call.
    Rejected(ServerError),
    /// The reply does not follow the protocol.
    Malformed(String),
}

impl ReplyAction {
    /// How an attempt with this answer is counted.
    pub(crate) fn outcome(&self) -> AttemptResult {
        match self {
            ReplyAction::Done(_) => AttemptResult::Replied,
            ReplyAction::Moved(_) => AttemptResult::Moved,
            ReplyAction::Ask(_) => AttemptResult::Ask,
            ReplyAction::NoScript => AttemptResult::NoScript,
            ReplyAction::RetryLater { .. } => AttemptResult::Retryable,
            ReplyAction::Rejected(_) => AttemptResult::Rejected,
            ReplyAction::Malformed(_) => AttemptResult::Malformed,
        }
    }
}

/// Decides what to do after `reply`, which the server at `asked` gave to a call of a script on a
/// key of `slot`.
pub(crate) fn action_for_reply(
    reply: RespValue,
    slot: Slot,
    asked: &Address,
    translation: &AddressTranslator,
) -> ReplyAction {
    match reply {
        RespValue::Error(error) => action_for_error(error, slot, asked, translation),
        reply if server_ms(&reply).is_some() => ReplyAction::Done(reply),
        reply => ReplyAction::Malformed(format!("unexpected reply: {reply:?} to a script")),
    }
}

/// The answer to a call that was sent after `ASKING`. A server that refuses `ASKING` redirects the
/// call, and the refusal is the reason.
pub(crate) fn merge_asking_reply(asking: RespValue, answer: RespValue) -> RespValue {
    match (&asking, &answer) {
        (RespValue::Error(_), RespValue::Error(error)) if error.code == "MOVED" => asking,
        _ => answer,
    }
}

/// Returns true if the connection must be replaced after this answer to a script on a key of
/// `slot`. The server at the other end may no longer be the one that the address stands for, or the
/// replies may be out of step with the calls.
pub(crate) fn invalidates_connection(reply: &RespValue, slot: Slot) -> bool {
    match reply {
        RespValue::Error(error) => match code(error) {
            "READONLY" | "NOAUTH" => true,
            "MOVED" | "ASK" => Redirect::read(error).is_none_or(|redirect| redirect.slot != slot),
            _ => false,
        },
        reply => server_ms(reply).is_none(),
    }
}

/// Returns true if the server knows the script whose text was sent to it.
pub(crate) fn is_script_loaded(reply: &RespValue) -> bool {
    match reply {
        RespValue::Error(error) => {
            let code = code(error);
            code.starts_with("LOCK")
                || matches!(code, "OOM" | "READONLY" | "NOREPLICAS" | "WRONGTYPE")
        }
        reply => server_ms(reply).is_some(),
    }
}

fn action_for_error(
    error: ServerError,
    slot: Slot,
    asked: &Address,
    translation: &AddressTranslator,
) -> ReplyAction {
    let error = unwrap_script_error(error);
    match error.code.as_str() {
        "MOVED" | "ASK" => {
            let Some(redirect) = Redirect::read(&error).filter(|redirect| redirect.slot == slot)
            else {
                return ReplyAction::Malformed(format!(
                    "malformed redirect for slot {slot}: {error}"
                ));
            };
            match redirect.place {
                Some((host, port)) if error.code == "MOVED" => {
                    ReplyAction::Moved(translation.address(host, port, asked))
                }
                Some((host, port)) => ReplyAction::Ask(translation.address(host, port, asked)),
                // The map has the node's address, or another node will take over.
                None => ReplyAction::RetryLater { error, refresh: true },
            }
        }
        "NOSCRIPT" => ReplyAction::NoScript,
        // Temporary: the keys are partly migrated, another script runs, or replicas are missing.
        "TRYAGAIN" | "BUSY" | "NOREPLICAS" => ReplyAction::RetryLater { error, refresh: false },
        // A failover is under way, the node is starting, or it has become a replica.
        "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY" => {
            ReplyAction::RetryLater { error, refresh: true }
        }
        _ => ReplyAction::Rejected(error),
    }
}

/// The detail of a `MOVED` or `ASK`: `<slot> <host>:<port>`.
struct Redirect<'a> {
    slot: Slot,
    /// Host and port. An empty host means that of the server that answered. `None` if the node
    /// cannot be dialled by them: it should announce a host name and has none (`?`), or the server
    /// does not know its address (port 0).
    place: Option<(&'a str, u16)>,
}

impl Redirect<'_> {
    fn read(error: &ServerError) -> Option<Redirect<'_>> {
        let mut words = error.message.split_ascii_whitespace();
        let slot = words.next()?.parse().ok().and_then(Slot::new)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let is_number = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number || words.next().is_some() {
            return None;
        }
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0);
        let is_host = host != "?" && !host.contains(char::REPLACEMENT_CHARACTER);
        Some(Redirect { slot, place: port.filter(|_| is_host).map(|port| (host, port)) })
    }
}

/// The master that a `MOVED` error names, for any slot.
pub(crate) fn moved_target(
    error: &ServerError,
    asked: &Address,
    translation: &AddressTranslator,
) -> Option<(Slot, Address)> {
    let Redirect { slot, place } = Redirect::read(error).filter(|_| error.code == "MOVED")?;
    place.map(|(host, port)| (slot, translation.address(host, port, asked)))
}

/// Servers before 7.0 wrap the error of a command in a script: `ERR Error running script (...): ...
/// -OOM command not allowed`. This returns the inner error, with the code that later versions give
/// it.
fn unwrap_script_error(error: ServerError) -> ServerError {
    match wrapped_error(&error) {
        Some((code, detail)) => {
            ServerError { code: code.into(), message: detail.trim_end().into() }
        }
        None => error,
    }
}

/// The code of an error, or of the error that it wraps.
fn code(error: &ServerError) -> &str {
    wrapped_error(error).map_or(&error.code, |(code, _)| code)
}

fn wrapped_error(error: &ServerError) -> Option<(&str, &str)> {
    let wraps = error.code == "ERR" && error.message.starts_with("Error running script");
    let inner = error.message.split(": -").nth(1).filter(|_| wraps)?;
    let is_code = |(code, _): &(&str, &str)| {
        !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    inner.split_once(' ').filter(is_code)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn asked() -> Address {
        Address { host: "asked".into(), port: 7000 }
    }

    fn slot() -> Slot {
        Slot::new(3999).unwrap()
    }

    fn error(text: &str) -> ServerError {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        ServerError { code: code.into(), message: detail.into() }
    }

    fn on(text: &str) -> ReplyAction {
        action_for_reply(
            RespValue::Error(error(text)),
            slot(),
            &asked(),
            &AddressTranslator::default(),
        )
    }

    fn to(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn redirects() {
        assert_eq!(on("MOVED 3999 127.0.0.1:6381"), ReplyAction::Moved(to("127.0.0.1", 6381)));
        assert_eq!(
            on("ASK 3999 node-1.example:6381"),
            ReplyAction::Ask(to("node-1.example", 6381))
        );
        assert_eq!(on("MOVED 3999 :6379"), ReplyAction::Moved(to("asked", 6379)), "the same host");
        assert_eq!(on("MOVED 3999 ::1:6379"), ReplyAction::Moved(to("::1", 6379)));
        assert_eq!(on("ASK 3999 [fe80::2]:6379"), ReplyAction::Ask(to("fe80::2", 6379)));
    }

    #[test]
    fn redirect_to_a_node_that_cannot_be_dialled_is_waited_out() {
        for place in
            ["?:6379", ":0", "host:0", "host:65536", "host:18446744073709551616", "\u{fffd}:1"]
        {
            for kind in ["MOVED", "ASK"] {
                let error = error(&format!("{kind} 3999 {place}"));
                let reply = RespValue::Error(error.clone());
                assert!(!invalidates_connection(&reply, slot()), "{error}");
                let decision =
                    action_for_reply(reply, slot(), &asked(), &AddressTranslator::default());
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
            ("NOREPLICAS Not enough good replicas to write.", false),
        ] {
            assert_eq!(
                on(text),
                ReplyAction::RetryLater { error: error(text), refresh: refreshes }
            );
        }
        for text in [
            "OOM command not allowed",
            "NOPERM no",
            "NOAUTH Authentication required.",
            "WRONGTYPE x",
            "LOCKFOREIGN x",
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
    fn reply_readonly_noauth_or_malformed_spoils_the_connection() {
        let ran = |ms| RespValue::String(format!("granted {ms} 0").into());
        let readonly =
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY x";
        for text in ["READONLY x", "NOAUTH x", "MOVED", "MOVED 1 a:1", "ASK x", readonly] {
            assert!(invalidates_connection(&RespValue::Error(error(text)), slot()), "{text}");
        }
        for text in
            ["MOVED 3999 a:1", "ASK 3999 :1", "NOSCRIPT x", "CLUSTERDOWN x", "OOM x", "ERR x"]
        {
            assert!(!invalidates_connection(&RespValue::Error(error(text)), slot()), "{text}");
        }
        assert!(!invalidates_connection(&ran(1700), slot()));
        for foreign in
            [RespValue::Nil, RespValue::String("OK".into()), RespValue::Array(vec![]), ran(-1)]
        {
            assert!(invalidates_connection(&foreign, slot()), "{foreign:?}");
        }
    }

    #[test]
    fn a_script_that_failed_while_it_ran_is_known() {
        for text in ["LOCKFOREIGN x", "OOM x", "READONLY x", "WRONGTYPE x"] {
            assert!(is_script_loaded(&RespValue::Error(error(text))), "{text}");
        }
        for text in ["MOVED 3999 a:1", "ASK 3999 a:1", "NOPERM x", "NOSCRIPT x", "ERR x"] {
            assert!(!is_script_loaded(&RespValue::Error(error(text))), "{text}");
        }
    }

    #[test]
    fn a_reply_tells_the_time() {
        let reply =
            |reply| action_for_reply(reply, slot(), &asked(), &AddressTranslator::default());
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
        for other in
            odd.into_iter().chain(lists.map(RespValue::Array)).chain([RespValue::Int(1700)])
        {
            assert!(matches!(reply(other), ReplyAction::Malformed(_)));
        }
    }

    #[test]
    fn a_refused_subscription_names_the_owner() {
        let translation = AddressTranslator::default();
        let moved = error("MOVED 3999 :6381");
        assert_eq!(moved_target(&moved, &asked(), &translation), Some((slot(), to("asked", 6381))));
        assert_eq!(moved_target(&error("ASK 3999 :6381"), &asked(), &translation), None);
        assert_eq!(moved_target(&error("MOVED x"), &asked(), &translation), None);
    }
}
