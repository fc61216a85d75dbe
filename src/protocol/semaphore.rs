//! `semaphore/shrink`, `semaphore/set_limit` and `semaphore/inspect`. (To acquire, renew or release
//! permits, the requests of the locks are used, with scripts for semaphores.)

use super::Scripts;
use super::acquire::Grant;
use super::id::AcquisitionId;
use super::inspect::{HolderRecord, NONE, WaiterRecord, entry, malformed, parse_pairs, record};
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use crate::backend::{Command, RespValue};
use crate::clock::LocalInstant;
use crate::router::{Call, Script};

/// Gives back some of the permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReleasePermitsRequest {
    /// The number of permits it keeps.
    pub(crate) keep: u32,
}

/// Changes the limit if it is the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetLimitRequest {
    pub(crate) expected: u32,
    pub(crate) limit: u32,
}

/// The outcome of `SetLimitRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetLimitReply {
    Set,
    /// The semaphore has this limit instead of the expected one.
    Mismatch(u32),
    TooLate,
}

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub(crate) struct InspectSemaphoreRequest {
    pub(crate) page: SemaphoreCursor,
    /// The maximum number of entries of each kind, 1 to 100.
    pub(crate) most: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreCursor {
    /// The first holder's index.
    pub(crate) holder: u64,
    /// The first waiter, or `None` for none.
    pub(crate) waiter: Option<String>,
}

impl Default for SemaphoreCursor {
    fn default() -> Self {
        SemaphoreCursor { holder: 0, waiter: Some("-".into()) }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InspectSemaphoreReply {
    /// The server's time, ms.
    pub(crate) now: u64,
    pub(crate) token: u64,
    /// Zero if there is no such semaphore.
    pub(crate) limit: u32,
    pub(crate) permits_in_use: u64,
    pub(crate) holder_count: u64,
    pub(crate) waiters: u64,
    /// The holders, with their permits.
    pub(crate) holders: Vec<(String, HolderRecord, u32)>,
    pub(crate) waiting: Vec<WaiterRecord>,
}

fn call(script: &'static Script, lock: &LockKey, args: Command) -> Call {
    Call { script, slot: lock.slot, key: lock.key.clone(), second_key: None, args, not_after: None }
}

impl ReleasePermitsRequest {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
    ) -> Call {
        let args = Command::new().arg(id.as_str()).arg_u64(self.keep.into());
        call(&scripts.semaphore_release_permits, lock, args)
    }

    /// The lease, if the acquisition holds permits.
    pub(crate) fn read(reply: RespValue) -> Result<(Envelope, Option<Grant>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let kept = match status.as_bytes() {
            b"kept" => Some(Grant::new(rest.number()?, rest.number()?)),
            b"lost" => None,
            _ => return Err(status.unknown_error()),
        };
        Ok((envelope, kept))
    }
}

impl SetLimitRequest {
    pub(crate) fn call(
        self,
        scripts: &'static Scripts,
        lock: &LockKey,
        not_after: LocalInstant,
    ) -> Call {
        let args = Command::new().arg_u64(self.expected.into()).arg_u64(self.limit.into());
        let not_after = Some(not_after);
        Call { not_after, ..call(&scripts.semaphore_set_limit, lock, args) }
    }

    pub(crate) fn read(reply: RespValue) -> Result<(Envelope, SetLimitReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let set = match status.as_bytes() {
            b"set" => SetLimitReply::Set,
            b"limit" => SetLimitReply::Mismatch(limit(&mut rest)?),
            b"stale" => SetLimitReply::TooLate,
            _ => return Err(status.unknown_error()),
        };
        Ok((envelope, set))
    }
}

impl InspectSemaphoreRequest {
    pub(crate) fn call(&self, scripts: &'static Scripts, lock: &LockKey) -> Call {
        let SemaphoreCursor { holder, waiter } = &self.page;
        let waiter = waiter.as_deref().unwrap_or(NONE);
        let args = Command::new().arg_u64(*holder).arg(waiter).arg_u64(self.most);
        call(&scripts.semaphore_inspect, lock, args)
    }

    pub(crate) fn read(reply: RespValue) -> Result<InspectSemaphoreReply, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let now = envelope.server_now;
        match status.as_bytes() {
            b"absent" => Ok(InspectSemaphoreReply { now, ..InspectSemaphoreReply::default() }),
            b"semaphore" => Ok(InspectSemaphoreReply {
                now,
                token: rest.number()?,
                limit: limit(&mut rest)?,
                permits_in_use: rest.number()?,
                holder_count: rest.number()?,
                waiters: rest.number()?,
                holders: parse_pairs(rest.texts()?, holder)?,
                waiting: parse_pairs(rest.texts()?, entry)?,
            }),
            _ => Err(status.unknown_error()),
        }
    }
}

/// Reads a number of permits.
pub(super) fn limit(words: &mut ReplyReader) -> Result<u32, ReplyError> {
    let number = words.number()?;
    number.try_into().map_err(|_| malformed(&number.to_string()))
}

/// Parses a holder's record, which ends in its index and its permits.
fn holder(id: &str, text: &str) -> Result<(String, HolderRecord, u32), ReplyError> {
    let (record, rest) = record(text)?;
    let permits = rest.split_once(' ').and_then(|(_, permits)| permits.parse().ok());
    Ok((id.to_owned(), record, permits.ok_or_else(|| malformed(text))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> RespValue {
        RespValue::String(text.into())
    }

    #[test]
    fn a_page_is_read() {
        let view = InspectSemaphoreRequest::read(RespValue::Array(vec![
            text("semaphore"),
            RespValue::Int(1_000),
            RespValue::Int(0),
            RespValue::Int(7),
            RespValue::Int(10),
            RespValue::Int(3),
            RespValue::Int(1),
            RespValue::Int(1),
            RespValue::Array(vec![text("holder"), text("h000000000150000000000000000070 3")]),
            RespValue::Array(vec![text("waits"), text("p - - 5 900 10000 30000 1000 8 - x 800")]),
        ]))
        .unwrap();
        assert_eq!((view.token, view.limit, view.permits_in_use), (7, 10, 3));
        let record = HolderRecord { deadline: 1_500, token: 7, cached: false };
        assert_eq!(view.holders, [("holder".to_owned(), record, 3)]);
        assert_eq!((view.waiting[0].ticket, view.waiting[0].permits), (5, 8));
    }

    #[test]
    fn semaphore_read_of_malformed_reply_returns_error() {
        assert!(holder("holder", "h000000000150000000000000000070").is_err());
        assert!(SetLimitRequest::read(text("limit 17 0 4294967296")).is_err());
        assert!(SetLimitRequest::read(text("kept 17 0")).is_err());
        assert!(ReleasePermitsRequest::read(text("set 17 0")).is_err());
        assert!(InspectSemaphoreRequest::read(text("lock 17 0")).is_err());
    }
}
