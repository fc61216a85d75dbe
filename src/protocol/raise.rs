//! `raise_token`.

use super::Scripts;
use super::key::{LockKey, OwnerId};
use super::reply::{BadReply, Elements};
use crate::node::{Reply, Words};
use crate::router::Call;

/// Raises the last fencing token of a lock to that of a quorum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaiseToken {
    pub(crate) owner: OwnerId,
    pub(crate) token: u64,
}

impl RaiseToken {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let args = Words::new().word(self.owner.as_str()).number(self.token);
        Call {
            script: &scripts.raise_token,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }

    /// True if it was raised, false if the owner does not hold.
    pub(crate) fn read(reply: Reply) -> Result<bool, BadReply> {
        let (_, status, _) = Elements::open(reply)?;
        match status.as_bytes() {
            b"raised" => Ok(true),
            b"lost" => Ok(false),
            _ => Err(status.unknown()),
        }
    }
}
