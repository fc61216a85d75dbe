//! The answer of a command, before it is converted for a client or for a script.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::node::{Reply, ServerError};

/// A short string of bytes: a key, a field, a value.
pub(super) type Blob = SmallVec<[u8; 32]>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Nil,
    Int(i64),
    Bulk(Blob),
    /// A simple string. A script sees a table with the field `ok`.
    Status(&'static str),
    List(Vec<Answer>),
}

/// An error reply: a code and a text, on one line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure(Cow<'static, str>);

pub(super) type Outcome = Result<Answer, Failure>;

pub(super) const OK: Answer = Answer::Status("OK");

impl Answer {
    pub(super) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Answer::Bulk(Blob::from_slice(bytes.as_ref()))
    }

    pub(super) fn bulk_or_nil(bytes: Option<&Blob>) -> Self {
        bytes.cloned().map_or(Answer::Nil, Answer::Bulk)
    }

    pub(super) fn count(count: usize) -> Self {
        Answer::Int(count as i64)
    }
}

impl Failure {
    pub(super) const WRONG_TYPE: Self =
        Failure::of("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const SYNTAX: Self = Failure::of("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self =
        Failure::of("ERR value is not an integer or out of range");
    pub(super) const FULL: Self =
        Failure::of("OOM command not allowed when used memory > 'maxmemory'.");
    pub(super) const NOT_IN_SCRIPTS: Self =
        Failure::of("ERR This Redis command is not allowed from script");
    pub(super) const NO_CLUSTER: Self =
        Failure::of("ERR This instance has cluster support disabled");

    pub(super) const fn of(line: &'static str) -> Self {
        Failure(Cow::Borrowed(line))
    }

    pub(super) fn new(line: impl Into<String>) -> Self {
        Failure(Cow::Owned(line.into()))
    }

    pub(super) fn line(&self) -> &str {
        &self.0
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Nil => Reply::Nil,
            Answer::Int(number) => Reply::Int(number),
            Answer::Bulk(bytes) => Reply::Text(Bytes::copy_from_slice(&bytes)),
            Answer::Status(text) => Reply::Text(Bytes::from_static(text.as_bytes())),
            Answer::List(items) => Reply::List(items.into_iter().map(Reply::from).collect()),
        }
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        Reply::Error(failure.into())
    }
}

impl From<Failure> for ServerError {
    /// The code is the part before the first space.
    fn from(failure: Failure) -> Self {
        let line: Vec<u8> = in_one_line(failure.0.as_bytes()).collect();
        ServerError::parse(&String::from_utf8_lossy(&line))
    }
}

/// Makes a text fit into a reply of one line: line breaks become spaces, and a zero byte ends it.
pub(super) fn in_one_line(text: &[u8]) -> impl Iterator<Item = u8> {
    let text = text.iter().take_while(|byte| **byte != 0);
    text.map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        byte => *byte,
    })
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        outcome.map_or_else(Reply::from, Reply::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_its_code_and_the_rest_in_one_line() {
        let error = |line: &str| ServerError::from(Failure::new(line));
        let (code, detail) = ("MY".to_owned(), "own  text".to_owned());
        assert_eq!(error("MY own\r\ntext"), ServerError { code, detail });
        assert_eq!(error("BARE").code, "BARE");
        assert_eq!(error("CUT\0off").code, "CUT");
        assert_eq!(error("").code, "");
    }
}
