//! Parsing the replies of scripts.

use std::ops::Range;

use bytes::Bytes;

use crate::backend::{RespValue, ServerError};
use crate::decimal::parse_leading_u64;

/// A reply that does not have its script's shape, or an error from the server.
#[derive(Debug)]
pub(crate) enum ReplyError {
    Server(ServerError),
    Malformed(String),
}

/// The part that all replies have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Envelope {
    /// The server's time, ms; 0 if the script did not read the clock.
    pub(crate) server_now: u64,
    /// Whether work is left over, to be continued by `pump`.
    pub(crate) has_pump_work: bool,
}

/// A reply's elements, read one after the other.
#[derive(Debug)]
pub(crate) enum ReplyReader {
    /// Words in one text, and the position of the rest. Each word has a space before it.
    Words(Bytes, usize),
    /// The rest of a list.
    List(std::vec::IntoIter<RespValue>),
}

impl ReplyReader {
    /// Splits a reply into its envelope, its status and the rest.
    pub(crate) fn parse_header(
        reply: RespValue,
    ) -> Result<(Envelope, StatusWord, ReplyReader), ReplyError> {
        let (status, mut rest) = match reply {
            RespValue::String(text) => {
                let end = word_end(&text, 0);
                (text.slice(..end), ReplyReader::Words(text, end))
            }
            RespValue::Array(elements) => {
                let mut rest = ReplyReader::List(elements.into_iter());
                (rest.bytes()?, rest)
            }
            RespValue::Error(error) => return Err(ReplyError::Server(error)),
            other => return Err(ReplyError::Malformed(format!("{other:?} instead of a text"))),
        };
        let (now, more) = (rest.number()?, rest.number()? != 0);
        Ok((Envelope { server_now: now, has_pump_work: more }, StatusWord(status), rest))
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            ReplyReader::Words(text, at) => *at == text.len(),
            ReplyReader::List(rest) => rest.len() == 0,
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, ReplyError> {
        let found = match self {
            ReplyReader::Words(text, at) if *at == text.len() => None,
            ReplyReader::Words(text, at) => match parse_leading_u64(&text[*at + 1..]) {
                Some((number, digits)) => {
                    *at += 1 + digits;
                    return Ok(number);
                }
                None => next_word(text, at).map(|word| RespValue::String(text.slice(word))),
            },
            ReplyReader::List(rest) => match rest.next() {
                Some(RespValue::Int(number)) if number >= 0 => return Ok(number as u64),
                other => other,
            },
        };
        Err(malformed(found, "a number"))
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, ReplyError> {
        match self.next() {
            Some(RespValue::String(text)) => Ok(text),
            other => Err(malformed(other, "a string")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, ReplyError> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|_| ReplyError::Malformed("a string that is not UTF-8".into()))
    }

    /// Reads a list of strings.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, ReplyError> {
        match self.next() {
            Some(RespValue::Array(list)) => {
                let count = list.len();
                let mut inner = ReplyReader::List(list.into_iter());
                (0..count).map(|_| inner.text()).collect()
            }
            other => Err(malformed(other, "a list")),
        }
    }

    fn next(&mut self) -> Option<RespValue> {
        match self {
            ReplyReader::List(rest) => rest.next(),
            ReplyReader::Words(text, at) => {
                next_word(text, at).map(|word| RespValue::String(text.slice(word)))
            }
        }
    }
}

/// Finds the next word.
fn next_word(text: &[u8], at: &mut usize) -> Option<Range<usize>> {
    if *at == text.len() {
        return None;
    }
    let begin = *at + 1;
    *at = word_end(text, begin);
    Some(begin..*at)
}

/// Finds the next space, or the end.
fn word_end(text: &[u8], begin: usize) -> usize {
    text[begin..].iter().position(|byte| *byte == b' ').map_or(text.len(), |space| begin + space)
}

/// The word that names the outcome.
#[derive(Debug)]
pub(crate) struct StatusWord(Bytes);

impl StatusWord {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn unknown_error(&self) -> ReplyError {
        ReplyError::Malformed(format!("unknown status {:?}", self.0))
    }
}

fn malformed(found: Option<RespValue>, wanted: &str) -> ReplyError {
    ReplyError::Malformed(match found {
        Some(found) => format!("{found:?} instead of {wanted}"),
        None => format!("nothing instead of {wanted}"),
    })
}

impl From<ReplyError> for crate::error::Error {
    fn from(bad: ReplyError) -> Self {
        match bad {
            ReplyError::Server(error) => error.into(),
            ReplyError::Malformed(what) => crate::error::Error::new(
                crate::error::ErrorKind::Incompatible,
                format!("the reply is not of this protocol: {what}"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_and_a_list_say_the_same() {
        let list = [
            RespValue::String("lock".into()),
            RespValue::Int(1700),
            RespValue::Int(1),
            RespValue::Int(5),
        ];
        for reply in [RespValue::String("lock 1700 1 5".into()), RespValue::Array(list.into())] {
            let (envelope, status, mut rest) = ReplyReader::parse_header(reply).unwrap();
            assert_eq!(envelope, Envelope { server_now: 1700, has_pump_work: true });
            assert_eq!(status.as_bytes(), b"lock");
            assert!(!rest.is_empty());
            assert_eq!(rest.number().unwrap(), 5);
            assert!(rest.is_empty());
            assert!(rest.number().is_err(), "that was all");
        }
    }

    #[test]
    fn elements_open_of_malformed_reply_returns_garbled() {
        for text in ["", "granted", "granted 17", "granted x 0", "granted 17 -1", "granted  17 0"] {
            let opened = ReplyReader::parse_header(RespValue::String(text.into()));
            assert!(matches!(opened, Err(ReplyError::Malformed(_))), "{text:?}");
        }
        let words = RespValue::Array(vec![
            RespValue::String("lock".into()),
            RespValue::String("17".into()),
        ]);
        for reply in [RespValue::Nil, RespValue::Int(1), RespValue::Array(vec![]), words] {
            assert!(matches!(ReplyReader::parse_header(reply), Err(ReplyError::Malformed(_))));
        }
    }
}
