//! `set_nx/inspect`. (To acquire, renew or release a mutex, the requests of the other locks are
//! used, with scripts for mutexes.)

use bytes::Bytes;

use super::call::Call;
use super::key::LockKey;
use super::reply::{ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::resp::{Command, RespValue};

/// Queries the value that a mutex holds.
#[derive(Clone, Copy, Debug)]
pub struct InspectSetNxRequest;

/// The contents of a mutex.
#[derive(Debug, PartialEq, Eq)]
pub struct SetNxValue {
    pub value: Bytes,
    /// The time left of its lease, ms, or `None` if it never ends.
    pub ttl_ms: Option<u64>,
}

impl InspectSetNxRequest {
    pub fn call(self, lock: &LockKey) -> Call {
        Call::new(ScriptName::SetNxInspect, lock, Command::new())
    }

    pub fn read(reply: RespValue) -> Result<Option<SetNxValue>, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        match &*status {
            b"held" => {
                let (value, deadline) = (rest.bytes()?, rest.number()?);
                let left = (deadline > 0).then(|| deadline.saturating_sub(envelope.server_now));
                Ok(Some(SetNxValue { value, ttl_ms: left }))
            }
            b"not_found" => Ok(None),
            _ => Err(ReplyError::unknown_status(&status)),
        }
    }
}
