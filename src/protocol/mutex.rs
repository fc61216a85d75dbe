//! `mutex/inspect`. (To acquire, renew or release a mutex, the requests of the other locks are
//! used, with scripts for mutexes.)

use bytes::Bytes;

use super::Scripts;
use super::key::LockKey;
use super::reply::{BadReply, Elements};
use crate::node::{Command, Reply};
use crate::router::Call;

/// Queries the value that a mutex holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectMutex;

/// The contents of a mutex.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) value: Bytes,
    /// The time left of its lease, ms, or `None` if it never ends.
    pub(crate) left: Option<u64>,
}

impl InspectMutex {
    pub(crate) fn call(self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        Call {
            script: &scripts.mutex_inspect,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args: Command::new(),
            not_after: None,
        }
    }

    pub(crate) fn read(reply: Reply) -> Result<Option<Held>, BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        match status.as_bytes() {
            b"held" => {
                let (value, deadline) = (rest.bytes()?, rest.number()?);
                let left = (deadline > 0).then(|| deadline.saturating_sub(envelope.now));
                Ok(Some(Held { value, left }))
            }
            b"absent" => Ok(None),
            _ => Err(status.unknown()),
        }
    }
}
