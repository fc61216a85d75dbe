use super::call::Call;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::decimal::parse_u64;
use crate::resp::{Command, RespValue};

/// Stands for no acquisition: for a list that has been read to its end.
pub(super) const NONE: &str = "none";

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub struct InspectRequest {
    pub page: PageCursor,
    /// The maximum number of entries of each kind, 1 to 100.
    pub page_size: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor {
    /// The first reader's index.
    pub reader: u64,
    /// The first waiting writer: `-` for the head of the list, `none` for none.
    pub writer: String,
    pub waiting_reader: String,
}

impl Default for PageCursor {
    fn default() -> Self {
        PageCursor { reader: 0, writer: "-".into(), waiting_reader: "-".into() }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InspectReply {
    /// The server's time, ms.
    pub server_now: u64,
    pub token: u64,
    pub writer: Option<(String, HolderRecord)>,
    pub reader_count: u64,
    pub waiter_count: u64,
    pub upgrader: Option<WaiterRecord>,
    /// Leases with this token or a lower one are not renewed.
    pub revoked_up_to: u64,
    pub readers: Vec<(String, HolderRecord)>,
    pub waiting_writers: Vec<WaiterRecord>,
    pub waiting_readers: Vec<WaiterRecord>,
}

/// A holder's record. Its lease may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderRecord {
    pub deadline: u64,
    pub token: u64,
    /// Its client may not be using the lease, and releases it when another client wants the lock.
    pub cached: bool,
}

/// A waiter's entry. The waiter may be dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterRecord {
    pub id: String,
    /// The entry behind it, or `None` for the last one.
    pub next: Option<String>,
    pub ticket: u64,
    /// The time of its last poll, server ms.
    pub last_poll: u64,
    pub waiter_ttl: u64,
    /// The time of its arrival, server ms.
    pub joined_at: u64,
    /// The number of permits it wants, if it waits for a semaphore.
    pub permits: u32,
}

impl InspectRequest {
    pub fn call(&self, lock: &LockKey) -> Call {
        let PageCursor { reader, writer, waiting_reader } = &self.page;
        let args =
            Command::new().arg_u64(*reader).arg(writer).arg(waiting_reader).arg_u64(self.page_size);
        Call::new(ScriptName::Inspect, lock, args)
    }

    pub fn read(reply: RespValue) -> Result<InspectReply, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let now = envelope.server_now;
        match &*status {
            b"not_found" => Ok(InspectReply { server_now: now, ..InspectReply::default() }),
            b"lock" => Ok(InspectReply {
                server_now: now,
                token: rest.number()?,
                writer: writer(&rest.text()?)?,
                reader_count: rest.number()?,
                waiter_count: rest.number()?,
                upgrader: parse_pairs(rest.texts()?, entry)?.pop(),
                revoked_up_to: rest.number()?,
                readers: parse_pairs(rest.texts()?, |id, text| {
                    record(text).map(|(record, _)| (id.to_owned(), record))
                })?,
                waiting_writers: parse_pairs(rest.texts()?, entry)?,
                waiting_readers: parse_pairs(rest.texts()?, entry)?,
            }),
            _ => Err(ReplyError::unknown_status(&status)),
        }
    }
}

impl PageCursor {
    /// The page that follows one with these last entries. `reader` is the index of the first reader
    /// that was not examined.
    pub fn from(reader: u64, writer: Option<String>, waiting_reader: Option<String>) -> PageCursor {
        let or_none = |id: Option<String>| id.unwrap_or_else(|| NONE.into());
        PageCursor { reader, writer: or_none(writer), waiting_reader: or_none(waiting_reader) }
    }
}

/// Queries whether an acquisition holds the lock.
#[derive(Clone, Copy, Debug)]
pub struct HoldsRequest<'a> {
    pub id: &'a str,
}

impl HoldsRequest<'_> {
    pub fn call(&self, lock: &LockKey) -> Call {
        Call::new(ScriptName::Holds, lock, Command::new().arg(self.id))
    }

    /// Parses the reply: the token of the lease, or `None` if the acquisition does not hold the
    /// lock.
    pub fn read(reply: RespValue) -> Result<(Envelope, Option<u64>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let token = match &*status {
            b"reads" | b"writes" => Some(rest.number()?),
            b"not_held" => None,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, token))
    }
}

fn writer(text: &str) -> Result<Option<(String, HolderRecord)>, ReplyError> {
    if text.is_empty() {
        return Ok(None);
    }
    let (record, id) = record(text)?;
    Ok(Some((id.to_owned(), record)))
}

/// Parses a record: the state, a deadline of 13 digits, a token of 16, and the rest.
pub(super) fn record(text: &str) -> Result<(HolderRecord, &str), ReplyError> {
    let number =
        |from: usize, to: usize| text.get(from..to).and_then(|digits| parse_u64(digits.as_bytes()));
    match (number(1, 14), number(14, 30), text.get(30..)) {
        (Some(deadline), Some(token), Some(rest)) => {
            let cached = text.starts_with(['k', 'c']);
            Ok((HolderRecord { deadline, token, cached }, rest))
        }
        _ => Err(malformed(text)),
    }
}

/// Parses an entry: mode, previous, next, ticket, seen, waiter_ttl, lease, window, fairness, node,
/// tag, since.
pub(super) fn entry(id: &str, text: &str) -> Result<WaiterRecord, ReplyError> {
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, _, next, ticket, seen, waiter_ttl, _, _, wants, _, _, since] = parts[..] else {
        return Err(malformed(text));
    };
    let number = |digits: &str| parse_u64(digits.as_bytes()).ok_or_else(|| malformed(text));
    Ok(WaiterRecord {
        id: id.to_owned(),
        next: (next != "-").then(|| next.to_owned()),
        ticket: number(ticket)?,
        last_poll: number(seen)?,
        waiter_ttl: number(waiter_ttl)?,
        joined_at: number(since)?,
        permits: wants.parse().unwrap_or(0), // a lock's waiter has a letter there
    })
}

pub(super) fn parse_pairs<T>(
    texts: Vec<String>,
    read: impl Fn(&str, &str) -> Result<T, ReplyError>,
) -> Result<Vec<T>, ReplyError> {
    texts
        .chunks_exact(2)
        .map(|pair| match pair {
            [id, text] => read(id, text),
            _ => Err(malformed("")),
        })
        .collect()
}

pub(super) fn malformed(text: &str) -> ReplyError {
    ReplyError::Malformed(format!("expected a record, got {text:?}"))
}

#[cfg(test)]
mod tests;
