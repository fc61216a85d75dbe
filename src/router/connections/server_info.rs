//! What the answers of a server tell about it: its time, its name, and that it refuses the
//! credentials.

use std::sync::Arc;

use rwlease_core::resp::{RespValue, ServerError};

use crate::backend::{AUTHENTICATION_FAILED, ConnectionError, is_auth_error};

/// The identity that a server reports when a connection is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerIdentity {
    ClusterNode(Box<str>),
    /// A server without cluster mode.
    Standalone,
    /// The user may not send the query, or the server does not know it.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    pub(crate) name: Box<str>,
    /// The address of the host name at which it was found; `None` if that is unknown.
    pub(crate) resolved_addr: Option<Arc<str>>,
}

/// The first version of Valkey that has `DELIFEQ`.
const FIRST_MAJOR_WITH_DELIFEQ: u32 = 9;

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
            let message = "the server rejected TIME".to_owned();
            ConnectionError {
                is_permanent: permanent,
                ..ConnectionError::not_sent(message).with_source(error)
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
    Some(ConnectionError {
        maybe_sent: refusals.count() + 1 < replies.len(),
        ..ConnectionError::not_sent(AUTHENTICATION_FAILED).with_source(first)
    })
}

impl ServerIdentity {
    /// The identity in the answer to `CLUSTER MYID`. A server that is starting or busy does not
    /// show its identity, so it is queried again.
    pub(crate) fn from_reply(reply: Option<RespValue>) -> Result<ServerIdentity, ConnectionError> {
        Ok(match reply {
            Some(RespValue::String(id)) if !id.is_empty() => {
                ServerIdentity::ClusterNode(String::from_utf8_lossy(&id).into())
            }
            Some(RespValue::Error(error)) if is_standalone_error(&error) => {
                ServerIdentity::Standalone
            }
            Some(RespValue::Error(error))
                if matches!(error.code.as_str(), "LOADING" | "BUSY" | "MASTERDOWN") =>
            {
                return Err(ConnectionError::not_sent("the server is not ready").with_source(error));
            }
            _ => ServerIdentity::Unknown,
        })
    }
}

const DISABLED: &str = "cluster support disabled";

/// Returns true if the server is no cluster node: it serves all slots.
pub(crate) fn is_standalone_error(error: &ServerError) -> bool {
    error.code == "ERR"
        && (error.message.contains(DISABLED) || error.message.starts_with("unknown command"))
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
                "this is a sentinel, not a server; use `redis+sentinel://` or `ClientBuilder::sentinel`",
            )
        }),
        Some("cluster") if has_no_cluster => Err(ConnectionError {
            is_permanent: true,
            ..ConnectionError::not_sent(
                "the node of a cluster has no command CLUSTER, which finds the slots; it is renamed \
                 or disabled there",
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

/// Returns true if the server with this answer to `INFO server` has `DELIFEQ`.
pub(crate) fn supports_delifeq(reply: &RespValue) -> bool {
    let RespValue::String(info) = reply else {
        return false;
    };
    let version = field(info, "valkey_version:");
    let major = version.and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= FIRST_MAJOR_WITH_DELIFEQ)
}

/// The text of a reply; `None` if it is something else.
pub(crate) fn text(reply: &RespValue) -> Option<&str> {
    match reply {
        RespValue::String(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// The value of a field in the answer to `INFO` or `CLUSTER INFO`. The name ends with a colon.
pub(crate) fn field(info: &[u8], name: &str) -> Option<String> {
    let info = String::from_utf8_lossy(info);
    info.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// The name of the server with this run id.
pub(crate) fn shorten_run_id(run_id: &str) -> Option<Box<str>> {
    let name: String = run_id.chars().take(SERVER_NAME_LEN).collect();
    (!name.is_empty()).then(|| name.into())
}

#[cfg(test)]
mod tests;
