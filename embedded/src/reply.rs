//! The answer of a command, before it is converted for a client or for a script.

use std::borrow::Cow;

use bytes::Bytes;
use rwlease_core::resp::{RespValue, ServerError};
use smallvec::SmallVec;

/// A short string of bytes: a key, a field, a value.
pub(crate) type Blob = SmallVec<[u8; 32]>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RedisReply {
    Nil,
    Int(i64),
    Bulk(Blob),
    /// A simple string. A script sees a table with the field `ok`.
    Status(&'static str),
    List(Vec<RedisReply>),
}

/// An error reply: a code and a text, on one line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorReply(Cow<'static, str>);

pub(crate) type CommandResult = Result<RedisReply, ErrorReply>;

pub(crate) const OK: RedisReply = RedisReply::Status("OK");

impl RedisReply {
    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        RedisReply::Bulk(Blob::from_slice(bytes.as_ref()))
    }

    pub(crate) fn bulk_or_nil(bytes: Option<&Blob>) -> Self {
        bytes.cloned().map_or(RedisReply::Nil, RedisReply::Bulk)
    }

    pub(crate) fn count(count: usize) -> Self {
        RedisReply::Int(count as i64)
    }
}

impl ErrorReply {
    pub(crate) const WRONG_TYPE: Self = ErrorReply::from_static(
        "WRONGTYPE Operation against a key holding the wrong kind of value",
    );
    pub(crate) const SYNTAX: Self = ErrorReply::from_static("ERR syntax error");
    pub(crate) const NOT_AN_INTEGER: Self =
        ErrorReply::from_static("ERR value is not an integer or out of range");
    pub(crate) const OUT_OF_MEMORY: Self =
        ErrorReply::from_static("OOM command not allowed when used memory > 'maxmemory'.");
    pub(crate) const NOT_IN_SCRIPTS: Self =
        ErrorReply::from_static("ERR This Redis command is not allowed from script");
    pub(crate) const NO_CLUSTER: Self =
        ErrorReply::from_static("ERR This instance has cluster support disabled");

    pub(crate) const fn from_static(line: &'static str) -> Self {
        ErrorReply(Cow::Borrowed(line))
    }

    pub(crate) fn new(line: impl Into<String>) -> Self {
        ErrorReply(Cow::Owned(line.into()))
    }

    pub(crate) fn line(&self) -> &str {
        &self.0
    }
}

impl From<RedisReply> for RespValue {
    fn from(answer: RedisReply) -> Self {
        match answer {
            RedisReply::Nil => RespValue::Nil,
            RedisReply::Int(number) => RespValue::Int(number),
            RedisReply::Bulk(bytes) => RespValue::String(Bytes::copy_from_slice(&bytes)),
            RedisReply::Status(text) => RespValue::String(Bytes::from_static(text.as_bytes())),
            RedisReply::List(items) => {
                RespValue::Array(items.into_iter().map(RespValue::from).collect())
            }
        }
    }
}

impl From<ErrorReply> for RespValue {
    fn from(failure: ErrorReply) -> Self {
        RespValue::Error(failure.into())
    }
}

impl From<ErrorReply> for ServerError {
    /// The code is the part before the first space.
    fn from(failure: ErrorReply) -> Self {
        let line: Vec<u8> = to_single_line(failure.0.as_bytes()).collect();
        ServerError::parse(&String::from_utf8_lossy(&line))
    }
}

/// Makes a text fit into a reply of one line: line breaks become spaces, and a zero byte ends it.
pub(crate) fn to_single_line(text: &[u8]) -> impl Iterator<Item = u8> {
    let text = text.iter().take_while(|byte| **byte != 0);
    text.map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        byte => *byte,
    })
}

/// The reply to a command.
pub(crate) fn to_resp(outcome: CommandResult) -> RespValue {
    outcome.map_or_else(RespValue::from, RespValue::from)
}
