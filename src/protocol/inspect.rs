//! `inspect` and `holds`.

use super::Scripts;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use crate::backend::{Command, RespValue};
use crate::router::Call;

/// Stands for no acquisition: for a list that has been read to its end.
pub(super) const NONE: &str = "none";

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub(crate) struct InspectRequest {
    pub(crate) page: PageCursor,
    /// The maximum number of entries of each kind, 1 to 100.
    pub(crate) page_size: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageCursor {
    /// The first reader's index.
    pub(crate) reader: u64,
    /// The first waiting writer: `-` for the head of the list, `none` for none.
    pub(crate) writer: String,
    pub(crate) waiting_reader: String,
}

impl Default for PageCursor {
    fn default() -> Self {
        PageCursor { reader: 0, writer: "-".into(), waiting_reader: "-".into() }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InspectReply {
    /// The server's time, ms.
    pub(crate) server_now: u64,
    pub(crate) token: u64,
    pub(crate) writer: Option<(String, HolderRecord)>,
    pub(crate) reader_count: u64,
    pub(crate) waiter_count: u64,
    pub(crate) upgrader: Option<WaiterRecord>,
    /// Leases with this token or a lower one are not renewed.
    pub(crate) revoked_up_to: u64,
    pub(crate) readers: Vec<(String, HolderRecord)>,
    pub(crate) waiting_writers: Vec<WaiterRecord>,
    pub(crate) waiting_readers: Vec<WaiterRecord>,
}

/// A holder's record. Its lease may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderRecord {
    pub(crate) deadline: u64,
    pub(crate) token: u64,
    /// Its client may not be using the lease, and releases it when another client wants the lock.
    pub(crate) cached: bool,
}

/// A waiter's entry. The waiter may be dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaiterRecord {
    pub(crate) id: String,
    /// The entry behind it, or `None` for the last one.
    pub(crate) next: Option<String>,
    pub(crate) ticket: u64,
    /// The time of its last poll, server ms.
    pub(crate) last_poll: u64,
    pub(crate) waiter_ttl: u64,
    /// The time of its arrival, server ms.
    pub(crate) joined_at: u64,
    /// The number of permits it wants, if it waits for a semaphore.
    pub(crate) permits: u32,
}

impl InspectRequest {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let PageCursor { reader, writer, waiting_reader } = &self.page;
        let args =
            Command::new().arg_u64(*reader).arg(writer).arg(waiting_reader).arg_u64(self.page_size);
        Call {
            script: &scripts.inspect,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }

    pub(crate) fn read(reply: RespValue) -> Result<InspectReply, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let now = envelope.server_now;
        match status.as_bytes() {
            b"absent" => Ok(InspectReply { server_now: now, ..InspectReply::default() }),
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
            _ => Err(status.unknown_error()),
        }
    }
}

impl PageCursor {
    /// The page that follows one with these last entries. `reader` is the index of the first reader
    /// that was not examined.
    pub(crate) fn from(
        reader: u64,
        writer: Option<String>,
        waiting_reader: Option<String>,
    ) -> PageCursor {
        let or_none = |id: Option<String>| id.unwrap_or_else(|| NONE.into());
        PageCursor { reader, writer: or_none(writer), waiting_reader: or_none(waiting_reader) }
    }
}

/// Queries whether an acquisition holds the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldsRequest<'a> {
    pub(crate) id: &'a str,
}

impl HoldsRequest<'_> {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        Call {
            script: &scripts.holds,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args: Command::new().arg(self.id),
            not_after: None,
        }
    }

    /// The token by which it holds the lock, if it does.
    pub(crate) fn read(reply: RespValue) -> Result<(Envelope, Option<u64>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let token = match status.as_bytes() {
            b"reads" | b"writes" => Some(rest.number()?),
            b"absent" => None,
            _ => return Err(status.unknown_error()),
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
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse().ok());
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
    let number = |digits: &str| digits.parse().map_err(|_| malformed(text));
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
    ReplyError::Malformed(format!("a malformed record: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> RespValue {
        RespValue::String(text.into())
    }

    fn lock(elements: Vec<RespValue>) -> RespValue {
        RespValue::Array(
            [text("lock"), RespValue::Int(1_000), RespValue::Int(0)]
                .into_iter()
                .chain(elements)
                .collect(),
        )
    }

    #[test]
    fn a_page_is_read() {
        let view = InspectRequest::read(lock(vec![
            RespValue::Int(7),
            text("c00000000015000000000000000007abcdefghijklmnopqr"),
            RespValue::Int(1),
            RespValue::Int(2),
            RespValue::Array(vec![
                text("upgrades"),
                text("u - - 0 900 10000 30000 1000 f - x 700"),
            ]),
            RespValue::Int(3),
            RespValue::Array(vec![text("reader"), text("g000000000160000000000000000060")]),
            RespValue::Array(vec![
                text("waits"),
                text("w - next 5 900 10000 30000 1000 f - x 800"),
            ]),
            RespValue::Array(vec![]),
        ]))
        .unwrap();
        let record = HolderRecord { deadline: 1_500, token: 7, cached: true };
        assert_eq!(view.writer, Some(("abcdefghijklmnopqr".into(), record)));
        assert_eq!((view.reader_count, view.waiter_count, view.revoked_up_to), (1, 2, 3));
        let upgrader = view.upgrader.unwrap();
        assert_eq!((upgrader.id.as_str(), upgrader.joined_at), ("upgrades", 700));
        assert_eq!(view.readers[0].0, "reader");
        assert_eq!(view.readers[0].1, HolderRecord { deadline: 1_600, token: 6, cached: false });
        let entry = &view.waiting_writers[0];
        assert_eq!((entry.next.as_deref(), entry.ticket, entry.joined_at), (Some("next"), 5, 800));
    }

    #[test]
    fn inspect_read_of_absent_lock_is_empty_and_of_garbage_is_error() {
        let absent = RespValue::Array(vec![text("absent"), RespValue::Int(9), RespValue::Int(0)]);
        let view = InspectRequest::read(absent).unwrap();
        assert_eq!((view.server_now, view.token, view.writer), (9, 0, None));
        assert!(record("h123").is_err());
        assert!(record("hxxxxxxxxxxxxx0000000000000007").is_err());
        assert!(entry("o", "w - - 1 2 3").is_err());
    }
}
