//! `semaphore/release_permits`, `semaphore/set_limit` and `semaphore/inspect`. (To acquire, renew
//! or release permits, the requests of the locks are used, with scripts for semaphores.)

use super::acquire::Grant;
use super::call::Call;
use super::id::AcquisitionId;
use super::inspect::{HolderRecord, NONE, WaiterRecord, entry, malformed, parse_pairs, record};
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::decimal::parse_u64;
use crate::resp::{Command, RespValue};
use crate::time::LocalInstant;

/// Gives back some of the permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReleasePermitsRequest {
    /// The number of permits it keeps.
    pub keep: u32,
}

/// Changes the limit if it is the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimitRequest {
    pub expected: u32,
    pub limit: u32,
}

/// The outcome of `SetLimitRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetLimitReply {
    Set,
    /// The semaphore has this limit instead of the expected one.
    Mismatch(u32),
    TooLate,
}

/// Queries the holders and waiters, a page at a time.
#[derive(Clone, Debug)]
pub struct InspectSemaphoreRequest {
    pub page: SemaphoreCursor,
    /// The maximum number of entries of each kind, 1 to 100.
    pub most: u64,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SemaphoreCursor {
    /// The first holder's index.
    pub holder: u64,
    /// The first waiter, or `None` for none.
    pub waiter: Option<String>,
}

impl Default for SemaphoreCursor {
    fn default() -> Self {
        SemaphoreCursor { holder: 0, waiter: Some("-".into()) }
    }
}

/// The contents of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InspectSemaphoreReply {
    /// The server's time, ms.
    pub now: u64,
    pub token: u64,
    /// Zero if there is no such semaphore.
    pub limit: u32,
    pub permits_in_use: u64,
    pub holder_count: u64,
    pub waiters: u64,
    /// The holders, with their permits.
    pub holders: Vec<(String, HolderRecord, u32)>,
    pub waiting: Vec<WaiterRecord>,
}

impl ReleasePermitsRequest {
    pub fn call(&self, id: AcquisitionId, lock: &LockKey) -> Call {
        let args = Command::new().arg(id.as_str()).arg_u64(self.keep.into());
        Call::new(ScriptName::SemaphoreReleasePermits, lock, args)
    }

    /// The lease, if the acquisition holds permits.
    pub fn read(reply: RespValue) -> Result<(Envelope, Option<Grant>), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let kept = match &*status {
            b"kept" => Some(Grant::new(rest.number()?, rest.number()?)),
            b"not_held" => None,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, kept))
    }
}

impl SetLimitRequest {
    pub fn call(self, lock: &LockKey, not_after: LocalInstant) -> Call {
        let args = Command::new().arg_u64(self.expected.into()).arg_u64(self.limit.into());
        let not_after = Some(not_after);
        Call { not_after, ..Call::new(ScriptName::SemaphoreSetLimit, lock, args) }
    }

    pub fn read(reply: RespValue) -> Result<(Envelope, SetLimitReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let set = match &*status {
            b"set" => SetLimitReply::Set,
            b"limit_mismatch" => SetLimitReply::Mismatch(limit(&mut rest)?),
            b"too_late" => SetLimitReply::TooLate,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, set))
    }
}

impl InspectSemaphoreRequest {
    pub fn call(&self, lock: &LockKey) -> Call {
        let SemaphoreCursor { holder, waiter } = &self.page;
        let waiter = waiter.as_deref().unwrap_or(NONE);
        let args = Command::new().arg_u64(*holder).arg(waiter).arg_u64(self.most);
        Call::new(ScriptName::SemaphoreInspect, lock, args)
    }

    pub fn read(reply: RespValue) -> Result<InspectSemaphoreReply, ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let now = envelope.server_now;
        match &*status {
            b"not_found" => Ok(InspectSemaphoreReply { now, ..InspectSemaphoreReply::default() }),
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
            _ => Err(ReplyError::unknown_status(&status)),
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
    let permits = rest.split_once(' ').and_then(|(_, permits)| parse_u64(permits.as_bytes()));
    let permits = permits.and_then(|permits| permits.try_into().ok());
    Ok((id.to_owned(), record, permits.ok_or_else(|| malformed(text))?))
}

#[cfg(test)]
mod tests;
