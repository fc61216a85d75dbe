//! Maps each answer of a server to the decision that follows.

use crate::node::{Address, Reply, ServerError, server_ms};
use crate::router::telemetry::Attempted;
use crate::router::translation::Translation;
use crate::slot::Slot;

/// What to do after an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    /// The script ran, and this is its reply.
    Done(Reply),
    /// The slot belongs to that node: send the call there, and update the map.
    Moved(Address),
    /// The slot migrates and the key is not here: send this one attempt to that node.
    Ask(Address),
    /// The server does not know the script: send its text there.
    NoScript,
    /// The slot or the server cannot serve the call at the moment. If `refresh` is set, another
    /// node may be able to.
    Backoff { error: ServerError, refresh: bool },
    /// The server refused the call.
    Refused(ServerError),
    /// The reply does not follow the protocol.
    Garbled(String),
}

impl Decision {
    /// How an attempt with this answer is counted.
    pub(crate) fn outcome(&self) -> Attempted {
        match self {
            Decision::Done(_) => Attempted::Answered,
            Decision::Moved(_) => Attempted::Moved,
            Decision::Ask(_) => Attempted::Ask,
            Decision::NoScript => Attempted::NoScript,
            Decision::Backoff { .. } => Attempted::Later,
            Decision::Refused(_) => Attempted::Refused,
            Decision::Garbled(_) => Attempted::Garbled,
        }
    }
}

/// Decides what to do after `reply`, which the server at `asked` gave to a call of a script on a
/// key of `slot`.
pub(crate) fn decide(
    reply: Reply,
    slot: Slot,
    asked: &Address,
    translation: &Translation,
) -> Decision {
    match reply {
        Reply::Error(error) => decide_error(error, slot, asked, translation),
        reply if server_ms(&reply).is_some() => Decision::Done(reply),
        reply => Decision::Garbled(format!("unexpected reply: {reply:?} to a script")),
    }
}

/// The answer to a call that was sent after `ASKING`. A server that refuses `ASKING` redirects the
/// call, and the refusal is the reason.
pub(crate) fn after_asking(asking: Reply, answer: Reply) -> Reply {
    match (&asking, &answer) {
        (Reply::Error(_), Reply::Error(error)) if error.code == "MOVED" => asking,
        _ => answer,
    }
}

/// Returns true if the connection must be replaced after this answer to a script on a key of
/// `slot`. The server at the other end may no longer be the one that the address stands for, or the
/// replies may be out of step with the calls.
pub(crate) fn spoils(reply: &Reply, slot: Slot) -> bool {
    match reply {
        Reply::Error(error) => match code(error) {
            "READONLY" | "NOAUTH" => true,
            "MOVED" | "ASK" => Redirect::read(error).is_none_or(|redirect| redirect.slot != slot),
            _ => false,
        },
        reply => server_ms(reply).is_none(),
    }
}

/// Returns true if the server knows the script whose text was sent to it.
pub(crate) fn has_run(reply: &Reply) -> bool {
    match reply {
        Reply::Error(error) => {
            let code = code(error);
            code.starts_with("LOCK")
                || matches!(code, "OOM" | "READONLY" | "NOREPLICAS" | "WRONGTYPE")
        }
        reply => server_ms(reply).is_some(),
    }
}

fn decide_error(
    error: ServerError,
    slot: Slot,
    asked: &Address,
    translation: &Translation,
) -> Decision {
    let error = unwrapped(error);
    match error.code.as_str() {
        "MOVED" | "ASK" => {
            let Some(redirect) = Redirect::read(&error).filter(|redirect| redirect.slot == slot)
            else {
                return Decision::Garbled(format!("malformed redirect for slot {slot}: {error}"));
            };
            match redirect.place {
                Some((host, port)) if error.code == "MOVED" => {
                    Decision::Moved(translation.address(host, port, asked))
                }
                Some((host, port)) => Decision::Ask(translation.address(host, port, asked)),
                // The map has the node's address, or another node will take over.
                None => Decision::Backoff { error, refresh: true },
            }
        }
        "NOSCRIPT" => Decision::NoScript,
        // Temporary: the keys are partly migrated, another script runs, or replicas are missing.
        "TRYAGAIN" | "BUSY" | "NOREPLICAS" => Decision::Backoff { error, refresh: false },
        // A failover is under way, the node is starting, or it has become a replica.
        "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY" => {
            Decision::Backoff { error, refresh: true }
        }
        _ => Decision::Refused(error),
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
        let mut words = error.detail.split_ascii_whitespace();
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
pub(crate) fn moved_to(
    error: &ServerError,
    asked: &Address,
    translation: &Translation,
) -> Option<(Slot, Address)> {
    let Redirect { slot, place } = Redirect::read(error).filter(|_| error.code == "MOVED")?;
    place.map(|(host, port)| (slot, translation.address(host, port, asked)))
}

/// Servers before 7.0 wrap the error of a command in a script: `ERR Error running script (...): ...
/// -OOM command not allowed`. This returns the inner error, with the code that later versions give
/// it.
fn unwrapped(error: ServerError) -> ServerError {
    match inner(&error) {
        Some((code, detail)) => ServerError { code: code.into(), detail: detail.trim_end().into() },
        None => error,
    }
}

/// The code of an error, or of the error that it wraps.
fn code(error: &ServerError) -> &str {
    inner(error).map_or(&error.code, |(code, _)| code)
}

fn inner(error: &ServerError) -> Option<(&str, &str)> {
    let wraps = error.code == "ERR" && error.detail.starts_with("Error running script");
    let inner = error.detail.split(": -").nth(1).filter(|_| wraps)?;
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
        ServerError { code: code.into(), detail: detail.into() }
    }

    fn on(text: &str) -> Decision {
        decide(Reply::Error(error(text)), slot(), &asked(), &Translation::default())
    }

    fn to(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn redirects() {
        assert_eq!(on("MOVED 3999 127.0.0.1:6381"), Decision::Moved(to("127.0.0.1", 6381)));
        assert_eq!(on("ASK 3999 node-1.example:6381"), Decision::Ask(to("node-1.example", 6381)));
        assert_eq!(on("MOVED 3999 :6379"), Decision::Moved(to("asked", 6379)), "the same host");
        assert_eq!(on("MOVED 3999 ::1:6379"), Decision::Moved(to("::1", 6379)));
        assert_eq!(on("ASK 3999 [fe80::2]:6379"), Decision::Ask(to("fe80::2", 6379)));
    }

    #[test]
    fn redirect_to_a_node_that_cannot_be_dialled_is_waited_out() {
        for place in
            ["?:6379", ":0", "host:0", "host:65536", "host:18446744073709551616", "\u{fffd}:1"]
        {
            for kind in ["MOVED", "ASK"] {
                let error = error(&format!("{kind} 3999 {place}"));
                let reply = Reply::Error(error.clone());
                assert!(!spoils(&reply, slot()), "{error}");
                let decision = decide(reply, slot(), &asked(), &Translation::default());
                assert_eq!(decision, Decision::Backoff { error, refresh: true });
            }
            let moved = error(&format!("MOVED 3999 {place}"));
            assert_eq!(moved_to(&moved, &asked(), &Translation::default()), None);
        }
    }

    #[test]
    fn redirects_are_translated() {
        let translation = Translation(Some(Arc::new(|_, port| ("outside".into(), port + 1))));
        let reply = Reply::Error(error("MOVED 3999 inside:1"));
        assert_eq!(
            decide(reply, slot(), &asked(), &translation),
            Decision::Moved(to("outside", 2))
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
            assert!(matches!(on(text), Decision::Garbled(_)), "{text} gave {:?}", on(text));
        }
    }

    #[test]
    fn decision_on_transient_error_is_backoff_otherwise_refused() {
        assert_eq!(on("NOSCRIPT No matching script. Please use EVAL."), Decision::NoScript);
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
            assert_eq!(on(text), Decision::Backoff { error: error(text), refresh: refreshes });
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
            assert_eq!(on(text), Decision::Refused(error(text)));
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
            Decision::Backoff { error: error(readonly), refresh: true }
        );
        let oom = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(
            on(&wrapped(&format!("@user_script: 1: -{oom}"))),
            Decision::Refused(error(oom))
        );
        for inner in ["user_script:1: attempt to index a nil value", "a: -b c", "a: -"] {
            assert_eq!(on(&wrapped(inner)), Decision::Refused(error(&wrapped(inner))));
        }
    }

    #[test]
    fn reply_readonly_noauth_or_malformed_spoils_the_connection() {
        let ran = |ms| Reply::Text(format!("granted {ms} 0").into());
        let readonly =
            "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY x";
        for text in ["READONLY x", "NOAUTH x", "MOVED", "MOVED 1 a:1", "ASK x", readonly] {
            assert!(spoils(&Reply::Error(error(text)), slot()), "{text}");
        }
        for text in
            ["MOVED 3999 a:1", "ASK 3999 :1", "NOSCRIPT x", "CLUSTERDOWN x", "OOM x", "ERR x"]
        {
            assert!(!spoils(&Reply::Error(error(text)), slot()), "{text}");
        }
        assert!(!spoils(&ran(1700), slot()));
        for foreign in [Reply::Nil, Reply::Text("OK".into()), Reply::List(vec![]), ran(-1)] {
            assert!(spoils(&foreign, slot()), "{foreign:?}");
        }
    }

    #[test]
    fn a_script_that_failed_while_it_ran_is_known() {
        for text in ["LOCKFOREIGN x", "OOM x", "READONLY x", "WRONGTYPE x"] {
            assert!(has_run(&Reply::Error(error(text))), "{text}");
        }
        for text in ["MOVED 3999 a:1", "ASK 3999 a:1", "NOPERM x", "NOSCRIPT x", "ERR x"] {
            assert!(!has_run(&Reply::Error(error(text))), "{text}");
        }
    }

    #[test]
    fn a_reply_tells_the_time() {
        let reply = |reply| decide(reply, slot(), &asked(), &Translation::default());
        let text = |text: &'static str| Reply::Text(text.into());
        let list = Reply::List(vec![text("lock"), Reply::Int(1700), Reply::Int(0)]);
        for whole in [text("granted 1700 0 1 2"), list] {
            assert_eq!(server_ms(&whole), Some(1700));
            assert_eq!(reply(whole.clone()), Decision::Done(whole));
        }
        assert_eq!(server_ms(&text("released 0 0")), Some(0));
        let odd = vec![text("1700"), text("granted x"), text("OK"), text(""), Reply::Nil];
        let lists = [
            vec![],
            vec![Reply::Nil],
            vec![text("lock")],
            vec![text("lock"), Reply::Int(-1)],
            vec![Reply::Int(1700), text("lock")],
        ];
        for other in odd.into_iter().chain(lists.map(Reply::List)).chain([Reply::Int(1700)]) {
            assert!(matches!(reply(other), Decision::Garbled(_)));
        }
    }

    #[test]
    fn a_refused_subscription_names_the_owner() {
        let translation = Translation::default();
        let moved = error("MOVED 3999 :6381");
        assert_eq!(moved_to(&moved, &asked(), &translation), Some((slot(), to("asked", 6381))));
        assert_eq!(moved_to(&error("ASK 3999 :6381"), &asked(), &translation), None);
        assert_eq!(moved_to(&error("MOVED x"), &asked(), &translation), None);
    }
}
