//! The calls of the two-key lock of older fleets.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Moment;
use crate::node::{Command, Reply};
use crate::protocol::reply::{BadReply, Elements};
use crate::protocol::{AcquisitionId, Mode};
use crate::router::{Call, Script};
use crate::slot::Slot;

/// Its scripts.
#[derive(Debug)]
pub(crate) struct TwoKeyScripts {
    acquire_read: Script,
    acquire_write: Script,
    release: Script,
}

impl TwoKeyScripts {
    pub(crate) fn built_in() -> &'static TwoKeyScripts {
        static BUILT_IN: LazyLock<TwoKeyScripts> = LazyLock::new(|| TwoKeyScripts {
            acquire_read: Script::built_in("legacy/acquire_read"),
            acquire_write: Script::built_in("legacy/acquire_write"),
            release: Script::built_in("legacy/release"),
        });
        &BUILT_IN
    }

    pub(super) fn all(&self) -> [&Script; 3] {
        [&self.acquire_read, &self.acquire_write, &self.release]
    }
}

/// The two keys, which are of one slot.
#[derive(Clone, Debug)]
pub(crate) struct TwoKeys {
    pub(crate) read: Bytes,
    pub(crate) write: Bytes,
    pub(crate) slot: Slot,
}

/// How a try went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// With what is left of the key.
    Granted(Duration),
    Refused,
    Stale,
}

impl TwoKeys {
    pub(crate) fn take(
        &self,
        mode: Mode,
        id: AcquisitionId,
        seconds: u64,
        not_after: Moment,
    ) -> Call {
        let scripts = TwoKeyScripts::built_in();
        Call {
            script: match mode {
                Mode::Read => &scripts.acquire_read,
                Mode::Write => &scripts.acquire_write,
            },
            slot: self.slot,
            key: self.read.clone(),
            second_key: Some(self.write.clone()),
            args: Command::new().word(id.as_str()).number(seconds),
            not_after: Some(not_after),
        }
    }

    /// With the one key that the acquisition has, so that it goes on while the slot migrates.
    pub(crate) fn give_back(&self, mode: Mode, id: AcquisitionId) -> Call {
        Call {
            script: &TwoKeyScripts::built_in().release,
            slot: self.slot,
            key: match mode {
                Mode::Read => self.read.clone(),
                Mode::Write => self.write.clone(),
            },
            second_key: None,
            args: Command::new().word(id.as_str()),
            not_after: None,
        }
    }
}

pub(crate) fn taken(reply: Reply) -> Result<Taken, BadReply> {
    let (_, status, mut rest) = Elements::open(reply)?;
    match status.as_bytes() {
        b"granted" => Ok(Taken::Granted(Duration::from_millis(rest.number()?))),
        b"refused" => Ok(Taken::Refused),
        b"stale" => Ok(Taken::Stale),
        _ => Err(status.unknown()),
    }
}

/// Whether it was the acquisition's.
pub(crate) fn given_back(reply: Reply) -> Result<bool, BadReply> {
    let (_, status, _) = Elements::open(reply)?;
    match status.as_bytes() {
        b"released" => Ok(true),
        b"absent" => Ok(false),
        _ => Err(status.unknown()),
    }
}
