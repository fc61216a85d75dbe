//! Maps each answer of a server to the decision that follows.

use rwlease_core::resp::{Address, RespValue, ServerError, server_ms};
use rwlease_core::slot::Slot;

use crate::router::address_translation::AddressTranslator;
use crate::router::connections::error_reply::{Redirect, code, unwrap_script_error};

/// What to do after an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum ReplyAction {
    /// The script ran, and this is its reply.
    Done(RespValue),
    /// The slot belongs to that node: send the call there, and update the map.
    Moved(Address),
    /// The slot migrates and the key is not here: send this one attempt to that node.
    Ask(Address),
    /// The server does not know the script: send its text there.
    NoScript,
    /// The slot or the server cannot serve the call at the moment. If `refresh` is set, another
    /// node may be able to.
    RetryLater { error: ServerError, refresh: bool },
    /// The server refused the call.
    Rejected(ServerError),
    /// The reply does not follow the protocol.
    Malformed(String),
}

impl ReplyAction {
    /// The label of an attempt with this answer in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            ReplyAction::Done(_) => "replied",
            ReplyAction::Moved(_) => "moved",
            ReplyAction::Ask(_) => "ask",
            ReplyAction::NoScript => "noscript",
            ReplyAction::RetryLater { .. } => "retryable",
            ReplyAction::Rejected(_) => "rejected",
            ReplyAction::Malformed(_) => "malformed",
        }
    }
}

/// Decides what to do after `reply`, which the server at `asked` gave to a call of a script on a
/// key of `slot`.
pub(crate) fn action_for_reply(
    reply: RespValue,
    slot: Slot,
    asked: &Address,
    translation: &AddressTranslator,
) -> ReplyAction {
    match reply {
        RespValue::Error(error) => action_for_error(error, slot, asked, translation),
        reply if server_ms(&reply).is_some() => ReplyAction::Done(reply),
        reply => ReplyAction::Malformed(format!("unexpected reply to a script: {reply:?}")),
    }
}

/// The answer to a call that was sent after `ASKING`. A server that refuses `ASKING` redirects the
/// call, and the refusal is the reason.
pub(crate) fn merge_asking_reply(asking: RespValue, answer: RespValue) -> RespValue {
    match (&asking, &answer) {
        (RespValue::Error(_), RespValue::Error(error)) if error.code == "MOVED" => asking,
        _ => answer,
    }
}

/// Returns true if the reply shows that the server has loaded the script whose source it received.
pub(crate) fn is_script_loaded(reply: &RespValue) -> bool {
    match reply {
        RespValue::Error(error) => {
            let code = code(error);
            code.starts_with("LOCK")
                || matches!(code, "OOM" | "MISCONF" | "READONLY" | "NOREPLICAS" | "WRONGTYPE")
        }
        reply => server_ms(reply).is_some(),
    }
}

fn action_for_error(
    error: ServerError,
    slot: Slot,
    asked: &Address,
    translation: &AddressTranslator,
) -> ReplyAction {
    let error = unwrap_script_error(error);
    match error.code.as_str() {
        "MOVED" | "ASK" => {
            let Some(redirect) = Redirect::read(&error).filter(|redirect| redirect.slot == slot)
            else {
                return ReplyAction::Malformed(format!(
                    "malformed redirect for slot {slot}: {error}"
                ));
            };
            match redirect.place {
                Some((host, port)) if error.code == "MOVED" => {
                    ReplyAction::Moved(translation.address(host, port, asked))
                }
                Some((host, port)) => ReplyAction::Ask(translation.address(host, port, asked)),
                // The map has the node's address, or another node will take over.
                None => ReplyAction::RetryLater { error, refresh: true },
            }
        }
        "NOSCRIPT" => ReplyAction::NoScript,
        // Temporary: the keys are partly migrated, or another script runs.
        "TRYAGAIN" | "BUSY" => ReplyAction::RetryLater { error, refresh: false },
        // A failover is under way, the node is starting, it has become a replica, or its replicas
        // follow another master.
        "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY" | "NOREPLICAS" => {
            ReplyAction::RetryLater { error, refresh: true }
        }
        _ => ReplyAction::Rejected(error),
    }
}

#[cfg(test)]
mod tests;
