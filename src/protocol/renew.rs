//! `renew` and `downgrade`.

use std::time::Duration;

use super::acquire::{BLOCK, Grant, millis};
use super::id::AcquisitionId;
use super::key::{Kind, LockKey};
use super::reply::{BadReply, Elements, Envelope};
use super::{Mode, Scripts};
use crate::node::{Command, Reply};
use crate::router::Call;

/// Extends a lease, or claims a grant. If the server's record of this token holds more than the
/// client does, because a failover has lost a downgrade or a partial release, the call repeats
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Renew {
    pub(crate) lease: Duration,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// The permits that are held, or 0 for another kind of lock.
    pub(crate) permits: u32,
    /// Whether the lease is to be cached. Without this a cached holder counts as in use, and is not
    /// recalled.
    pub(crate) cached: bool,
}

/// The outcome of a renewal or a downgrade.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewed {
    Held(Grant),
    /// The lease is valid but will not be extended.
    Revoked(Grant),
    /// The acquisition holds by another token, and nothing was done.
    Other(Grant),
    Lost,
}

impl Renew {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        let args = Command::new().word(id.as_str()).number(millis(self.lease));
        let (script, args) = match lock.kind {
            Kind::Mutex => (&scripts.mutex_renew, args),
            Kind::ReadWrite => {
                let args = args.word(self.mode.letter()).number(self.token);
                (&scripts.renew, if self.cached { args.number(BLOCK) } else { args })
            }
            Kind::Semaphore => {
                (&scripts.semaphore_renew, args.number(self.permits.into()).number(self.token))
            }
        };
        Call {
            script,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }
}

/// Turns a write into a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Downgrade {
    pub(crate) token: u64,
    pub(crate) lease: Duration,
    /// As in [`Renew`].
    pub(crate) cached: bool,
}

impl Downgrade {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        let args = Command::new().word(id.as_str()).number(self.token).number(millis(self.lease));
        let args = if self.cached { args.word("k") } else { args };
        Call {
            script: &scripts.downgrade,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }
}

impl Renewed {
    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Renewed), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let renewed = match status.as_bytes() {
            b"renewed" => Renewed::Held(Grant::read(&mut rest)?),
            b"granted" => Renewed::Held(Grant::read_named(&mut rest)?),
            b"revoked" => Renewed::Revoked(Grant::read(&mut rest)?),
            b"other" => Renewed::Other(Grant::read(&mut rest)?),
            b"lost" => Renewed::Lost,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, renewed))
    }
}
