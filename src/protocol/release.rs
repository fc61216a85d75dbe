//! `release` and `pump`.

use super::Scripts;
use super::acquire::Grant;
use super::id::AcquisitionId;
use super::key::{Kind, LockKey};
use super::reply::{BadReply, Elements, Envelope};
#[cfg(feature = "legacy")]
use super::two_key;
use crate::node::{Command, Reply};
use crate::router::Call;

/// Ends an acquisition's lease or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    /// End only the wait for an upgrade.
    pub(crate) only_wait: bool,
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ended {
    /// Its record existed: nobody else was granted the lock meanwhile.
    Released,
    /// It was waiting.
    Left,
    /// Its record existed, but a forced release had taken the lock away.
    Expired,
    /// The lock has no record of it.
    Absent,
    /// The upgrade had been granted before its wait could end.
    Writing(Grant),
}

/// Room for the arguments on the wire.
const ARGUMENTS: usize = 48;

impl Release {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        #[cfg(feature = "legacy")]
        if lock.other_key.is_some() {
            return two_key::release(id, lock);
        }
        let args = Command::with_capacity(ARGUMENTS).word(id.as_str());
        let (script, args) = match lock.kind {
            Kind::Mutex => (&scripts.mutex_release, args),
            Kind::ReadWrite if self.only_wait => (&scripts.release, args.word("wait")),
            Kind::ReadWrite => (&scripts.release, args),
            Kind::Semaphore => (&scripts.semaphore_release, args),
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

    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Ended), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let ended = match status.as_bytes() {
            b"released" => Ended::Released,
            b"left" => Ended::Left,
            b"expired" => Ended::Expired,
            b"absent" => Ended::Absent,
            b"writing" => Ended::Writing(Grant::read(&mut rest)?),
            _ => return Err(status.unknown()),
        };
        Ok((envelope, ended))
    }
}

/// Continues the work that another call left over.
pub(crate) fn pump(scripts: &'static Scripts, lock: &LockKey) -> Call {
    let (script, args) = match lock.kind {
        Kind::Semaphore => (&scripts.semaphore_pump, Command::new()),
        _ => (&scripts.pump, Command::new().word(lock.slot.tag())),
    };
    Call { script, slot: lock.slot, key: lock.key.clone(), second_key: None, args, not_after: None }
}

/// The reply of `pump`.
pub(crate) fn pumped(reply: Reply) -> Result<Envelope, BadReply> {
    Elements::open(reply).map(|(envelope, _, _)| envelope)
}
