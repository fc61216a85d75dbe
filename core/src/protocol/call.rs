//! The calls of scripts, and their outcomes.
//!
//! Every script has the same envelope, so that the router can fill in what only it knows:
//!
//! - `ARGV[1]` is the name of the server that the call is sent to (its run id, shortened; `-` if
//!   unknown). Scripts that acquire have `not_after` in `ARGV[2]`, by that server's clock, in ms (0
//!   if unknown). Both are filled in for each attempt.
//! - A reply is a text of words. The second word is the server's time in ms, or 0 if the script did
//!   not read it. A reply that does not fit into a text is a list that begins with the same words.
//!   Errors have no envelope.
//! - A script that may answer `granted` has the acquisition's id as the first of its own arguments,
//!   and the reply names it in the fourth word.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::confirmation::ConfirmationResult;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError};
use super::script::ScriptName;
use crate::resp::{Address, Command, RespValue, ServerError};
use crate::slot::Slot;
use crate::time::LocalInstant;

/// A call of a script on one key. (The locks of older fleets have two keys in one slot.)
#[derive(Clone, Debug)]
pub struct Call {
    pub script: ScriptName,
    pub slot: Slot,
    pub key: Bytes,
    pub second_key: Option<Bytes>,
    /// The arguments that follow the envelope in `ARGV`.
    pub args: Command,
    /// The moment after which the server must refuse to run it (scripts that acquire).
    pub not_after: Option<LocalInstant>,
}

impl Call {
    /// A call on the key of a lock, which a server may run at any time.
    pub fn new(script: ScriptName, lock: &LockKey, args: Command) -> Call {
        Call {
            script,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }
}

/// Until when attempts without an answer may still run at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// No attempt may run.
    #[default]
    None,
    /// Until the server's clock has passed this time, in ms.
    Until(u64),
    /// At any time: an attempt has no `not_after`, or an unknown one.
    Unbounded,
}

impl Doubt {
    /// The doubt about an attempt. A `not_after` of 0 is unknown.
    pub fn of_attempt(not_after: u64) -> Doubt {
        if not_after == 0 { Doubt::Unbounded } else { Doubt::Until(not_after) }
    }

    pub fn is_none(self) -> bool {
        self == Doubt::None
    }

    /// The doubt about the attempts of both.
    #[must_use]
    pub fn max(self, other: Doubt) -> Doubt {
        match (self, other) {
            (Doubt::None, doubt) | (doubt, Doubt::None) => doubt,
            (Doubt::Until(one), Doubt::Until(two)) => Doubt::Until(one.max(two)),
            (Doubt::Unbounded, _) | (_, Doubt::Unbounded) => Doubt::Unbounded,
        }
    }
}

/// The answer to a call.
#[derive(Debug)]
pub struct CallReply {
    pub value: RespValue,
    /// When the attempt that was answered was sent, and when the answer came.
    pub sent_at: LocalInstant,
    pub received_at: LocalInstant,
    /// The server that answered.
    pub server: Address,
    /// Whether replicas and disks have the write, if the call waited for any.
    pub confirmed: ConfirmationResult,
    /// The attempts that may have been sent and got no answer.
    pub in_doubt: Doubt,
}

/// The body of a reply, and the facts about its call.
#[derive(Debug)]
pub struct ScriptReply<T> {
    pub body: T,
    pub envelope: Envelope,
    pub sent_at: LocalInstant,
    pub received_at: LocalInstant,
    pub server: Address,
    /// As in [`CallReply`].
    pub confirmed: ConfirmationResult,
    /// As in [`CallReply`].
    pub in_doubt: Doubt,
}

pub type ScriptResult<T> = Result<ScriptReply<T>, CallError>;

/// A call that failed.
#[derive(Debug)]
pub struct CallError {
    pub kind: CallErrorKind,
    /// As in [`CallReply`]. [`Doubt::None`] means that the script did not run and will not run.
    pub in_doubt: Doubt,
    /// The last failure of an attempt, if that is not the reason itself.
    pub source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallErrorKind {
    /// The deadline passed while the slot could not be served. Holds the server's last answer.
    #[error("no reply in time{}", .0.as_ref().map(|last| format!(" (last: {last})")).unwrap_or_default())]
    TimedOut(Option<ServerError>),
    /// The server is overloaded: the call waited for a permit until too little time was left, and
    /// was not sent.
    #[error("the call was not sent in time: the server has not answered enough earlier calls")]
    Overloaded,
    /// The deadline passed while servers named each other as the slot's master.
    #[error(
        "no reply in time: {0} redirects in a row, because servers name each other as the master"
    )]
    TooManyRedirects(u32),
    /// The server refused: rights, memory, wrong type, a script error.
    #[error("{0}")]
    Rejected(ServerError),
    /// No node serves the slot.
    #[error("no master serves slot {0}")]
    SlotUnassigned(Slot),
    /// A reply that does not follow the protocol.
    #[error("{0}")]
    MalformedReply(String),
    /// A reply that does not have the script's shape.
    #[error("{0}")]
    Reply(ReplyError),
    /// A connection error that no retry can fix: a wrong password, TLS, or (`is_invalid`) the
    /// caller's settings.
    #[error("{message}")]
    Unconnected { message: String, is_invalid: bool },
    #[error("the client is shut down")]
    Closed,
    /// The client has failed, for a reason that the driver knows.
    #[error("{0}")]
    ClientFailed(String),
}

impl CallError {
    pub fn new(kind: CallErrorKind, in_doubt: Doubt) -> CallError {
        CallError { kind, in_doubt, source: None }
    }

    /// Returns true if the key holds no lock of this version of the protocol, so that nothing is
    /// left to release.
    pub fn shows_no_lock(&self) -> bool {
        match &self.kind {
            CallErrorKind::Rejected(error) | CallErrorKind::Reply(ReplyError::Server(error)) => {
                matches!(&*error.code, "WRONGTYPE" | "LOCKTYPE" | "LOCKVERSION")
                    || error.message.contains("LOCKTYPE")
            }
            CallErrorKind::Reply(ReplyError::Malformed(_)) => true,
            _ => false,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        !matches!(
            self.kind,
            CallErrorKind::Rejected(_) | CallErrorKind::MalformedReply(_) | CallErrorKind::Reply(_)
        )
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Not the `Arc`, which is a separate error type.
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Returns true if a server rejected a script before its first write.
pub fn is_rejected_before_write(server_error: &ServerError) -> bool {
    match server_error.code.as_str() {
        // The user lacks the right to run scripts or to use the key. Servers name the script if it
        // lacks a right itself.
        "NOPERM" => !server_error.message.contains("script"),
        // A server checks its memory and its disk at the first write of a script. (Before Redis 7
        // it checks its disk at each write, and a lock whose script met a fault of the disk in
        // between stays until its lease ends.) A script that meets a malformed waiter may have
        // written something, and replies `LOCKTYPE`.
        "OOM" | "MISCONF" | "LOCKARGS" | "LOCKVERSION" | "WRONGTYPE" => true,
        _ => false,
    }
}

/// Reads the reply to a call.
pub fn parse_reply<T>(
    result: Result<CallReply, CallError>,
    reader: impl FnOnce(RespValue) -> Result<(Envelope, T), ReplyError>,
) -> ScriptResult<T> {
    let CallReply { value, sent_at, received_at, server, confirmed, in_doubt } = result?;
    let read = reader(value);
    let (envelope, body) =
        read.map_err(|error| CallError::new(CallErrorKind::Reply(error), in_doubt))?;
    Ok(ScriptReply { body, envelope, sent_at, received_at, server, confirmed, in_doubt })
}
