//! The shape that the reply to a command must have.
//!
//! Servers reply in the order of the commands. One reply too many, or one too few, gives each later
//! caller the reply of another. A reply of another shape than its command's shows that, and a grant
//! shows it by the acquisition that it names. Then no reply on that connection is believed any
//! more.

use std::borrow::Cow;

use crate::backend::{RespValue, ServerError};
use crate::decimal::parse_leading_u64;
use crate::slot::Slot;

/// The length of the ids of acquisitions.
pub(crate) const ID_LEN: usize = 18;

/// The status of a reply that grants. The acquisition that it is for is the fourth word.
pub(crate) const GRANTED: &str = "granted";

/// What a server sent does not follow the protocol, or does not fit the command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ProtocolError(pub(crate) Cow<'static, str>);

/// The shape of a reply. An error reply has every shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum ReplyShape {
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
pub(crate) struct ScriptShape {
    pub(crate) slot: Slot,
    /// Empty if every status is possible.
    pub(crate) statuses: &'static [&'static str],
    /// The acquisition that a grant must name.
    pub(crate) id: Option<[u8; ID_LEN]>,
}

impl ProtocolError {
    pub(crate) const fn new(message: &'static str) -> ProtocolError {
        ProtocolError(Cow::Borrowed(message))
    }
}

impl ReplyShape {
    /// Fails if the reply cannot be the one to this command.
    pub(crate) fn check(&self, reply: &RespValue) -> Result<(), ProtocolError> {
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
            ReplyShape::Script(_) => "the reply of the script that was called",
        };
        Err(ProtocolError(format!("unexpected reply: {reply:?} instead of {expected}").into()))
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
pub(crate) fn server_ms(reply: &RespValue) -> Option<u64> {
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
mod tests {
    use super::*;

    const ID: &[u8; ID_LEN] = b"client-id-0000001-";

    fn slot() -> Slot {
        Slot::new(3999).unwrap()
    }

    fn shape(statuses: &'static [&'static str], id: Option<[u8; ID_LEN]>) -> ReplyShape {
        ReplyShape::Script(ScriptShape { slot: slot(), statuses, id })
    }

    fn of(text: &str) -> RespValue {
        RespValue::String(text.to_owned().into())
    }

    fn error(text: &str) -> RespValue {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        RespValue::Error(ServerError { code: code.into(), message: detail.into() })
    }

    #[test]
    fn a_script_reply_has_an_envelope_and_a_status_of_the_script() {
        let shape = shape(&["released", "absent"], None);
        let list = RespValue::Array(vec![of("absent"), RespValue::Int(1700)]);
        for reply in [of("released 0 0"), of("absent 1700 0"), list] {
            assert_eq!(shape.check(&reply), Ok(()), "{reply:?}");
        }
        let odd_list = RespValue::Array(vec![RespValue::Int(1700), of("absent")]);
        for reply in [
            of("renewed 1700 0 1 2"),
            of("released"),
            of("released x 0"),
            of("OK"),
            of(""),
            RespValue::Int(1),
            RespValue::Nil,
            RespValue::Array(vec![]),
            odd_list,
        ] {
            let failure = shape.check(&reply).unwrap_err().to_string();
            assert!(failure.starts_with("unexpected reply: "), "{failure}");
        }
    }

    #[test]
    fn a_grant_names_the_acquisition_of_the_call() {
        let shape = shape(&[GRANTED, "queued"], Some(*ID));
        let id = std::str::from_utf8(ID).unwrap();
        for reply in [format!("granted 1700 0 {id} 5 9000"), "queued 1700 0 1 0 0".into()] {
            assert_eq!(shape.check(&of(&reply)), Ok(()), "{reply}");
        }
        for other in [
            "granted 1700 0 client-id-0000002- 5 9000".to_owned(),
            format!("granted 1700 0 5 {id} 9000"),
            format!("granted 1700 0 {id}x 5 9000"),
            "granted 1700 0".into(),
        ] {
            assert!(shape.check(&of(&other)).is_err(), "{other}");
        }
    }

    #[test]
    fn a_redirect_names_the_slot_of_the_call() {
        let shape = shape(&[], None);
        for text in ["MOVED 3999 a:1", "ASK 3999 :1", "NOSCRIPT x", "OOM x", "ERR x"] {
            assert_eq!(shape.check(&error(text)), Ok(()), "{text}");
        }
        for text in ["MOVED", "MOVED 1 a:1", "ASK x", "MOVED 16384 a:1"] {
            assert!(shape.check(&error(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn reply_shape_check_accepts_only_its_type_and_errors() {
        let of_each_type = [RespValue::Int(1), of("a"), RespValue::Array(vec![])];
        let shapes = [ReplyShape::Integer, ReplyShape::Text, ReplyShape::List];
        for (at, shape) in shapes.iter().enumerate() {
            let fits = of_each_type.iter().map(|reply| shape.check(reply).is_ok());
            assert!(fits.eq((0..3).map(|other| other == at)), "{shape:?}");
            assert_eq!(shape.check(&error("ERR x")), Ok(()));
        }
        assert_eq!(ReplyShape::Any.check(&RespValue::Nil), Ok(()));
    }

    #[test]
    fn a_long_reply_is_shown_in_part() {
        let failure = ReplyShape::Integer.check(&of(&"x".repeat(1 << 20))).unwrap_err();
        assert!(failure.to_string().len() < 700, "{failure}");
    }
}
