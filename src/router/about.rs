//! What the answers of a server tell about it: its time, its name, and that it refuses the
//! credentials.

use std::sync::Arc;

use crate::node::{NodeError, Reply, ServerError, is_about_credentials};

/// How many characters of a server's run id its name has.
const NAME_LENGTH: usize = 12;

/// The time in the answer to `TIME`, in ms. Scripts read it too, so a server that refuses `TIME`
/// cannot be used.
pub(crate) fn server_time(reply: Option<Reply>) -> Result<u64, NodeError> {
    let number = |reply: &Reply| match reply {
        Reply::Text(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let ms = match &reply {
        Some(Reply::List(parts)) => match parts.as_slice() {
            [seconds, micros] => number(seconds)
                .zip(number(micros))
                .and_then(|(s, us)| s.checked_mul(1000)?.checked_add(us / 1000)),
            _ => None,
        },
        _ => None,
    };
    ms.ok_or_else(|| match reply {
        Some(Reply::Error(error)) => {
            let permanent = matches!(error.code.as_str(), "NOAUTH" | "NOPERM" | "WRONGPASS");
            let message = format!("the server refused TIME: {error}");
            NodeError { permanent, source: Some(Arc::new(error)), ..NodeError::unsent(message) }
        }
        other => NodeError::unsent(format!("malformed reply to TIME: {other:?}")),
    })
}

/// The failure for a server that does not recognise this user, or refuses the credentials. The
/// server did not carry out what it so refused.
pub(crate) fn locked_out(replies: &[Reply]) -> Option<NodeError> {
    let refusal = |reply: &Reply| match reply {
        Reply::Error(error) if is_about_credentials(&error.code) => Some(error.clone()),
        _ => None,
    };
    let mut refusals = replies.iter().filter_map(refusal);
    let first = refusals.next()?;
    let message = format!("authentication failed: {first}");
    Some(NodeError {
        maybe_sent: refusals.count() + 1 < replies.len(),
        source: Some(Arc::new(first)),
        ..NodeError::unsent(message)
    })
}

/// Fails if the server is not one that scripts can be sent to, by its first answers: `TIME`, `INFO
/// server`, `CLUSTER MYID`.
pub(crate) fn check_kind(replies: &[Reply]) -> Result<(), NodeError> {
    let [_, Reply::Text(info), id] = replies else {
        return Ok(());
    };
    let has_no_cluster = matches!(id, Reply::Error(error) if is_unknown_command(error));
    // Valkey has another name for it.
    let mode = field(info, "redis_mode:").or_else(|| field(info, "server_mode:"));
    match mode.as_deref() {
        Some("sentinel") => Err(NodeError {
            permanent: true,
            is_invalid: true,
            ..NodeError::unsent(
                "this is a sentinel, not a server; name it by `redis+sentinel://` or \
                 `Builder::sentinel`",
            )
        }),
        Some("cluster") if has_no_cluster => Err(NodeError {
            permanent: true,
            ..NodeError::unsent(
                "the node of a cluster does not know CLUSTER, which is renamed or disabled there; \
                 the client needs it to find the slots",
            )
        }),
        _ => Ok(()),
    }
}

fn is_unknown_command(error: &ServerError) -> bool {
    error.code == "ERR" && error.detail.starts_with("unknown command")
}

/// The name in the answer to `INFO server`.
pub(crate) fn server_name(reply: Option<Reply>) -> Option<Box<str>> {
    match reply {
        Some(Reply::Text(info)) => field(&info, "run_id:").as_deref().and_then(name_of),
        _ => None,
    }
}

/// The value of a field in the answer to `INFO`.
fn field(info: &[u8], name: &str) -> Option<String> {
    let info = String::from_utf8_lossy(info);
    info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// The name of the server with this run id.
pub(crate) fn name_of(run_id: &str) -> Option<Box<str>> {
    let name: String = run_id.chars().take(NAME_LENGTH).collect();
    (!name.is_empty()).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read() {
        let time = |seconds: &'static str, micros: &'static str| {
            Some(Reply::List(vec![Reply::Text(seconds.into()), Reply::Text(micros.into())]))
        };
        assert_eq!(server_time(time("1700000000", "999999")).unwrap(), 1_700_000_000_999);
        assert_eq!(server_time(time("1700000000", "1000")).unwrap(), 1_700_000_000_001);
        assert!(server_time(time("x", "1")).is_err());
        for (seconds, micros) in [
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551", "999999999999999999"),
            ("18446744073709551616", "0"),
            ("0", "18446744073709551615"),
        ] {
            let told = server_time(time(seconds, micros));
            assert_eq!(told.is_ok(), seconds == "0", "{seconds} {micros}");
        }
        assert!(server_time(None).is_err());
        let refused = |code: &str| {
            server_time(Some(Reply::Error(ServerError { code: code.into(), detail: "no".into() })))
                .unwrap_err()
        };
        assert!(refused("NOPERM").permanent);
        assert!(!refused("LOADING").permanent);
    }

    #[test]
    fn server_name_is_the_prefix_of_the_run_id_or_none() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:1\r\n";
        assert_eq!(server_name(Some(Reply::Text(info.into()))).as_deref(), Some("0123456789ab"));
        assert_eq!(server_name(Some(Reply::Text("# Server\r\n".into()))), None);
        assert_eq!(server_name(Some(Reply::Text("run_id:\r\n".into()))), None);
        assert_eq!(
            server_name(Some(Reply::Error(ServerError {
                code: "NOPERM".into(),
                detail: String::new()
            }))),
            None
        );
    }
}
