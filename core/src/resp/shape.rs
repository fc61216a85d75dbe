//! The shape that the reply to a command must have.
//!
//! Servers reply in the order of the commands. One reply too many, or one too few, gives each later
//! caller the reply of another. A reply of another shape than its command's shows that, and a grant
//! shows it by the acquisition that it names. Then no reply on that connection is believed any
//! more.

use std::borrow::Cow;

use crate::decimal::parse_leading_u64;
use crate::resp::{RespValue, ServerError};
use crate::slot::Slot;

/// The length of the ids of acquisitions.
pub const ID_LEN: usize = 18;

/// The status of a reply that grants. The acquisition that it is for is the fourth word.
pub const GRANTED: &str = "granted";

/// What a server sent does not follow the protocol, or does not fit the command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub Cow<'static, str>);

/// The shape of a reply. An error reply has every shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ReplyShape {
    #[default]
    Any,
    Integer,
    Text,
    List,
    Script(ScriptShape),
}

/// The shape of a script's reply: the envelope with one of the script's statuses. An error that
/// redirects must name the slot of the call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScriptShape {
    pub slot: Slot,
    /// Empty if every status is possible.
    pub statuses: &'static [&'static str],
    /// The acquisition that a grant must name.
    pub id: Option<[u8; ID_LEN]>,
}

impl ProtocolError {
    pub const fn new(message: &'static str) -> ProtocolError {
        ProtocolError(Cow::Borrowed(message))
    }
}

impl ReplyShape {
    /// Fails if the reply cannot be the one to this command.
    pub fn check(&self, reply: &RespValue) -> Result<(), ProtocolError> {
        let fits = match (self, reply) {
            (ReplyShape::Script(shape), reply) => shape.fits(reply),
            (ReplyShape::Any, _)
            | (_, RespValue::Error(_))
            | (ReplyShape::Integer, RespValue::Int(_))
            | (ReplyShape::Text, RespValue::String(_) | RespValue::Nil)
            | (ReplyShape::List, RespValue::Array(_) | RespValue::Nil) => true,
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let expected = match self {
            ReplyShape::Any => "anything",
            ReplyShape::Integer => "a number",
            ReplyShape::Text => "a text",
            ReplyShape::List => "a list",
            ReplyShape::Script(_) => "a reply of the called script",
        };
        Err(ProtocolError(format!("unexpected reply: expected {expected}, got {reply:?}").into()))
    }
}

impl ScriptShape {
    fn fits(&self, reply: &RespValue) -> bool {
        let status = match reply {
            RespValue::Error(error) => return self.fits_error(error),
            _ if server_ms(reply).is_none() => return false,
            RespValue::String(text) => text.split(|byte| *byte == b' ').next(),
            RespValue::Array(items) => items.first().and_then(text),
            _ => None,
        };
        let is_known = |status: &[u8]| self.statuses.iter().any(|one| one.as_bytes() == status);
        match status {
            Some(status) if status == GRANTED.as_bytes() && !self.is_for_caller(reply) => false,
            Some(status) => self.statuses.is_empty() || is_known(status),
            None => false,
        }
    }

    /// Returns true if a grant names the acquisition of the call.
    fn is_for_caller(&self, reply: &RespValue) -> bool {
        let Some(id) = &self.id else {
            return true;
        };
        let named = match reply {
            RespValue::String(text) => text.splitn(5, |byte| *byte == b' ').nth(3),
            RespValue::Array(items) => items.get(3).and_then(text),
            _ => None,
        };
        named == Some(&id[..])
    }

    fn fits_error(&self, error: &ServerError) -> bool {
        if !matches!(&*error.code, "MOVED" | "ASK") {
            return true;
        }
        let slot = error.message.split_ascii_whitespace().next();
        slot.and_then(|slot| slot.parse().ok()) == Some(self.slot.get())
    }
}

fn text(reply: &RespValue) -> Option<&[u8]> {
    match reply {
        RespValue::String(text) => Some(text),
        _ => None,
    }
}

/// The server's time in the reply of a script, or 0 if the script did not read the clock. `None` if
/// this is not a reply of a script.
pub fn server_ms(reply: &RespValue) -> Option<u64> {
    match reply {
        RespValue::String(text) => {
            let end = text.iter().position(|byte| *byte == b' ')?;
            parse_leading_u64(&text[end + 1..]).map(|(ms, _)| ms)
        }
        RespValue::Array(items) => match items.as_slice() {
            [RespValue::String(_), RespValue::Int(ms), ..] => u64::try_from(*ms).ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
