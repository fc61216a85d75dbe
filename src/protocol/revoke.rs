//! `revoke` and `force_release`.

use super::Scripts;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use crate::backend::{Command, RespValue};
use crate::router::{Call, Script};

/// The leases that were revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RevokeReply {
    /// Leases with this token or a lower one are not renewed.
    pub(crate) token: u64,
    pub(crate) readers: u64,
    /// When the writer's lease ends, server ms; 0 if there is no writer.
    pub(crate) writer_deadline: u64,
}

/// The holders that the lock was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForceReleaseReply {
    /// The new token.
    pub(crate) token: u64,
    /// Whether there was a writer.
    pub(crate) had_writer: bool,
    pub(crate) readers: u64,
}

/// Revokes the leases with this token or a lower one.
pub(crate) fn revoke(scripts: &'static Scripts, lock: &LockKey, token: u64) -> Call {
    call(&scripts.revoke, lock, token)
}

/// Takes the lock from the holders with this token or a lower one.
pub(crate) fn force_release(scripts: &'static Scripts, lock: &LockKey, token: u64) -> Call {
    call(&scripts.force_release, lock, token)
}

fn call(script: &'static Script, lock: &LockKey, token: u64) -> Call {
    Call {
        script,
        slot: lock.slot,
        key: lock.key.clone(),
        second_key: None,
        args: Command::new().arg_u64(token).arg(lock.slot.hash_tag()),
        not_after: None,
    }
}

impl RevokeReply {
    /// `None` if nobody held the lock.
    pub(crate) fn read(reply: RespValue) -> Result<(Envelope, Option<RevokeReply>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let revoked = match status.as_bytes() {
            b"revoked" => Some(RevokeReply {
                token: rest.number()?,
                readers: rest.number()?,
                writer_deadline: rest.number()?,
            }),
            b"free" => None,
            _ => return Err(status.unknown_error()),
        };
        Ok((envelope, revoked))
    }
}

impl ForceReleaseReply {
    /// `None` if nobody held the lock.
    pub(crate) fn read(
        reply: RespValue,
    ) -> Result<(Envelope, Option<ForceReleaseReply>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let forced = match status.as_bytes() {
            b"forced" => Some(ForceReleaseReply {
                token: rest.number()?,
                had_writer: rest.bytes()? != "-",
                readers: rest.number()?,
            }),
            b"free" => None,
            _ => return Err(status.unknown_error()),
        };
        Ok((envelope, forced))
    }
}
