//! What goes over a connection: commands, replies, and the shape that a reply must have.

mod command;
mod pub_sub;
mod shape;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::excerpt::{excerpt, excerpt_of};

pub use command::{Command, EncodedScriptCall, push_header};
pub use pub_sub::PubSubEvent;
pub use shape::{GRANTED, ID_LEN, ProtocolError, ReplyShape, ScriptShape, server_ms};

/// Where a server listens, as the client dials it (after address translation).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    pub host: Arc<str>,
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A server's answer to one command.
#[derive(Clone, PartialEq)]
pub enum RespValue {
    Nil,
    Int(i64),
    /// A bulk string or a simple string ("OK").
    String(Bytes),
    Array(Vec<RespValue>),
    Error(ServerError),
}

/// Shows the beginning: a reply can have many megabytes.
impl fmt::Debug for RespValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&excerpt_of(format_args!("{:?}", FullReply(self))))
    }
}

struct FullReply<'a>(&'a RespValue);

impl fmt::Debug for FullReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            RespValue::Nil => f.write_str("nil"),
            RespValue::Int(number) => number.fmt(f),
            RespValue::String(text) => write!(f, "\"{}\"", text.escape_ascii()),
            RespValue::Array(items) => f.debug_list().entries(items.iter().map(FullReply)).finish(),
            RespValue::Error(error) => write!(f, "({error})"),
        }
    }
}

/// An error reply: the word at its beginning (`MOVED`, `NOSCRIPT`, `ERR`), and the rest of the
/// line, without what is too long to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{code} {message}")]
pub struct ServerError {
    pub code: String,
    pub message: String,
}

impl ServerError {
    pub fn new(code: &str, detail: &str) -> ServerError {
        ServerError { code: excerpt(code), message: excerpt(detail) }
    }

    /// Takes the line of an error reply apart.
    pub fn parse(line: &str) -> ServerError {
        let (code, detail) = line.split_once(' ').unwrap_or((line, ""));
        ServerError::new(code, detail)
    }
}
