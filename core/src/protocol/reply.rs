use std::ops::Range;

use bytes::Bytes;

use crate::decimal::parse_leading_u64;
use crate::resp::{RespValue, ServerError};

/// A reply that does not have its script's shape, or an error from the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReplyError {
    #[error("{0}")]
    Server(ServerError),
    #[error("{0}")]
    Malformed(String),
}

impl ReplyError {
    pub fn unknown_status(status: &Bytes) -> ReplyError {
        ReplyError::Malformed(format!("unknown status {status:?}"))
    }
}

/// The part that all replies have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The server's time, ms; 0 if the script did not read the clock.
    pub server_now: u64,
    /// Whether work is left over, to be continued by `grant_waiters`.
    pub has_more_work: bool,
}

/// A reply's elements, read one after the other.
#[derive(Debug)]
pub enum ReplyReader {
    /// Words in one text, and the position of the rest. Each word has a space before it.
    Words(Bytes, usize),
    /// The rest of a list.
    List(std::vec::IntoIter<RespValue>),
}

impl ReplyReader {
    /// Splits a reply into its envelope, the word that names the outcome, and the rest.
    pub fn parse_header(reply: RespValue) -> Result<(Envelope, Bytes, ReplyReader), ReplyError> {
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
            other => return Err(ReplyError::Malformed(format!("expected a text, got {other:?}"))),
        };
        let (now, more) = (rest.number()?, rest.number()? != 0);
        Ok((Envelope { server_now: now, has_more_work: more }, status, rest))
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        match self {
            ReplyReader::Words(text, at) => *at == text.len(),
            ReplyReader::List(rest) => rest.len() == 0,
        }
    }

    pub fn number(&mut self) -> Result<u64, ReplyError> {
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

    pub fn bytes(&mut self) -> Result<Bytes, ReplyError> {
        match self.next() {
            Some(RespValue::String(text)) => Ok(text),
            other => Err(malformed(other, "a string")),
        }
    }

    pub fn text(&mut self) -> Result<String, ReplyError> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|_| ReplyError::Malformed("expected UTF-8".into()))
    }

    /// Reads a list of strings.
    pub fn texts(&mut self) -> Result<Vec<String>, ReplyError> {
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

fn malformed(found: Option<RespValue>, wanted: &str) -> ReplyError {
    ReplyError::Malformed(match found {
        Some(found) => format!("expected {wanted}, got {found:?}"),
        None => format!("expected {wanted}, got nothing"),
    })
}

#[cfg(test)]
mod tests;
