//! Parsing the outcomes of calls.

use std::fmt;

use crate::backend::{Address, RespValue};
use crate::clock::LocalInstant;
use crate::error::Error;
use crate::protocol::{Envelope, ReplyError};
use crate::router::{CallError, CallErrorKind, CallReply};

/// The contents of an answer, and what is known about its call.
#[derive(Debug)]
pub(crate) struct ScriptReply<T> {
    pub(crate) body: T,
    pub(crate) envelope: Envelope,
    pub(crate) sent_at: LocalInstant,
    pub(crate) received_at: LocalInstant,
    pub(crate) server: Address,
    /// The number of replicas that confirmed.
    pub(crate) replicas_confirmed: u32,
    /// As in [`CallReply::in_doubt`].
    pub(crate) in_doubt: Option<u64>,
}

/// A call without a usable answer.
#[derive(Debug)]
pub(crate) enum ScriptCallError {
    Call(CallError),
    /// An answer that is an error or cannot be parsed.
    Reply {
        error: ReplyError,
        in_doubt: Option<u64>,
    },
}

pub(crate) type ScriptResult<T> = Result<ScriptReply<T>, ScriptCallError>;

impl ScriptCallError {
    /// As in [`CallReply::in_doubt`].
    pub(crate) fn in_doubt(&self) -> Option<u64> {
        match self {
            ScriptCallError::Call(error) => error.in_doubt,
            ScriptCallError::Reply { in_doubt, .. } => *in_doubt,
        }
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            ScriptCallError::Call(error) => {
                !matches!(error.kind, CallErrorKind::Rejected(_) | CallErrorKind::MalformedReply(_))
            }
            ScriptCallError::Reply { .. } => false,
        }
    }
}

impl From<ScriptCallError> for Error {
    fn from(failure: ScriptCallError) -> Error {
        match failure {
            ScriptCallError::Call(error) => error.into(),
            ScriptCallError::Reply { error: bad, .. } => bad.into(),
        }
    }
}

impl fmt::Display for ScriptCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            passing if passing.is_transient() => f.write_str("no answer"),
            ScriptCallError::Call(error) => error.fmt(f),
            ScriptCallError::Reply { error: ReplyError::Server(said), .. } => said.fmt(f),
            ScriptCallError::Reply { error: ReplyError::Malformed(what), .. } => f.write_str(what),
        }
    }
}

pub(crate) fn parse_reply<T>(
    result: Result<CallReply, CallError>,
    reader: impl FnOnce(RespValue) -> Result<(Envelope, T), ReplyError>,
) -> ScriptResult<T> {
    let answer = result.map_err(ScriptCallError::Call)?;
    let in_doubt = answer.in_doubt;
    let read = reader(answer.value);
    let (envelope, what) = read.map_err(|bad| ScriptCallError::Reply { error: bad, in_doubt })?;
    Ok(ScriptReply {
        body: what,
        envelope,
        sent_at: answer.sent_at,
        received_at: answer.received_at,
        server: answer.server,
        replicas_confirmed: answer.replicas_confirmed,
        in_doubt,
    })
}
