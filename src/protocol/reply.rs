//! Reading the replies of scripts.

use crate::node::{Reply, ServerError};

/// A reply that is not of its script's shape, or an error that the server gave.
#[derive(Debug)]
pub(crate) enum BadReply {
    Error(ServerError),
    Garbled(String),
}

/// The part that all replies share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Envelope {
    /// The server's time, ms.
    pub(crate) now: u64,
    /// Work is left over: go on with `pump`.
    pub(crate) more: bool,
}

/// A reply's elements, taken one after the other.
#[derive(Debug)]
pub(crate) struct Elements {
    rest: std::vec::IntoIter<Reply>,
}

impl Elements {
    /// Opens a reply: its envelope, its status, and what follows.
    pub(crate) fn open(reply: Reply) -> Result<(Envelope, Status, Elements), BadReply> {
        let rest = match reply {
            Reply::List(elements) => elements.into_iter(),
            Reply::Error(error) => return Err(BadReply::Error(error)),
            other => return Err(BadReply::Garbled(format!("{other:?} instead of a list"))),
        };
        let mut elements = Elements { rest };
        let now = elements.number()?;
        let status = Status(elements.bytes()?);
        let more = elements.number()? != 0;
        Ok((Envelope { now, more }, status, elements))
    }

    pub(crate) fn number(&mut self) -> Result<u64, BadReply> {
        match self.rest.next() {
            Some(Reply::Int(number)) if number >= 0 => Ok(number as u64),
            other => Err(garbled(other, "a number")),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<bytes::Bytes, BadReply> {
        match self.rest.next() {
            Some(Reply::Text(text)) => Ok(text),
            other => Err(garbled(other, "a string")),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, BadReply> {
        String::from_utf8(self.bytes()?.to_vec())
            .map_err(|_| BadReply::Garbled("a string that is not UTF-8".into()))
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, BadReply> {
        match self.rest.next() {
            Some(Reply::List(list)) => {
                let mut inner = Elements { rest: list.into_iter() };
                (0..inner.rest.len()).map(|_| inner.text()).collect()
            }
            other => Err(garbled(other, "a list")),
        }
    }
}

/// The word that says how it went.
#[derive(Debug)]
pub(crate) struct Status(bytes::Bytes);

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
