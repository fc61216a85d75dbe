//! `DELIFEQ key value` (Valkey 9.0) releases a mutex without a script. If it deletes nothing, the
//! script is called, which reports more.

use crate::backend::{Command, ReplyShape, RespValue};
use crate::router::call::Call;

const FIRST_MAJOR: u32 = 9;

/// The script's reply if the key held the value.
const RELEASED_REPLY: &str = "released 0 0";

/// Why the script must be called after all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DelIfEqMiss {
    /// The key does not hold the value.
    ValueDiffers,
    /// The server does not have the command, or the user has no right to it.
    Unsupported,
    /// The server accepts no writes now. The script does not write if it finds nothing to delete.
    ReadOnly,
}

/// Returns true if the server with this answer to `INFO server` has the command.
pub(crate) fn is_supported(info: &RespValue) -> bool {
    let RespValue::String(info) = info else {
        return false;
    };
    let info = String::from_utf8_lossy(info);
    let version = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
    let major = version.and_then(|version| version.split('.').next()?.trim().parse().ok());
    major.is_some_and(|major: u32| major >= FIRST_MAJOR)
}

/// The command for a call whose only argument is the value.
pub(crate) fn command(call: &Call) -> Command {
    Command::new().arg("DELIFEQ").arg(&call.key).append(&call.args).expecting(ReplyShape::Integer)
}

/// Converts its answer to that of the script.
pub(crate) fn parse_reply(reply: RespValue) -> Result<RespValue, DelIfEqMiss> {
    match reply {
        RespValue::Int(1) => Ok(RespValue::String(RELEASED_REPLY.into())),
        RespValue::Int(0) => Err(DelIfEqMiss::ValueDiffers),
        RespValue::Error(error) if error.code == "NOPERM" => Err(DelIfEqMiss::Unsupported),
        RespValue::Error(error) if matches!(&*error.code, "NOREPLICAS" | "MISCONF") => {
            Err(DelIfEqMiss::ReadOnly)
        }
        RespValue::Error(error) if error.message.starts_with("unknown command") => {
            Err(DelIfEqMiss::Unsupported)
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::server_error;

    #[test]
    fn delifeq_is_available_from_valkey_9_on() {
        let told = |text: &'static str| is_supported(&RespValue::String(text.into()));
        assert!(told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:a\r\n"));
        assert!(told("valkey_version:10.0.0\r\n"));
        assert!(!told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.4\r\n"));
        assert!(!told("redis_version:9.0.0\r\nrun_id:a\r\n"));
        assert!(!told("valkey_version:x\r\n"));
        assert!(!is_supported(&RespValue::Nil));
    }

    #[test]
    fn delifeq_reply_without_deletion_is_left_to_the_script() {
        let error = |text| RespValue::Error(server_error(text));
        assert_eq!(parse_reply(RespValue::Int(1)), Ok(RespValue::String("released 0 0".into())));
        assert_eq!(parse_reply(RespValue::Int(0)), Err(DelIfEqMiss::ValueDiffers));
        assert_eq!(parse_reply(error("NOPERM no permissions")), Err(DelIfEqMiss::Unsupported));
        assert_eq!(
            parse_reply(error("ERR unknown command 'DELIFEQ'")),
            Err(DelIfEqMiss::Unsupported)
        );
        for unwritable in ["NOREPLICAS Not enough good replicas", "MISCONF snapshots fail"] {
            assert_eq!(parse_reply(error(unwritable)), Err(DelIfEqMiss::ReadOnly));
        }
        for other in [error("MOVED 1 a:1"), error("WRONGTYPE x"), error("ERR x"), RespValue::Nil] {
            assert_eq!(parse_reply(other.clone()), Ok(other));
        }
    }
}
