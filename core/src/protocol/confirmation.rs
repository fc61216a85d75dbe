//! Confirmations of writes by replicas and disks: `WAIT` and `WAITAOF`.

use std::time::Duration;

use crate::resp::{Command, ReplyShape, RespValue, ServerError};

/// How long `WAIT` waits for replicas.
const WAIT_TIMEOUT: Duration = Duration::from_millis(250);

/// How long `WAITAOF` waits for disks. A server with `appendfsync everysec` writes its file to disk
/// once a second.
const FSYNC_TIMEOUT: Duration = Duration::from_secs(2);

/// Which servers must have a grant on disk before the lock counts as held, set by
/// `Acquire::fsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fsync {
    /// None: memory is enough.
    #[default]
    None,
    /// The master. The lock survives a restart of the master, also after a power failure.
    Master,
    /// The replicas that `min_replicas` counts. For masters without
    /// an append-only file.
    Replicas,
    /// The master and the replicas that `min_replicas` counts.
    All,
}

/// The replicas and disks that must have a write before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Confirmation {
    /// The number of replicas.
    pub replicas: u32,
    pub fsync: Fsync,
}

/// Why a write does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmationError {
    #[error("{confirmed} of the {wanted} requested replicas confirmed the write in time")]
    TooFewReplicas { confirmed: u32, wanted: u32 },
    #[error("the master did not write its append-only file to disk in time")]
    MasterNotOnDisk,
    /// The server refuses `WAIT` or `WAITAOF`, and will refuse it again.
    #[error("{0}")]
    Refused(ServerError),
}

/// Whether a write counts.
pub type ConfirmationResult = Result<(), ConfirmationError>;

impl Confirmation {
    /// Whether the master's memory is enough.
    pub fn is_empty(self) -> bool {
        self == Confirmation::default()
    }

    /// `WAIT` goes before `WAITAOF` too. Otherwise a replica answers before it writes its file to
    /// disk, and reports the rest a second later.
    fn waits(self) -> bool {
        self.replicas > 0
    }

    fn waits_for_disks(self) -> bool {
        self.fsync != Fsync::None
    }

    /// How long a confirmation may take at most.
    pub fn timeout(self) -> Duration {
        let wait = if self.waits() { WAIT_TIMEOUT } else { Duration::ZERO };
        wait + if self.waits_for_disks() { FSYNC_TIMEOUT } else { Duration::ZERO }
    }

    /// The commands that wait, behind the writes on the same connection.
    pub fn commands(self) -> Vec<Command> {
        let replicas = u64::from(self.replicas);
        let wait = || {
            let wait = Command::new().arg("WAIT").arg_u64(replicas);
            wait.arg_u64(WAIT_TIMEOUT.as_millis() as u64).expecting(ReplyShape::Integer)
        };
        let wait_aof = || {
            let (master, replicas) = match self.fsync {
                Fsync::None | Fsync::Replicas => (0, replicas),
                Fsync::Master => (1, 0),
                Fsync::All => (1, replicas),
            };
            let wait = Command::new().arg("WAITAOF").arg_u64(master).arg_u64(replicas);
            wait.arg_u64(FSYNC_TIMEOUT.as_millis() as u64).expecting(ReplyShape::List)
        };
        let wait = self.waits().then(wait);
        wait.into_iter().chain(self.waits_for_disks().then(wait_aof)).collect()
    }

    /// Reads the replies to `commands`. Any other reply, an error too, confirms nothing.
    pub fn read(self, replies: &[RespValue]) -> ConfirmationResult {
        let refused = replies.iter().find_map(refusal);
        if let Some(error) = refused {
            return Err(ConfirmationError::Refused(error.clone()));
        }
        let replicas = replies.iter().map(confirming_replicas);
        let confirmed = match self.fsync {
            Fsync::Master => replicas.take(usize::from(self.waits())).next(),
            _ => replicas.last(),
        };
        let (confirmed, wanted) = (confirmed.unwrap_or(0), self.replicas);
        if confirmed < wanted {
            return Err(ConfirmationError::TooFewReplicas { confirmed, wanted });
        }
        let on_disk = matches!(replies.last(), Some(RespValue::Array(counts))
            if matches!(counts.first(), Some(RespValue::Int(1..))));
        match self.fsync {
            Fsync::Master | Fsync::All if !on_disk => Err(ConfirmationError::MasterNotOnDisk),
            _ => Ok(()),
        }
    }
}

/// The number of replicas in the reply to `WAIT`, or to `WAITAOF` behind that of the master.
fn confirming_replicas(reply: &RespValue) -> u32 {
    match reply {
        RespValue::Int(replicas) => u32::try_from(*replicas).unwrap_or(0),
        RespValue::Array(counts) => counts.get(1).map_or(0, confirming_replicas),
        _ => 0,
    }
}

/// The error of a server that will never serve the command.
fn refusal(reply: &RespValue) -> Option<&ServerError> {
    match reply {
        RespValue::Error(error)
            if error.code == "NOPERM" || confirmation_advice(error).is_some() =>
        {
            Some(error)
        }
        _ => None,
    }
}

/// What to do about a server that refuses.
pub fn confirmation_advice(error: &ServerError) -> Option<&'static str> {
    if error.message.contains("appendonly is disabled") {
        Some("the server has no append-only file, which `fsync` needs; set `appendonly yes` there")
    } else if error.message.starts_with("unknown command") {
        Some(
            "the server cannot confirm writes; `fsync` needs Redis 7.2 or later, or Valkey, and \
             `min_replicas` a server that serves WAIT",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
