//! `mutex/inspect`. (To acquire, renew or release a mutex, the requests of the other locks are
//! used, with scripts for mutexes.)

use bytes::Bytes;

use super::Scripts;
use super::key::LockKey;
use super::reply::{ReplyError, ReplyReader};
use crate::backend::{Command, RespValue};
use crate::router::Call;

/// Queries the value that a mutex holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InspectSetNxRequest;

/// The contents of a mutex.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SetNxValue {
    pub(crate) value: Bytes,
    /// The time left of its lease, ms, or `None` if it never ends.
    pub(crate) ttl_ms: Option<u64>,
}

impl InspectSetNxRequest {
    pub(crate) fn call(self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        Call {
            script: &scripts.set_nx_inspect,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args: Command::new(),
            not_after: None,
        }
    }

    pub(crate) fn read(reply: RespValue) -> Result<Option<SetNxValue>, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        match status.as_bytes() {
            b"held" => {
                let (value, deadline) = (rest.bytes()?, rest.number()?);
                let left = (deadline > 0).then(|| deadline.saturating_sub(envelope.server_now));
                Ok(Some(SetNxValue { value, ttl_ms: left }))
            }
            b"absent" => Ok(None),
            _ => Err(status.unknown_error()),
        }
    }
}
