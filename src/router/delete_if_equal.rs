//! `DELIFEQ key value` (Valkey 9.0) releases a mutex without a script. If it deletes nothing, the
//! script is called, which reports more.

use crate::node::{Command, Reply, ReplyShape};
use crate::router::call::Call;

const FIRST_MAJOR: u32 = 9;

/// The script's reply if the key held the value.
const RELEASED: &str = "released 0 0";

/// Why the script must be called after all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Undone {
    /// The key does not hold the value.
    Different,
    /// The server does not have the command, or the user has no right to it.
    Refused,
    /// The server accepts no writes now. The script does not write if it finds nothing to delete.
    Unwritable,
}

/// Returns true if the server with this answer to `INFO server` has the command.
pub(crate) fn has_it(info: &Reply) -> bool {
    let Reply::Text(info) = info else {
        return false;
    };
    let info = String::from_utf8_lossy(info);
    let version = info.lines().find_map(|line| line.strip_prefix("valkey_version:"));
    let major = version.and_then(|version| version.split('.').next()?.trim().parse().ok());
    major.is_some_and(|major: u32| major >= FIRST_MAJOR)
}

/// The command for a call whose only argument is the value.
pub(crate) fn command(call: &Call) -> Command {
    Command::new().word("DELIFEQ").word(&call.key).words(&call.args).expecting(ReplyShape::Integer)
}

/// Converts its answer to that of the script.
pub(crate) fn read(reply: Reply) -> Result<Reply, Undone> {
    match reply {
        Reply::Int(1) => Ok(Reply::Text(RELEASED.into())),
        Reply::Int(0) => Err(Undone::Different),
        Reply::Error(error) if error.code == "NOPERM" => Err(Undone::Refused),
        Reply::Error(error) if matches!(&*error.code, "NOREPLICAS" | "MISCONF") => {
            Err(Undone::Unwritable)
        }
        Reply::Error(error) if error.detail.starts_with("unknown command") => Err(Undone::Refused),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fake::server_error;

    #[test]
    fn delifeq_is_available_from_valkey_9_on() {
        let told = |text: &'static str| has_it(&Reply::Text(text.into()));
        assert!(told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:a\r\n"));
        assert!(told("valkey_version:10.0.0\r\n"));
        assert!(!told("# Server\r\nredis_version:7.2.4\r\nvalkey_version:8.1.4\r\n"));
        assert!(!told("redis_version:9.0.0\r\nrun_id:a\r\n"));
        assert!(!told("valkey_version:x\r\n"));
        assert!(!has_it(&Reply::Nil));
    }

    #[test]
    fn delifeq_reply_without_deletion_is_left_to_the_script() {
        let error = |text| Reply::Error(server_error(text));
        assert_eq!(read(Reply::Int(1)), Ok(Reply::Text("released 0 0".into())));
        assert_eq!(read(Reply::Int(0)), Err(Undone::Different));
        assert_eq!(read(error("NOPERM no permissions")), Err(Undone::Refused));
        assert_eq!(read(error("ERR unknown command 'DELIFEQ'")), Err(Undone::Refused));
        for unwritable in ["NOREPLICAS Not enough good replicas", "MISCONF snapshots fail"] {
            assert_eq!(read(error(unwritable)), Err(Undone::Unwritable));
        }
        for other in [error("MOVED 1 a:1"), error("WRONGTYPE x"), error("ERR x"), Reply::Nil] {
            assert_eq!(read(other.clone()), Ok(other));
        }
    }
}
