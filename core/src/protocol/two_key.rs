//! The calls of the two-key lock of older fleets.

use bytes::Bytes;

use super::LockMode;
use super::acquire::{AcquireKind, AcquireRequest};
use super::call::Call;
use super::id::AcquisitionId;
use super::key::LockKey;
use super::script::ScriptName;
use crate::resp::Command;
use crate::time::LocalInstant;

/// The readers' key comes first, whichever is this acquisition's own.
pub(super) fn acquire(
    acquire: &AcquireRequest,
    id: AcquisitionId,
    (lock, other_key): (&LockKey, &Bytes),
    not_after: LocalInstant,
) -> Call {
    let (script, [read, write]) = match acquire.kind {
        AcquireKind::Lock(LockMode::Read, _) => {
            (ScriptName::LegacyAcquireRead, [&lock.key, other_key])
        }
        AcquireKind::Lock(LockMode::Write, _)
        | AcquireKind::Upgrade { .. }
        | AcquireKind::Transfer { .. }
        | AcquireKind::Permits(_) => (ScriptName::LegacyAcquireWrite, [other_key, &lock.key]),
    };
    let args = Command::new().arg(id.as_str()).arg_u64(acquire.lease.as_secs());
    Call {
        key: read.clone(),
        second_key: Some(write.clone()),
        not_after: Some(not_after),
        ..Call::new(script, lock, args)
    }
}

/// Names only the acquisition's own key, so that it works while the slot migrates.
pub(super) fn release(id: AcquisitionId, lock: &LockKey) -> Call {
    Call::new(ScriptName::LegacyRelease, lock, Command::new().arg(id.as_str()))
}
