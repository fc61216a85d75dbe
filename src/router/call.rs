//! The calls that the layers above pass to the router, and their answers.
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

use crate::backend::{Address, Command, ConnectionError, RespValue, ServerError};
use crate::clock::LocalInstant;
use crate::health::ClientFailure;
use crate::router::server_list::ServerList;
use crate::slot::Slot;

/// A Lua script of the protocol.
#[derive(Debug)]
pub struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) digest: String,
    /// `EVALSHA` and the digest.
    pub(crate) evalsha: Command,
    /// `EVAL` and the text.
    pub(crate) eval: Command,
    /// Its usual case is `DELIFEQ` with its key and its argument, on servers that have that
    /// command.
    pub(crate) has_delifeq_shortcut: bool,
    /// The statuses of its replies; empty if every status is possible.
    pub(crate) statuses: &'static [&'static str],
}

impl Script {
    pub(crate) fn new(name: &'static str, text: String, digest: String) -> Script {
        let by_digest = Command::new().arg("EVALSHA").arg(&digest);
        let by_text = Command::new().arg("EVAL").arg(&text);
        Script {
            name,
            text,
            digest,
            evalsha: by_digest,
            eval: by_text,
            has_delifeq_shortcut: false,
            statuses: &[],
        }
    }

    /// The script's name, which is that of its file in `lua/`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The script's text, as it is sent to servers.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The SHA-1 digest of the text in hexadecimal, by which `EVALSHA` names the script.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// A call of a script on one key. (The locks of older fleets have two keys in one slot.)
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) slot: Slot,
    pub(crate) key: bytes::Bytes,
    pub(crate) second_key: Option<bytes::Bytes>,
    /// The arguments that follow the envelope in `ARGV`.
    pub(crate) args: Command,
    /// The moment after which the server must refuse to run it (scripts that acquire).
    pub(crate) not_after: Option<LocalInstant>,
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct CallReply {
    pub(crate) value: RespValue,
    /// When the attempt that was answered was sent, and when the answer came.
    pub(crate) sent_at: LocalInstant,
    pub(crate) received_at: LocalInstant,
    /// The server that answered.
    pub(crate) server: Address,
    /// How many replicas have the write, if the call waited for any.
    pub(crate) replicas_confirmed: u32,
    /// The latest `not_after` (server ms) of the attempts that may have been sent and got no
    /// answer: each of them can still arrive until then. 0 if one of them had no `not_after`, or if
    /// it is unknown.
    pub(crate) in_doubt: Option<u64>,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct CallError {
    pub(crate) kind: CallErrorKind,
    /// As in [`CallReply::in_doubt`]. `None` means that the script did not run and will not run.
    pub(crate) in_doubt: Option<u64>,
    /// The last failure of an attempt, if that is not the reason itself.
    #[source]
    pub(crate) last_error: Option<ConnectionError>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallErrorKind {
    /// The deadline passed while the slot could not be served. Holds the server's last answer.
    #[error("no answer in time{}", .0.as_ref().map(|last| format!(" (last: {last})")).unwrap_or_default())]
    TimedOut(Option<ServerError>),
    /// The server is overloaded: the call waited for a permit until too little time was left, and
    /// was not sent.
    #[error(
        "the node is overloaded: the call waited for its turn until it was too late to send it"
    )]
    Overloaded,
    /// The deadline passed while servers named each other as the slot's master.
    #[error("no answer in time: {0} redirects in a row, from servers that name each other")]
    TooManyRedirects(u32),
    /// The server refused: rights, memory, wrong type, a script error.
    #[error("{0}")]
    Rejected(ServerError),
    /// No server could be reached when the client was made, the last one for this reason.
    #[error("no server can be reached (tried {0}): {1}")]
    Unreachable(ServerList, String),
    /// No sentinel could be reached when the client was made, the last one for this reason.
    #[error("no sentinel can be reached (tried {0}): {1}")]
    NoSentinel(ServerList, String),
    /// The seeds are of several deployments, or are none.
    #[error("{0}")]
    InvalidDeployment(String),
    /// No node serves the slot.
    #[error("no node serves slot {0}")]
    SlotUnassigned(Slot),
    /// A reply that does not have the script's shape, or does not follow the protocol.
    #[error("{0}")]
    MalformedReply(String),
    /// A connection error that no retry can fix (wrong password, TLS).
    #[error("cannot connect")]
    PermanentConnectionError,
    #[error("the client is shut down")]
    Closed,
    #[error("{0}")]
    ClientFailed(ClientFailure),
}
