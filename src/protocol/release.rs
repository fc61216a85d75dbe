//! `release` and `pump`.

use super::Scripts;
use super::acquire::Grant;
use super::id::AcquisitionId;
use super::key::{LockKey, LockKind};
use super::reply::{Envelope, ReplyError, ReplyReader};
#[cfg(feature = "legacy")]
use super::two_key;
use crate::backend::{Command, RespValue};
use crate::router::Call;

/// Ends an acquisition's lease or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReleaseRequest {
    /// End only the wait for an upgrade.
    pub(crate) wait_only: bool,
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReleaseReply {
    /// Its record existed: nobody else was granted the lock meanwhile.
    Released,
    /// It was waiting.
    LeftQueue,
    /// Its record existed, but a forced release had taken the lock away.
    ForceReleased,
    /// The lock has no record of it.
    NotFound,
    /// The upgrade had been granted before its wait could end.
    UpgradeGranted(Grant),
}

/// Room for the arguments on the wire.
const USUAL_ARGS_LEN: usize = 48;

impl ReleaseRequest {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        #[cfg(feature = "legacy")]
        if lock.second_key.is_some() {
            return two_key::release(id, lock);
        }
        let args = Command::with_capacity(USUAL_ARGS_LEN).arg(id.as_str());
        let (script, args) = match lock.kind {
            LockKind::SetNxMutex => (&scripts.set_nx_release, args),
            LockKind::ReadWrite if self.wait_only => (&scripts.release, args.arg("wait")),
            LockKind::ReadWrite => (&scripts.release, args),
            LockKind::Semaphore => (&scripts.semaphore_release, args),
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

    pub(crate) fn read(reply: RespValue) -> Result<(Envelope, ReleaseReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let ended = match status.as_bytes() {
            b"released" => ReleaseReply::Released,
            b"left" => ReleaseReply::LeftQueue,
            b"expired" => ReleaseReply::ForceReleased,
            b"absent" => ReleaseReply::NotFound,
            b"writing" => ReleaseReply::UpgradeGranted(Grant::read(&mut rest)?),
            _ => return Err(status.unknown_error()),
        };
        Ok((envelope, ended))
    }
}

/// Continues the work that another call left over.
pub(crate) fn pump_request(scripts: &'static Scripts, lock: &LockKey) -> Call {
    let (script, args) = match lock.kind {
        LockKind::Semaphore => (&scripts.semaphore_grant_waiters, Command::new()),
        _ => (&scripts.grant_waiters, Command::new().arg(lock.slot.hash_tag())),
    };
    Call { script, slot: lock.slot, key: lock.key.clone(), second_key: None, args, not_after: None }
}

/// The reply of `pump`.
pub(crate) fn parse_pump_reply(reply: RespValue) -> Result<Envelope, ReplyError> {
    ReplyReader::parse_header(reply).map(|(envelope, _, _)| envelope)
}
