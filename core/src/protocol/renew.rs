use std::time::Duration;

use super::LockMode;
use super::acquire::{Grant, TOKEN_BLOCK, to_millis};
use super::call::Call;
use super::id::AcquisitionId;
use super::key::{LockKey, LockKind};
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::resp::{Command, RespValue};

/// Extends a lease, or claims a grant. If the server's record of this token holds more than the
/// client does, because a failover has lost a downgrade or a partial release, the call repeats
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RenewRequest {
    pub lease: Duration,
    pub mode: LockMode,
    pub token: u64,
    /// The permits that are held, or 0 for another kind of lock.
    pub permits: u32,
    /// Whether the lease is to be cached. Without this a cached holder counts as in use, and is not
    /// recalled.
    pub cached: bool,
}

/// The outcome of a renewal or a downgrade.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RenewReply {
    Renewed(Grant),
    /// The lease is valid but will not be extended.
    Revoked(Grant),
    /// The acquisition holds by another token, and nothing was done.
    Other(Grant),
    NotHeld,
}

impl RenewRequest {
    pub fn call(&self, id: AcquisitionId, lock: &LockKey) -> Call {
        let args = Command::new().arg(id.as_str()).arg_u64(to_millis(self.lease));
        let (script, args) = match lock.kind {
            LockKind::SetNxMutex => (ScriptName::SetNxRenew, args),
            LockKind::ReadWrite => {
                let args = args.arg(self.mode.letter()).arg_u64(self.token);
                (ScriptName::Renew, if self.cached { args.arg_u64(TOKEN_BLOCK) } else { args })
            }
            LockKind::Semaphore => {
                (ScriptName::SemaphoreRenew, args.arg_u64(self.permits.into()).arg_u64(self.token))
            }
        };
        Call::new(script, lock, args)
    }
}

/// Turns a write into a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DowngradeRequest {
    pub token: u64,
    pub lease: Duration,
    /// As in [`RenewRequest`].
    pub cached: bool,
}

impl DowngradeRequest {
    pub fn call(&self, id: AcquisitionId, lock: &LockKey) -> Call {
        let args =
            Command::new().arg(id.as_str()).arg_u64(self.token).arg_u64(to_millis(self.lease));
        let args = if self.cached { args.arg("k") } else { args };
        Call::new(ScriptName::Downgrade, lock, args)
    }
}

impl RenewReply {
    pub fn read(reply: RespValue) -> Result<(Envelope, RenewReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let renewed = match &*status {
            b"renewed" => RenewReply::Renewed(Grant::read(&mut rest)?),
            b"granted" => RenewReply::Renewed(Grant::read_named(&mut rest)?),
            b"revoked" => RenewReply::Revoked(Grant::read(&mut rest)?),
            b"other" => RenewReply::Other(Grant::read(&mut rest)?),
            b"not_held" => RenewReply::NotHeld,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, renewed))
    }
}
