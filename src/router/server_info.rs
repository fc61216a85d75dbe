//! What the answers of a server tell about it: its time, its name, and that it refuses the
//! credentials.

use std::sync::Arc;

use crate::backend::{ConnectionError, RespValue, ServerError, is_auth_error};

/// How many characters of a server's run id its name has.
const SERVER_NAME_LEN: usize = 12;

/// The time in the answer to `TIME`, in ms. Scripts read it too, so a server that refuses `TIME`
/// cannot be used.
pub(crate) fn parse_time(reply: Option<RespValue>) -> Result<u64, ConnectionError> {
    let number = |reply: &RespValue| match reply {
        RespValue::String(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        RespValue::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let ms = match &reply {
        Some(RespValue::Array(parts)) => match parts.as_slice() {
            [seconds, micros] => number(seconds)
                .zip(number(micros))
                .and_then(|(s, us)| s.checked_mul(1000)?.checked_add(us / 1000)),
            _ => None,
        },
        _ => None,
    };
    ms.ok_or_else(|| match reply {
        Some(RespValue::Error(error)) => {
            let permanent = matches!(error.code.as_str(), "NOAUTH" | "NOPERM" | "WRONGPASS");
            let message = format!("the server refused TIME: {error}");
            ConnectionError {
                is_permanent: permanent,
                source: Some(Arc::new(error)),
                ..ConnectionError::not_sent(message)
            }
        }
        other => ConnectionError::not_sent(format!("malformed reply to TIME: {other:?}")),
    })
}

/// The failure for a server that does not recognise this user, or refuses the credentials. The
/// server did not carry out what it so refused.
pub(crate) fn auth_error(replies: &[RespValue]) -> Option<ConnectionError> {
    let refusal = |reply: &RespValue| match reply {
        RespValue::Error(error) if is_auth_error(&error.code) => Some(error.clone()),
        _ => None,
    };
    let mut refusals = replies.iter().filter_map(refusal);
    let first = refusals.next()?;
    let message = format!("authentication failed: {first}");
    Some(ConnectionError {
        maybe_sent: refusals.count() + 1 < replies.len(),
        source: Some(Arc::new(first)),
        ..ConnectionError::not_sent(message)
    })
}

/// Fails if the server is not one that scripts can be sent to, by its first answers: `TIME`, `INFO
/// server`, `CLUSTER MYID`.
pub(crate) fn check_kind(replies: &[RespValue]) -> Result<(), ConnectionError> {
    let [_, RespValue::String(info), id] = replies else {
        return Ok(());
    };
    let has_no_cluster = matches!(id, RespValue::Error(error) if is_unknown_command(error));
    // Valkey has another name for it.
    let mode = field(info, "redis_mode:").or_else(|| field(info, "server_mode:"));
    match mode.as_deref() {
        Some("sentinel") => Err(ConnectionError {
            is_permanent: true,
            is_invalid: true,
            ..ConnectionError::not_sent(
                "this is a sentinel, not a server; name it by `redis+sentinel://` or \
                 `Builder::sentinel`",
            )
        }),
        Some("cluster") if has_no_cluster => Err(ConnectionError {
            is_permanent: true,
            ..ConnectionError::not_sent(
                "the node of a cluster does not know CLUSTER, which is renamed or disabled there; \
                 the client needs it to find the slots",
            )
        }),
        _ => Ok(()),
    }
}

fn is_unknown_command(error: &ServerError) -> bool {
    error.code == "ERR" && error.message.starts_with("unknown command")
}

/// The name in the answer to `INFO server`.
pub(crate) fn parse_server_name(reply: Option<RespValue>) -> Option<Box<str>> {
    match reply {
        Some(RespValue::String(info)) => {
            field(&info, "run_id:").as_deref().and_then(shorten_run_id)
        }
        _ => None,
    }
}

/// The value of a field in the answer to `INFO`.
fn field(info: &[u8], name: &str) -> Option<String> {
    let info = String::from_utf8_lossy(info);
    info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// The name of the server with this run id.
pub(crate) fn shorten_run_id(run_id: &str) -> Option<Box<str>> {
    let name: String = run_id.chars().take(SERVER_NAME_LEN).collect();
    (!name.is_empty()).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read() {
        let time = |seconds: &'static str, micros: &'static str| {
            Some(RespValue::Array(vec![
                RespValue::String(seconds.into()),
                RespValue::String(micros.into()),
            ]))
        };
        assert_eq!(parse_time(time("1700000000", "999999")).unwrap(), 1_700_000_000_999);
        assert_eq!(parse_time(time("1700000000", "1000")).unwrap(), 1_700_000_000_001);
        assert!(parse_time(time("x", "1")).is_err());
        for (seconds, micros) in [
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551", "999999999999999999"),
            ("18446744073709551616", "0"),
            ("0", "18446744073709551615"),
        ] {
            let told = parse_time(time(seconds, micros));
            assert_eq!(told.is_ok(), seconds == "0", "{seconds} {micros}");
        }
        assert!(parse_time(None).is_err());
        let refused = |code: &str| {
            parse_time(Some(RespValue::Error(ServerError {
                code: code.into(),
                message: "no".into(),
            })))
            .unwrap_err()
        };
        assert!(refused("NOPERM").is_permanent);
        assert!(!refused("LOADING").is_permanent);
    }

    #[test]
    fn server_name_is_the_prefix_of_the_run_id_or_none() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\ntcp_port:1\r\n";
        assert_eq!(
            parse_server_name(Some(RespValue::String(info.into()))).as_deref(),
            Some("0123456789ab")
        );
        assert_eq!(parse_server_name(Some(RespValue::String("# Server\r\n".into()))), None);
        assert_eq!(parse_server_name(Some(RespValue::String("run_id:\r\n".into()))), None);
        assert_eq!(
            parse_server_name(Some(RespValue::Error(ServerError {
                code: "NOPERM".into(),
                message: String::new()
            }))),
            None
        );
    }
}
