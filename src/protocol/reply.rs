//! Parsing the replies of scripts.

use std::ops::Range;

use bytes::Bytes;

use crate::decimal::leading_number;
use crate::node::{Reply, ServerError};

/// A reply that does not have its script's shape, or an error from the server.
#[derive(Debug)]
pub(crate) enum BadReply {
    Error(ServerError),
    Garbled(String),
}

/// The part that all replies have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Envelope {
    /// The server's time, ms; 0 if the script did not read the clock.
    pub(crate) now: u64,
    /// Whether work is left over, to be continued by `pump`.
    pub(crate) more: bool,
}

/// A reply's elements, read one after the other.
#[derive(Debug)]
pub(crate) enum Elements {
    /// Words in one text, and the position of the rest. Each word has a space before it.
    Words(Bytes, usize),
    /// The rest of a list.
    List(std::vec::IntoIter<Reply>),
}

impl Elements {
    /// Splits a reply into its envelope, its status and the rest.
    pub(crate) fn open(reply: Reply) -> Result<(Envelope, Status, Elements), BadReply> {
        let (status, mut rest) = match reply {
            Reply::Text(text) => {
                let end = word_end(&text, 0);
                (text.slice(..end), Elements::Words(text, end))
            }
            Reply::List(elements) => {
                let mut rest = Elements::List(elements.into_iter());
                (rest.bytes()?, rest)
            }
            Reply::Error(error) => return Err(BadReply::Error(error)),
            other => return Err(BadReply::Garbled(format!("{other:?} instead of a text"))),
        };
        let (now, more) = (rest.number()?, rest.number()? != 0);
        Ok((Envelope { now, more }, Status(status), rest))
    }

    /// Whether nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Elements::Words(text, at) => *at == text.len(),
            Elements::List(rest) => rest.len() == 0,
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, BadReply> {
        let found = match self {
            Elements::Words(text, at) if *at == text.len() => None,
            Elements::Words(text, at) => match leading_number(&text[*at + 1..]) {
                Some((number, digits)) => {
                    *at += 1 + digits;
                    return Ok(number);
                }
                None => next_word(text, at).map(|word| Reply::Text(text.slice(word))),
            },
            Elements::List(rest) => match rest.next() {
                Some(Reply::Int(number)) if number >= 0 => return Ok(number as u64),
                other => other,
            },
        };
        Err(garbled(found, "a number"))
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, BadReply> {
        match self.next() {
            Some(Reply::Text(text)) => Ok(text),
            other => Err(garbled(other, "a string")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, BadReply> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|_| BadReply::Garbled("a string that is not UTF-8".into()))
    }

    /// Reads a list of strings.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, BadReply> {
        match self.next() {
            Some(Reply::List(list)) => {
                let count = list.len();
                let mut inner = Elements::List(list.into_iter());
                (0..count).map(|_| inner.text()).collect()
            }
            other => Err(garbled(other, "a list")),
        }
    }

    fn next(&mut self) -> Option<Reply> {
        match self {
            Elements::List(rest) => rest.next(),
            Elements::Words(text, at) => {
                next_word(text, at).map(|word| Reply::Text(text.slice(word)))
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
pub(crate) struct Status(Bytes);

impl Status {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn unknown(&self) -> BadReply {
        BadReply::Garbled(format!("unknown status {:?}", self.0))
    }
}

fn garbled(found: Option<Reply>, wanted: &str) -> BadReply {
    BadReply::Garbled(match found {
        Some(found) => format!("{found:?} instead of {wanted}"),
        None => format!("nothing instead of {wanted}"),
    })
}

impl From<BadReply> for crate::error::Error {
    fn from(bad: BadReply) -> Self {
        match bad {
            BadReply::Error(error) => error.into(),
            BadReply::Garbled(what) => crate::error::Error::new(
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
        let list = [Reply::Text("lock".into()), Reply::Int(1700), Reply::Int(1), Reply::Int(5)];
        for reply in [Reply::Text("lock 1700 1 5".into()), Reply::List(list.into())] {
            let (envelope, status, mut rest) = Elements::open(reply).unwrap();
            assert_eq!(envelope, Envelope { now: 1700, more: true });
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
            let opened = Elements::open(Reply::Text(text.into()));
            assert!(matches!(opened, Err(BadReply::Garbled(_))), "{text:?}");
        }
        let words = Reply::List(vec![Reply::Text("lock".into()), Reply::Text("17".into())]);
        for reply in [Reply::Nil, Reply::Int(1), Reply::List(vec![]), words] {
            assert!(matches!(Elements::open(reply), Err(BadReply::Garbled(_))));
        }
    }
}
