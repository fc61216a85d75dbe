//! `revoke` and `force_release`.

use super::Scripts;
use super::key::LockKey;
use super::reply::{BadReply, Elements, Envelope};
use crate::node::{Command, Reply};
use crate::router::{Call, Script};

/// The leases that were revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revoked {
    /// Leases with this token or a lower one are not renewed.
    pub(crate) token: u64,
    pub(crate) readers: u64,
    /// When the writer's lease ends, server ms; 0 if there is no writer.
    pub(crate) writer_ends: u64,
}

/// The holders that the lock was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forced {
    /// The new token.
    pub(crate) token: u64,
    /// Whether there was a writer.
    pub(crate) writer: bool,
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
        args: Command::new().number(token).word(lock.slot.tag()),
        not_after: None,
    }
}

impl Revoked {
    /// `None` if nobody held the lock.
    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Option<Revoked>), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let revoked = match status.as_bytes() {
            b"revoked" => Some(Revoked {
                token: rest.number()?,
                readers: rest.number()?,
                writer_ends: rest.number()?,
            }),
            b"free" => None,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, revoked))
    }
}

impl Forced {
    /// `None` if nobody held the lock.
    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Option<Forced>), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let forced = match status.as_bytes() {
            b"forced" => Some(Forced {
                token: rest.number()?,
                writer: rest.bytes()? != "-",
                readers: rest.number()?,
            }),
            b"free" => None,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, forced))
    }
}
