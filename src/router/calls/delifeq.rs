//! `DELIFEQ key value` (Valkey 9.0) releases a mutex without a script. If it deletes nothing, the
//! script is called, which reports more.

use rwlease_core::protocol::Call;
use rwlease_core::resp::{Command, ReplyShape, RespValue};

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

/// The command for a call whose only argument is the value.
pub(crate) fn command(call: &Call) -> Command {
    Command::new().arg("DELIFEQ").arg(&call.key).append(&call.args).expecting(ReplyShape::Integer)
}

/// Converts the reply to the reply of the script.
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
mod tests;
