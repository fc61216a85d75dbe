use super::call::Call;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::resp::{Command, RespValue};

/// The leases that were revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokeReply {
    /// Leases with this token or a lower one are not renewed.
    pub token: u64,
    pub readers: u64,
    /// When the writer's lease ends, server ms; 0 if there is no writer.
    pub writer_deadline: u64,
}

/// The holders that the lock was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceReleaseReply {
    /// The new token.
    pub token: u64,
    /// Whether there was a writer.
    pub had_writer: bool,
    pub readers: u64,
}

/// Revokes the leases with this token or a lower one.
pub fn revoke(lock: &LockKey, token: u64) -> Call {
    call(ScriptName::Revoke, lock, token)
}

/// Takes the lock from the holders with this token or a lower one.
pub fn force_release(lock: &LockKey, token: u64) -> Call {
    call(ScriptName::ForceRelease, lock, token)
}

fn call(script: ScriptName, lock: &LockKey, token: u64) -> Call {
    Call::new(script, lock, Command::new().arg_u64(token).arg(lock.slot.hash_tag()))
}

impl RevokeReply {
    /// `None` if nobody held the lock.
    pub fn read(reply: RespValue) -> Result<(Envelope, Option<RevokeReply>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let revoked = match &*status {
            b"revoked" => Some(RevokeReply {
                token: rest.number()?,
                readers: rest.number()?,
                writer_deadline: rest.number()?,
            }),
            b"not_locked" => None,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, revoked))
    }
}

impl ForceReleaseReply {
    /// `None` if nobody held the lock.
    pub fn read(reply: RespValue) -> Result<(Envelope, Option<ForceReleaseReply>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let forced = match &*status {
            b"forced" => Some(ForceReleaseReply {
                token: rest.number()?,
                had_writer: rest.bytes()? != "-",
                readers: rest.number()?,
            }),
            b"not_locked" => None,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, forced))
    }
}
