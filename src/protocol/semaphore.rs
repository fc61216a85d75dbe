//! `semaphore/shrink`, `semaphore/set_limit` and `semaphore/inspect`. (To acquire, renew or release
//! permits, the requests of the locks are used, with scripts for semaphores.)

use super::Scripts;
use super::acquire::Grant;
use super::id::AcquisitionId;
use super::inspect::{Entry, NONE, Record, entry, malformed, pairs, record};
use super::key::LockKey;
use super::reply::{BadReply, Elements, Envelope};
use crate::clock::Moment;
use crate::node::{Command, Reply};
use crate::router::{Call, Script};

/// Gives back some of the permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shrink {
    /// The number of permits it keeps.
    pub(crate) keep: u32,
}

/// Changes the limit if it is the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetLimit {
    pub(crate) expected: u32,
    pub(crate) limit: u32,
}

/// The outcome of `SetLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitSet {
    Set,
    /// The semaphore has this limit instead of the expected one.
    Other(u32),
    Stale,
}

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub(crate) struct InspectSemaphore {
    pub(crate) page: SemaphorePage,
    /// The maximum number of entries of each kind, 1 to 100.
    pub(crate) most: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphorePage {
    /// The first holder's index.
    pub(crate) holder: u64,
    /// The first waiter, or `None` for none.
    pub(crate) waiter: Option<String>,
}

impl Default for SemaphorePage {
    fn default() -> Self {
        SemaphorePage { holder: 0, waiter: Some("-".into()) }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SemaphoreView {
    /// The server's time, ms.
    pub(crate) now: u64,
    pub(crate) token: u64,
    /// Zero if there is no such semaphore.
    pub(crate) limit: u32,
    pub(crate) used: u64,
    pub(crate) holders: u64,
    pub(crate) waiters: u64,
    /// The holders, with their permits.
    pub(crate) holding: Vec<(String, Record, u32)>,
    pub(crate) waiting: Vec<Entry>,
}

fn call(script: &'static Script, lock: &LockKey, args: Command) -> Call {
    Call { script, slot: lock.slot, key: lock.key.clone(), second_key: None, args, not_after: None }
}

impl Shrink {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        let args = Command::new().word(id.as_str()).number(self.keep.into());
        call(&scripts.semaphore_shrink, lock, args)
    }

    /// The lease, if the acquisition holds permits.
    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Option<Grant>), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let kept = match status.as_bytes() {
            b"kept" => Some(Grant::new(rest.number()?, rest.number()?)),
            b"lost" => None,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, kept))
    }
}

impl SetLimit {
    pub(crate) fn call(self, scripts: &'static Scripts, lock: &LockKey, not_after: Moment) -> Call {
        let args = Command::new().number(self.expected.into()).number(self.limit.into());
        let not_after = Some(not_after);
        Call { not_after, ..call(&scripts.semaphore_set_limit, lock, args) }
    }

    pub(crate) fn read(reply: Reply) -> Result<(Envelope, LimitSet), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let set = match status.as_bytes() {
            b"set" => LimitSet::Set,
            b"limit" => LimitSet::Other(limit(&mut rest)?),
            b"stale" => LimitSet::Stale,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, set))
    }
}

impl InspectSemaphore {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let SemaphorePage { holder, waiter } = &self.page;
        let waiter = waiter.as_deref().unwrap_or(NONE);
        let args = Command::new().number(*holder).word(waiter).number(self.most);
        call(&scripts.semaphore_inspect, lock, args)
    }

    pub(crate) fn read(reply: Reply) -> Result<SemaphoreView, BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let now = envelope.now;
        match status.as_bytes() {
            b"absent" => Ok(SemaphoreView { now, ..SemaphoreView::default() }),
            b"semaphore" => Ok(SemaphoreView {
                now,
                token: rest.number()?,
                limit: limit(&mut rest)?,
                used: rest.number()?,
                holders: rest.number()?,
                waiters: rest.number()?,
                holding: pairs(rest.texts()?, holder)?,
                waiting: pairs(rest.texts()?, entry)?,
            }),
            _ => Err(status.unknown()),
        }
    }
}

/// Reads a number of permits.
pub(super) fn limit(words: &mut Elements) -> Result<u32, BadReply> {
    let number = words.number()?;
    number.try_into().map_err(|_| malformed(&number.to_string()))
}

/// Parses a holder's record, which ends in its index and its permits.
fn holder(id: &str, text: &str) -> Result<(String, Record, u32), BadReply> {
    let (record, rest) = record(text)?;
    let permits = rest.split_once(' ').and_then(|(_, permits)| permits.parse().ok());
    Ok((id.to_owned(), record, permits.ok_or_else(|| malformed(text))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Reply {
        Reply::Text(text.into())
    }

    #[test]
    fn a_page_is_read() {
        let view = InspectSemaphore::read(Reply::List(vec![
            text("semaphore"),
            Reply::Int(1_000),
            Reply::Int(0),
            Reply::Int(7),
            Reply::Int(10),
            Reply::Int(3),
            Reply::Int(1),
            Reply::Int(1),
            Reply::List(vec![text("holder"), text("h000000000150000000000000000070 3")]),
            Reply::List(vec![text("waits"), text("p - - 5 900 10000 30000 1000 8 - x 800")]),
        ]))
        .unwrap();
        assert_eq!((view.token, view.limit, view.used), (7, 10, 3));
        let record = Record { deadline: 1_500, token: 7, cached: false };
        assert_eq!(view.holding, [("holder".to_owned(), record, 3)]);
        assert_eq!((view.waiting[0].ticket, view.waiting[0].permits), (5, 8));
    }

    #[test]
    fn semaphore_read_of_malformed_reply_returns_error() {
        assert!(holder("holder", "h000000000150000000000000000070").is_err());
        assert!(SetLimit::read(text("limit 17 0 4294967296")).is_err());
        assert!(SetLimit::read(text("kept 17 0")).is_err());
        assert!(Shrink::read(text("set 17 0")).is_err());
        assert!(InspectSemaphore::read(text("lock 17 0")).is_err());
    }
}
