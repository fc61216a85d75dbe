use super::acquire::Grant;
use super::call::Call;
use super::id::AcquisitionId;
use super::key::{LockKey, LockKind};
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use super::two_key;
use crate::resp::{Command, RespValue};

/// Ends an acquisition's lease or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleaseRequest {
    /// End only the wait for an upgrade.
    pub wait_only: bool,
    /// Keep a write until this time, server ms, instead of ending it.
    pub keep_until: Option<u64>,
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReply {
    /// The record of the holder existed, so no other client was granted the lock.
    Released,
    /// The acquisition keeps its write until this deadline.
    Kept(Grant),
    /// The acquisition was waiting, and left the queue.
    LeftQueue,
    /// The record of the holder existed, but a forced release had ended the lease.
    ForceReleased,
    /// The lock has no record of the acquisition.
    NotFound,
    /// The upgrade had been granted before its wait could end.
    UpgradeGranted(Grant),
}

/// Room for the arguments on the wire.
const USUAL_ARGS_LEN: usize = 48;

impl ReleaseRequest {
    /// Ends all that the acquisition has.
    pub const ALL: ReleaseRequest = ReleaseRequest { wait_only: false, keep_until: None };

    /// Ends only the wait for an upgrade.
    pub const WAIT: ReleaseRequest = ReleaseRequest { wait_only: true, keep_until: None };

    pub fn call(&self, id: AcquisitionId, lock: &LockKey) -> Call {
        if lock.second_key.is_some() {
            return two_key::release(id, lock);
        }
        let args = Command::with_capacity(USUAL_ARGS_LEN).arg(id.as_str());
        let (script, args) = match lock.kind {
            LockKind::SetNxMutex => (ScriptName::SetNxRelease, args),
            LockKind::ReadWrite if self.wait_only => (ScriptName::Release, args.arg("wait")),
            LockKind::ReadWrite => {
                (ScriptName::Release, self.keep_until.into_iter().fold(args, Command::arg_u64))
            }
            LockKind::Semaphore => (ScriptName::SemaphoreRelease, args),
        };
        Call::new(script, lock, args)
    }

    pub fn read(reply: RespValue) -> Result<(Envelope, ReleaseReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let ended = match &*status {
            b"released" => ReleaseReply::Released,
            b"kept" => ReleaseReply::Kept(Grant::read(&mut rest)?),
            b"left_queue" => ReleaseReply::LeftQueue,
            b"force_released" => ReleaseReply::ForceReleased,
            b"not_found" => ReleaseReply::NotFound,
            b"upgrade_granted" => ReleaseReply::UpgradeGranted(Grant::read(&mut rest)?),
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, ended))
    }
}

/// Continues the work that another call left over.
pub fn grant_waiters_request(lock: &LockKey) -> Call {
    let (script, args) = match lock.kind {
        LockKind::Semaphore => (ScriptName::SemaphoreGrantWaiters, Command::new()),
        _ => (ScriptName::GrantWaiters, Command::new().arg(lock.slot.hash_tag())),
    };
    Call::new(script, lock, args)
}

/// The reply of `grant_waiters`.
pub fn parse_grant_waiters_reply(reply: RespValue) -> Result<Envelope, ReplyError> {
    ReplyReader::parse_header(reply).map(|(envelope, _, _)| envelope)
}
