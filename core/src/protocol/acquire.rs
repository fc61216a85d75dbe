//! `acquire_read`, `acquire_write`, `upgrade` and `accept_transfer`.

use std::time::Duration;

use smallvec::SmallVec;

use super::call::Call;
use super::id::AcquisitionId;
use super::key::{LockKey, LockKind};
use super::reply::{Envelope, ReplyError, ReplyReader};
use super::script::ScriptName;
use super::semaphore::limit;
use super::{LockMode, two_key};
use crate::decimal::Decimal;
use crate::resp::{Command, RespValue};
use crate::time::LocalInstant;

/// The policy that orders waiting readers and writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fairness {
    /// Writers are first in, first out, and so are readers. When a write ends, the readers that
    /// wait go before the next writer. Nobody starves.
    #[default]
    PhaseFair,
    /// Readers do not wait for waiting writers, unless one of those is phase-fair. A stream of
    /// readers can starve writers.
    ReadersFirst,
}

/// An acquire, a poll or an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireRequest {
    pub lease: Duration,
    pub kind: AcquireKind,
    pub wait: Option<QueueTerms>,
    /// Whether to hold the lock cached.
    pub is_cacheable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcquireKind {
    Lock(LockMode, Fairness),
    /// An upgrade from the read with this token.
    Upgrade {
        token: u64,
    },
    /// Takes over the lease with this token from another acquisition.
    Transfer {
        mode: LockMode,
        from: AcquisitionId,
        token: u64,
    },
    /// Permits of a semaphore.
    Permits(PermitRequest),
}

/// The requested permits of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PermitRequest {
    pub count: u32,
    /// The semaphore's limit, as the caller knows it.
    pub limit: u32,
}

/// The terms of a wait in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueTerms {
    /// How long a grant waits for its claim.
    pub claim_timeout: Duration,
    /// How long the waiter stays in the queue without a poll.
    pub waiter_ttl: Duration,
    /// The ticket from an earlier call, or 0.
    pub ticket: u64,
    /// The maximum number of waiters in the queue.
    pub max_queue_len: u64,
    /// The server where the waiter's client is subscribed.
    pub subscribed_server: Option<String>,
    /// Wait only if all current holders are cached holders.
    pub only_for_cached: bool,
}

impl QueueTerms {
    /// Encodes it as one argument.
    fn encode(&self) -> SmallVec<[u8; QUEUE_TERMS_LEN]> {
        let server = self.subscribed_server.as_deref().unwrap_or("-");
        let mut terms = SmallVec::new();
        for number in
            [to_millis(self.claim_timeout), to_millis(self.waiter_ttl), self.max_queue_len]
        {
            terms.extend_from_slice(Decimal::from_u64(number).as_bytes());
            terms.push(b' ');
        }
        terms.extend_from_slice(server.as_bytes());
        terms
    }
}

/// The length of usual terms; longer ones are allocated.
const QUEUE_TERMS_LEN: usize = 64;

/// Room for the arguments of a usual acquire on the wire.
const USUAL_ARGS_LEN: usize = 160;

/// The number of tokens that an acquire takes at once.
const ONE_TOKEN: &str = "1";

/// The number of tokens that a cached write takes at once: 1.02 ms of the server's clock.
pub const TOKEN_BLOCK: u64 = 1_024;

/// The outcome of an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AcquireReply {
    Granted(Grant),
    Queued {
        ticket: u64,
        ahead: u64,
    },
    Busy,
    /// Only cached holders were in the way, and were recalled.
    Recalling,
    QueueFull {
        waiters: u64,
    },
    /// The semaphore's limit: it differs from the caller's, or is less than the permits it wants.
    LimitMismatch(u32),
    TooLate,
    UpgradeConflict,
    Revoked,
    NotHeld,
}

/// A lease as the server records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub token: u64,
    /// When the lease ends, server ms.
    pub deadline: u64,
    /// The last token of the lock. A cached write owns all tokens from its own to this one.
    pub last_token: u64,
    /// The mode whose request recalls a cached holder.
    pub recall_mode: Option<LockMode>,
}

impl Grant {
    /// A grant that is not cached.
    pub fn new(token: u64, deadline: u64) -> Grant {
        Grant { token, deadline, last_token: token, recall_mode: None }
    }

    /// Reads a grant that names its acquisition. The connection has compared the name.
    pub(super) fn read_named(elements: &mut ReplyReader) -> Result<Grant, ReplyError> {
        elements.bytes()?;
        Grant::read(elements)
    }

    pub(super) fn read(elements: &mut ReplyReader) -> Result<Grant, ReplyError> {
        let (token, deadline) = (elements.number()?, elements.number()?);
        if elements.is_empty() {
            return Ok(Grant::new(token, deadline));
        }
        let fence = elements.number()?;
        let recall = match &elements.bytes()?[..] {
            b"w" => Some(LockMode::Write),
            b"r" => Some(LockMode::Read),
            _ => None,
        };
        Ok(Grant { token, deadline, last_token: fence, recall_mode: recall })
    }
}

impl AcquireRequest {
    pub fn call(&self, id: AcquisitionId, lock: &LockKey, not_after: LocalInstant) -> Call {
        if let Some(other_key) = &lock.second_key {
            return two_key::acquire(self, id, (lock, other_key), not_after);
        }
        let args =
            Command::with_capacity(USUAL_ARGS_LEN).arg(id.as_str()).arg_u64(to_millis(self.lease));
        let (script, args) = match self.kind {
            AcquireKind::Lock(..) if lock.kind == LockKind::SetNxMutex => {
                (ScriptName::SetNxAcquire, args)
            }
            AcquireKind::Lock(LockMode::Read, fairness) => {
                (ScriptName::AcquireRead, args.arg(self.flags(fairness)))
            }
            AcquireKind::Lock(LockMode::Write, fairness) => {
                (ScriptName::AcquireWrite, args.arg(self.flags(fairness)))
            }
            AcquireKind::Upgrade { token } => (ScriptName::Upgrade, args.arg_u64(token)),
            AcquireKind::Transfer { mode, from, token } => (
                ScriptName::AcceptTransfer,
                args.arg(mode.letter()).arg(from.as_str()).arg_u64(token),
            ),
            AcquireKind::Permits(PermitRequest { count, limit }) => {
                let args = args.arg_u64(count.into()).arg_u64(limit.into());
                (ScriptName::SemaphoreAcquire, args)
            }
        };
        let args = match (lock.kind, self.kind) {
            (LockKind::SetNxMutex, _) | (_, AcquireKind::Transfer { .. }) => args,
            (_, AcquireKind::Permits(_)) => args.arg(lock.slot.hash_tag()),
            (_, AcquireKind::Lock(..)) if self.is_cacheable => {
                args.arg_u64(TOKEN_BLOCK).arg(lock.slot.hash_tag())
            }
            (_, AcquireKind::Lock(..)) => args.arg(ONE_TOKEN).arg(lock.slot.hash_tag()),
            (_, AcquireKind::Upgrade { .. }) => args.arg(lock.slot.hash_tag()),
        };
        let args = match &self.wait {
            None => args,
            Some(wait) if wait.ticket == 0 => args.arg(wait.encode()),
            Some(wait) => args.arg(wait.encode()).arg_u64(wait.ticket),
        };
        Call { not_after: Some(not_after), ..Call::new(script, lock, args) }
    }

    fn flags(&self, fairness: Fairness) -> &'static str {
        let first = self.wait.as_ref().is_some_and(|wait| wait.ticket == 0 && wait.only_for_cached);
        match (fairness, self.is_cacheable, first) {
            (Fairness::PhaseFair, false, false) => "f",
            (Fairness::PhaseFair, false, true) => "ft",
            (Fairness::PhaseFair, true, false) => "fk",
            (Fairness::PhaseFair, true, true) => "fkt",
            (Fairness::ReadersFirst, false, false) => "r",
            (Fairness::ReadersFirst, false, true) => "rt",
            (Fairness::ReadersFirst, true, false) => "rk",
            (Fairness::ReadersFirst, true, true) => "rkt",
        }
    }

    pub fn read(reply: RespValue) -> Result<(Envelope, AcquireReply), ReplyError> {
        let (envelope, status, mut rest) = ReplyReader::parse_header(reply)?;
        let acquired = match &*status {
            b"granted" => AcquireReply::Granted(Grant::read_named(&mut rest)?),
            b"queued" => AcquireReply::Queued { ticket: rest.number()?, ahead: rest.number()? },
            b"busy" => AcquireReply::Busy,
            b"recalling" => AcquireReply::Recalling,
            b"queue_full" => AcquireReply::QueueFull { waiters: rest.number()? },
            b"limit_mismatch" => AcquireReply::LimitMismatch(limit(&mut rest)?),
            b"too_late" => AcquireReply::TooLate,
            b"conflict" => AcquireReply::UpgradeConflict,
            b"revoked" => AcquireReply::Revoked,
            b"not_held" => AcquireReply::NotHeld,
            _ => return Err(ReplyError::unknown_status(&status)),
        };
        Ok((envelope, acquired))
    }
}

/// Whole milliseconds, at least one. Rounded up, so that the server keeps a lock for no less than
/// the requested time.
pub fn to_millis(duration: Duration) -> u64 {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
