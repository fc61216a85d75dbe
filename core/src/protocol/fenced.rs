//! The scripts of a fenced value: `fenced/set`, `fenced/delete`, `fenced/enter`, `fenced/get`.

use bytes::Bytes;

use super::call::Call;
use super::id::AcquisitionId;
use super::key::LockKey;
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use crate::resp::{Command, RespValue};
use crate::slot::Slot;

/// Where a value is, and which lock guards it.
#[derive(Clone, Debug)]
pub struct FencedKey {
    pub key: Bytes,
    pub lock: LockKey,
}

/// A call of one writer of a value.
#[derive(Clone, Debug)]
pub struct FencedRequest<'a> {
    pub token: u64,
    pub writer: AcquisitionId,
    /// The number of this call of the writer, from 1.
    pub sequence: u64,
    /// The writer with the same token that this writer takes over from.
    pub predecessor: Option<String>,
    /// How long the token outlives a value that ends, ms.
    pub retention_ms: u64,
    pub operation: FencedOperation<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum FencedOperation<'a> {
    Set {
        value: &'a [u8],
        /// 0 for a value without an end.
        ttl_ms: u64,
        /// Only over a value that is there.
        replace: bool,
    },
    Delete,
    /// Raises the token, and reads the value.
    Enter,
}

/// The server's answer to a writer or a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum FencedReply {
    Written,
    /// The value and its token.
    Value(Bytes, u64),
    /// The token of a value that was deleted, has expired or was never written.
    NoValue(u64),
    /// There is no key, or no value to replace.
    NotFound,
    /// A newer token has written.
    Stale {
        stored: u64,
    },
    /// A later writer with the same token has written.
    TakenOver {
        by: String,
    },
    /// The name of the lock that guards the value.
    OtherLock(String),
}

impl FencedKey {
    pub fn slot(&self) -> Slot {
        self.lock.slot
    }

    pub fn get(&self) -> Call {
        self.call(ScriptName::FencedGet, Command::new().arg(&*self.lock.name))
    }

    fn call(&self, script: ScriptName, args: Command) -> Call {
        Call { key: self.key.clone(), ..Call::new(script, &self.lock, args) }
    }
}

impl FencedRequest<'_> {
    pub fn call(&self, key: &FencedKey) -> Call {
        let args = Command::new()
            .arg(&*key.lock.name)
            .arg_u64(self.token)
            .arg(self.writer.as_str())
            .arg_u64(self.sequence)
            .arg(self.predecessor.as_deref().unwrap_or("-"))
            .arg_u64(self.retention_ms);
        match self.operation {
            FencedOperation::Set { value, ttl_ms, replace } => {
                let mode = if replace { "existing" } else { "any" };
                key.call(ScriptName::FencedSet, args.arg_u64(ttl_ms).arg(mode).arg(value))
            }
            FencedOperation::Delete => key.call(ScriptName::FencedDelete, args),
            FencedOperation::Enter => key.call(ScriptName::FencedEnter, args),
        }
    }
}

impl FencedReply {
    pub fn read(reply: RespValue) -> Result<(Envelope, FencedReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let body = match &*status {
            b"written" => FencedReply::Written,
            b"value" => {
                let token = rest.number()?;
                FencedReply::Value(rest.bytes()?, token)
            }
            b"no_value" => FencedReply::NoValue(rest.number()?),
            b"not_found" => FencedReply::NotFound,
            b"stale" => FencedReply::Stale { stored: rest.number()? },
            b"taken_over" => FencedReply::TakenOver { by: rest.text()? },
            b"other_lock" => FencedReply::OtherLock(rest.text()?),
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, body))
    }
}

#[cfg(test)]
mod tests;
