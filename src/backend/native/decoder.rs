//! Decodes what a server sends, from the bytes as they arrive: RESP3, which includes RESP2.
//!
//! No byte is searched twice for the end of a line. The size of a reply is limited: the connection
//! is closed if the other side is no server, or a broken one.

use bytes::{Buf, Bytes, BytesMut};
use rwlease_core::excerpt::excerpt_of;
use rwlease_core::resp::{ProtocolError, RespValue, ServerError};

const MAX_REPLY_BYTES: usize = 64 << 20;
/// The most elements of one reply, in all its lists together.
const MAX_ELEMENTS: usize = 1 << 20;
/// The longest line: a number, an error, a simple string.
const MAX_LINE: usize = 64 << 10;
/// How deep lists may be nested.
const MAX_DEPTH: usize = 32;
/// The most elements for which a list reserves room before they have arrived.
const MAX_PREALLOCATED: usize = 64;
/// The least capacity for one read.
const MIN_READ: usize = 16 << 10;

const CRLF: &[u8] = b"\r\n";

/// Begins what a TLS server sends to a client that does not speak TLS.
const TLS_ALERT: u8 = 0x15;

/// One item that a server sends.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// The answer to a command.
    Reply(RespValue),
    /// Something that was not requested, in its parts.
    Push(Vec<RespValue>),
}

/// Takes bytes, and returns the items in them.
#[derive(Debug, Default)]
pub struct Decoder {
    incoming: BytesMut,
    /// How many bytes of `incoming` are known not to end a line.
    scanned: usize,
    /// The incomplete lists, from the outermost to the innermost.
    open_aggregates: Vec<OpenAggregate>,
    /// The size of the current reply so far.
    bytes: usize,
    elements: usize,
}

#[derive(Debug)]
struct OpenAggregate {
    kind: AggregateKind,
    remaining: usize,
    items: Vec<RespValue>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AggregateKind {
    Reply,
    Push,
    /// Data about the value that follows. It is dropped.
    Attribute,
}

enum DecodedItem {
    Value(RespValue),
    Aggregate(AggregateKind, usize),
}

impl Decoder {
    /// The buffer for the next read, with room for at least a fourth of `MIN_READ` bytes.
    pub fn read_buffer(&mut self) -> &mut BytesMut {
        if self.incoming.capacity() - self.incoming.len() < MIN_READ / 4 {
            self.incoming.reserve(MIN_READ);
        }
        &mut self.incoming
    }

    /// The next item, if it has arrived completely.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        while let Some(token) = self.next_item()? {
            if let Some(frame) = self.push_item(token) {
                (self.bytes, self.elements) = (0, 0);
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn next_item(&mut self) -> Result<Option<DecodedItem>, ProtocolError> {
        // The bytes of an alert can look like the end of a line.
        if self.incoming.first() == Some(&TLS_ALERT) {
            return Err(ProtocolError::new("the port expects TLS"));
        }
        let end = self.line_end();
        if end.unwrap_or(self.incoming.len()) > MAX_LINE {
            return Err(TOO_LONG);
        }
        let Some(end) = end else {
            return Ok(None);
        };
        let line = self.incoming[..end].strip_suffix(b"\r").ok_or(MISSING_CRLF)?;
        let (&kind, line) = line.split_first().ok_or(MISSING_CRLF)?;
        let value = match kind {
            b':' => RespValue::Int(number(line)?),
            // The nulls of RESP2.
            b'$' | b'*' if line == b"-1" => RespValue::Nil,
            b'$' | b'=' | b'!' => {
                let size = length(line)?;
                return self.bulk_string(kind, end + 1, size);
            }
            b'+' | b',' | b'(' => {
                let line = self.take(end + 1)?;
                return Ok(Some(DecodedItem::Value(RespValue::String(
                    line.slice(1..line.len() - CRLF.len()),
                ))));
            }
            b'-' => RespValue::Error(server_error(line)),
            b'_' if line.is_empty() => RespValue::Nil,
            b'_' => return Err(ProtocolError::new("invalid RESP3: a null with a text")),
            b'#' => match line {
                b"t" => RespValue::Int(1),
                b"f" => RespValue::Int(0),
                _ => return Err(ProtocolError::new("invalid RESP3: expected a boolean")),
            },
            b'*' | b'~' | b'%' | b'|' | b'>' => {
                let size = length(line)?;
                return self.begin_aggregate(kind, end + 1, size);
            }
            _ => return Err(unknown_type(&self.incoming[..end])),
        };
        self.skip(end + 1)?;
        Ok(Some(DecodedItem::Value(value)))
    }

    /// The place of the line feed that ends the line. An error may hold others: its text can be of
    /// a script or a module.
    fn line_end(&mut self) -> Option<usize> {
        let end = match self.incoming.first() {
            Some(b'-') => {
                let from = self.scanned.saturating_sub(1);
                let end = self.incoming[from..].windows(CRLF.len()).position(|part| part == CRLF);
                end.map(|end| from + end + 1)
            }
            _ => {
                let end = self.incoming[self.scanned..].iter().position(|byte| *byte == b'\n');
                end.map(|end| self.scanned + end)
            }
        };
        // The line of a string that has not arrived completely is looked at again.
        self.scanned = end.unwrap_or(self.incoming.len());
        end
    }

    /// A string of that size, after a line of that length.
    fn bulk_string(
        &mut self,
        kind: u8,
        line: usize,
        size: usize,
    ) -> Result<Option<DecodedItem>, ProtocolError> {
        let whole = size.checked_add(line + CRLF.len()).ok_or(TOO_LONG)?;
        if whole > MAX_REPLY_BYTES - self.bytes {
            return Err(TOO_LONG);
        }
        if self.incoming.len() < whole {
            return Ok(None);
        }
        if &self.incoming[line + size..whole] != CRLF {
            return Err(ProtocolError::new("invalid RESP3: string is not terminated by CRLF"));
        }
        let text = self.take(whole)?.slice(line..line + size);
        Ok(Some(DecodedItem::Value(match kind {
            b'!' => RespValue::Error(server_error(&text)),
            // Its text follows a prefix, `txt:` or `mkd:`.
            b'=' if text.len() >= 4 => RespValue::String(text.slice(4..)),
            _ => RespValue::String(text),
        })))
    }

    /// A list with that many elements, after a line of that length.
    fn begin_aggregate(
        &mut self,
        kind: u8,
        line: usize,
        size: usize,
    ) -> Result<Option<DecodedItem>, ProtocolError> {
        let (kind, size) = match kind {
            b'>' if self.open_aggregates.is_empty() => (AggregateKind::Push, size),
            b'>' => return Err(ProtocolError::new("invalid RESP3: a push inside a reply")),
            b'|' => (AggregateKind::Attribute, size.saturating_mul(2)),
            b'%' => (AggregateKind::Reply, size.saturating_mul(2)),
            _ => (AggregateKind::Reply, size),
        };
        self.elements = self.elements.saturating_add(size);
        if self.elements > MAX_ELEMENTS {
            return Err(TOO_LONG);
        }
        if self.open_aggregates.len() >= MAX_DEPTH {
            return Err(ProtocolError::new("reply is nested more than 32 levels deep"));
        }
        self.skip(line)?;
        Ok(Some(DecodedItem::Aggregate(kind, size)))
    }

    /// Puts a token into the list where it belongs, and closes the lists that it completes.
    fn push_item(&mut self, token: DecodedItem) -> Option<Frame> {
        match token {
            DecodedItem::Aggregate(kind, left) => {
                self.open_aggregates.push(OpenAggregate {
                    kind,
                    remaining: left,
                    items: Vec::with_capacity(left.min(MAX_PREALLOCATED)),
                });
            }
            DecodedItem::Value(value) => match self.open_aggregates.last_mut() {
                Some(list) => list.put(value),
                None => return Some(Frame::Reply(value)),
            },
        }
        while let Some(OpenAggregate { kind, items, .. }) =
            self.open_aggregates.pop_if(|list| list.remaining == 0)
        {
            match (kind, self.open_aggregates.last_mut()) {
                (AggregateKind::Attribute, _) => return None,
                (AggregateKind::Push, _) => return Some(Frame::Push(items)),
                (AggregateKind::Reply, Some(list)) => list.put(RespValue::Array(items)),
                (AggregateKind::Reply, None) => return Some(Frame::Reply(RespValue::Array(items))),
            }
        }
        None
    }

    fn take(&mut self, size: usize) -> Result<Bytes, ProtocolError> {
        self.count_bytes(size)?;
        Ok(self.incoming.split_to(size).freeze())
    }

    fn skip(&mut self, size: usize) -> Result<(), ProtocolError> {
        self.count_bytes(size)?;
        self.incoming.advance(size);
        Ok(())
    }

    fn count_bytes(&mut self, size: usize) -> Result<(), ProtocolError> {
        self.scanned = 0;
        self.bytes += size;
        if self.bytes > MAX_REPLY_BYTES { Err(TOO_LONG) } else { Ok(()) }
    }
}

impl OpenAggregate {
    fn put(&mut self, value: RespValue) {
        self.items.push(value);
        self.remaining -= 1;
    }
}

const TOO_LONG: ProtocolError = ProtocolError::new("reply is too long");
const MISSING_CRLF: ProtocolError =
    ProtocolError::new("invalid RESP3: line is not terminated by CRLF");
const NO_LENGTH: ProtocolError = ProtocolError::new("invalid RESP3: expected a length");

fn number(digits: &[u8]) -> Result<i64, ProtocolError> {
    let digits = std::str::from_utf8(digits).ok();
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or(ProtocolError::new("invalid RESP3: expected an integer"))
}

/// The length of a string or a list.
fn length(digits: &[u8]) -> Result<usize, ProtocolError> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    usize::try_from(number(digits)?).ok().filter(|_| is_number).ok_or(NO_LENGTH)
}

/// The failure for a line that begins with none of the types. The other side may be no server of
/// this protocol at all.
fn unknown_type(line: &[u8]) -> ProtocolError {
    if line.starts_with(b"HTTP/") {
        return ProtocolError::new("the port speaks HTTP");
    }
    let line = line.trim_ascii_end().escape_ascii();
    ProtocolError(excerpt_of(format_args!("invalid RESP3: unknown type in \"{line}\"")).into())
}

fn server_error(line: &[u8]) -> ServerError {
    ServerError::parse(&String::from_utf8_lossy(line))
}

#[cfg(test)]
mod tests;
