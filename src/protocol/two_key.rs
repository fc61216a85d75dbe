//! The calls of the two-key lock of older fleets.

use std::sync::LazyLock;

use bytes::Bytes;

use super::acquire::{AcquireKind, AcquireRequest};
use super::id::AcquisitionId;
use super::key::LockKey;
use super::script::{RELEASE, TRY};
use crate::backend::Command;
use crate::clock::LocalInstant;
use crate::protocol::LockMode;
use crate::router::{Call, Script};

/// The scripts of the two-key lock.
#[derive(Debug)]
pub(crate) struct TwoKeyScripts {
    acquire_read: Script,
    acquire_write: Script,
    release: Script,
}

impl TwoKeyScripts {
    pub(crate) fn built_in() -> &'static TwoKeyScripts {
        static BUILT_IN: LazyLock<TwoKeyScripts> = LazyLock::new(|| TwoKeyScripts {
            acquire_read: Script::built_in("legacy/acquire_read", TRY),
            acquire_write: Script::built_in("legacy/acquire_write", TRY),
            release: Script::built_in("legacy/release", RELEASE),
        });
        &BUILT_IN
    }

    pub(super) fn all(&self) -> [&Script; 3] {
        [&self.acquire_read, &self.acquire_write, &self.release]
    }
}

/// The readers' key comes first, whichever is this acquisition's own.
pub(super) fn acquire(
    acquire: &AcquireRequest,
    id: AcquisitionId,
    (lock, other_key): (&LockKey, &Bytes),
    not_after: LocalInstant,
) -> Call {
    let scripts = TwoKeyScripts::built_in();
    let (script, [read, write]) = match acquire.kind {
        AcquireKind::Lock(LockMode::Read, _) => (&scripts.acquire_read, [&lock.key, other_key]),
        AcquireKind::Lock(LockMode::Write, _)
        | AcquireKind::Upgrade { .. }
        | AcquireKind::Transfer { .. }
        | AcquireKind::Permits(_) => (&scripts.acquire_write, [other_key, &lock.key]),
    };
    Call {
        script,
        slot: lock.slot,
        key: read.clone(),
        second_key: Some(write.clone()),
        args: Command::new().arg(id.as_str()).arg_u64(acquire.lease.as_secs()),
        not_after: Some(not_after),
    }
}

/// Names only the acquisition's own key, so that it works while the slot migrates.
pub(super) fn release(id: AcquisitionId, lock: &LockKey) -> Call {
    Call {
        script: &TwoKeyScripts::built_in().release,
        slot: lock.slot,
        key: lock.key.clone(),
        second_key: None,
        args: Command::new().arg(id.as_str()),
        not_after: None,
    }
}
