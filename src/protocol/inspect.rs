//! `inspect` and `holds`.

use super::Scripts;
use super::key::LockKey;
use super::reply::{BadReply, Elements, Envelope};
use crate::node::{Command, Reply};
use crate::router::Call;

/// Stands for no acquisition: for a list that has been read to its end.
pub(super) const NONE: &str = "none";

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub(crate) struct Inspect {
    pub(crate) page: Page,
    /// The maximum number of entries of each kind, 1 to 100.
    pub(crate) most: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The first reader's index.
    pub(crate) reader: u64,
    /// The first waiting writer: `-` for the head of the list, `none` for none.
    pub(crate) writer: String,
    pub(crate) waiting_reader: String,
}

impl Default for Page {
    fn default() -> Self {
        Page { reader: 0, writer: "-".into(), waiting_reader: "-".into() }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The server's time, ms.
    pub(crate) now: u64,
    pub(crate) token: u64,
    pub(crate) writer: Option<(String, Record)>,
    pub(crate) readers: u64,
    pub(crate) waiters: u64,
    pub(crate) upgrader: Option<Entry>,
    /// Leases with this token or a lower one are not renewed.
    pub(crate) revoked: u64,
    pub(crate) reading: Vec<(String, Record)>,
    pub(crate) writers_waiting: Vec<Entry>,
    pub(crate) readers_waiting: Vec<Entry>,
}

/// A holder's record. Its lease may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) deadline: u64,
    pub(crate) token: u64,
    /// Its client may not be using the lease, and releases it when another client wants the lock.
    pub(crate) cached: bool,
}

/// A waiter's entry. The waiter may be dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// The entry behind it, or `None` for the last one.
    pub(crate) next: Option<String>,
    pub(crate) ticket: u64,
    /// The time of its last poll, server ms.
    pub(crate) seen: u64,
    pub(crate) waiter_ttl: u64,
    /// The time of its arrival, server ms.
    pub(crate) since: u64,
    /// The number of permits it wants, if it waits for a semaphore.
    pub(crate) permits: u32,
}

impl Inspect {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let Page { reader, writer, waiting_reader } = &self.page;
        let args =
            Command::new().number(*reader).word(writer).word(waiting_reader).number(self.most);
        Call {
            script: &scripts.inspect,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: None,
        }
    }

    pub(crate) fn read(reply: Reply) -> Result<View, BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let now = envelope.now;
        match status.as_bytes() {
            b"absent" => Ok(View { now, ..View::default() }),
            b"lock" => Ok(View {
                now,
                token: rest.number()?,
                writer: writer(&rest.text()?)?,
                readers: rest.number()?,
                waiters: rest.number()?,
                upgrader: pairs(rest.texts()?, entry)?.pop(),
                revoked: rest.number()?,
                reading: pairs(rest.texts()?, |id, text| {
                    record(text).map(|(record, _)| (id.to_owned(), record))
                })?,
                writers_waiting: pairs(rest.texts()?, entry)?,
                readers_waiting: pairs(rest.texts()?, entry)?,
            }),
            _ => Err(status.unknown()),
        }
    }
}

impl Page {
    /// The page that follows one with these last entries. `reader` is the index of the first reader
    /// that was not examined.
    pub(crate) fn from(
        reader: u64,
        writer: Option<String>,
        waiting_reader: Option<String>,
    ) -> Page {
        let or_none = |id: Option<String>| id.unwrap_or_else(|| NONE.into());
        Page { reader, writer: or_none(writer), waiting_reader: or_none(waiting_reader) }
    }
}

/// Queries whether an acquisition holds the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holds<'a> {
    pub(crate) id: &'a str,
}

impl Holds<'_> {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        Call {
            script: &scripts.holds,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args: Command::new().word(self.id),
            not_after: None,
        }
    }

    /// The token by which it holds the lock, if it does.
    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Option<u64>), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let token = match status.as_bytes() {
            b"reads" | b"writes" => Some(rest.number()?),
            b"absent" => None,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, token))
    }
}

fn writer(text: &str) -> Result<Option<(String, Record)>, BadReply> {
    if text.is_empty() {
        return Ok(None);
    }
    let (record, id) = record(text)?;
    Ok(Some((id.to_owned(), record)))
}

/// Parses a record: the state, a deadline of 13 digits, a token of 16, and the rest.
pub(super) fn record(text: &str) -> Result<(Record, &str), BadReply> {
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse().ok());
    match (number(1, 14), number(14, 30), text.get(30..)) {
        (Some(deadline), Some(token), Some(rest)) => {
            let cached = text.starts_with(['k', 'c']);
            Ok((Record { deadline, token, cached }, rest))
        }
        _ => Err(malformed(text)),
    }
}

/// Parses an entry: mode, previous, next, ticket, seen, waiter_ttl, lease, window, fairness, node,
/// tag, since.
pub(super) fn entry(id: &str, text: &str) -> Result<Entry, BadReply> {
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, _, next, ticket, seen, waiter_ttl, _, _, wants, _, _, since] = parts[..] else {
        return Err(malformed(text));
    };
    let number = |digits: &str| digits.parse().map_err(|_| malformed(text));
    Ok(Entry {
        id: id.to_owned(),
        next: (next != "-").then(|| next.to_owned()),
        ticket: number(ticket)?,
        seen: number(seen)?,
        waiter_ttl: number(waiter_ttl)?,
        since: number(since)?,
        permits: wants.parse().unwrap_or(0), // a lock's waiter has a letter there
    })
}

pub(super) fn pairs<T>(
    texts: Vec<String>,
    read: impl Fn(&str, &str) -> Result<T, BadReply>,
) -> Result<Vec<T>, BadReply> {
    texts
        .chunks_exact(2)
        .map(|pair| match pair {
            [id, text] => read(id, text),
            _ => Err(malformed("")),
        })
        .collect()
}

pub(super) fn malformed(text: &str) -> BadReply {
    BadReply::Garbled(format!("a malformed record: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Reply {
        Reply::Text(text.into())
    }

    fn lock(elements: Vec<Reply>) -> Reply {
        Reply::List(
            [text("lock"), Reply::Int(1_000), Reply::Int(0)].into_iter().chain(elements).collect(),
        )
    }

    #[test]
    fn a_page_is_read() {
        let view = Inspect::read(lock(vec![
            Reply::Int(7),
            text("c00000000015000000000000000007abcdefghijklmnopqr"),
            Reply::Int(1),
            Reply::Int(2),
            Reply::List(vec![text("upgrades"), text("u - - 0 900 10000 30000 1000 f - x 700")]),
            Reply::Int(3),
            Reply::List(vec![text("reader"), text("g000000000160000000000000000060")]),
            Reply::List(vec![text("waits"), text("w - next 5 900 10000 30000 1000 f - x 800")]),
            Reply::List(vec![]),
        ]))
        .unwrap();
        let record = Record { deadline: 1_500, token: 7, cached: true };
        assert_eq!(view.writer, Some(("abcdefghijklmnopqr".into(), record)));
        assert_eq!((view.readers, view.waiters, view.revoked), (1, 2, 3));
        let upgrader = view.upgrader.unwrap();
        assert_eq!((upgrader.id.as_str(), upgrader.since), ("upgrades", 700));
        assert_eq!(view.reading[0].0, "reader");
        assert_eq!(view.reading[0].1, Record { deadline: 1_600, token: 6, cached: false });
        let entry = &view.writers_waiting[0];
        assert_eq!((entry.next.as_deref(), entry.ticket, entry.since), (Some("next"), 5, 800));
    }

    #[test]
    fn inspect_read_of_absent_lock_is_empty_and_of_garbage_is_error() {
        let absent = Reply::List(vec![text("absent"), Reply::Int(9), Reply::Int(0)]);
        let view = Inspect::read(absent).unwrap();
        assert_eq!((view.now, view.token, view.writer), (9, 0, None));
        assert!(record("h123").is_err());
        assert!(record("hxxxxxxxxxxxxx0000000000000007").is_err());
        assert!(entry("o", "w - - 1 2 3").is_err());
    }
}
