//! `acquire_read`, `acquire_write`, `upgrade` and `take_up`.

use std::time::Duration;

use smallvec::SmallVec;

use super::id::AcquisitionId;
use super::key::{Kind, LockKey};
use super::reply::{BadReply, Elements, Envelope};
use super::semaphore::limit;
#[cfg(feature = "legacy")]
use super::two_key;
use super::{Mode, Scripts};
use crate::clock::Moment;
use crate::decimal::Decimal;
use crate::node::{Command, Reply};
use crate::router::Call;

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

/// What an acquire, a poll or an upgrade requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquire {
    pub(crate) lease: Duration,
    pub(crate) goal: Goal,
    pub(crate) wait: Option<Wait>,
    /// Whether to hold the lock cached.
    pub(crate) cached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    Take(Mode, Fairness),
    /// An upgrade from the read with this token.
    Upgrade {
        token: u64,
    },
    /// Takes over the lease with this token from another acquisition.
    TakeUp {
        mode: Mode,
        from: AcquisitionId,
        token: u64,
    },
    /// Permits of a semaphore.
    Permits(Permits),
}

/// The permits wanted of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    /// The semaphore's limit, as the caller knows it.
    pub(crate) limit: u32,
}

/// The terms of a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wait {
    /// How long a grant waits for its claim.
    pub(crate) window: Duration,
    /// How long the place is kept without a poll.
    pub(crate) waiter_ttl: Duration,
    /// The ticket from an earlier call, or 0.
    pub(crate) ticket: u64,
    /// The maximum number of waiters in the queue.
    pub(crate) limit: u64,
    /// The server where the waiter's client is subscribed.
    pub(crate) joined_at: Option<String>,
    /// Wait only if nobody but cached holders is in the way.
    pub(crate) only_cached: bool,
}

impl Wait {
    /// Encodes it as one argument.
    fn place(&self) -> SmallVec<[u8; PLACE]> {
        let server = self.joined_at.as_deref().unwrap_or("-");
        let mut place = SmallVec::new();
        for number in [millis(self.window), millis(self.waiter_ttl), self.limit] {
            place.extend_from_slice(Decimal::of(number).as_bytes());
            place.push(b' ');
        }
        place.extend_from_slice(server.as_bytes());
        place
    }
}

/// The maximum length of a usual place.
const PLACE: usize = 64;

/// Room for the arguments of a usual acquire on the wire.
const ARGUMENTS: usize = 160;

/// The number of tokens that an acquire takes at once.
const TOKENS: &str = "1";

/// The number of tokens that a cached write takes at once: 1.02 ms of the server's clock.
pub(crate) const BLOCK: u64 = 1_024;

/// The outcome of an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Acquired {
    Granted(Grant),
    Queued {
        ticket: u64,
        ahead: u64,
    },
    Refused,
    /// Only cached holders were in the way, and were recalled.
    Cached,
    Full {
        waiters: u64,
    },
    /// The semaphore's limit: it differs from the caller's, or is less than the permits it wants.
    Limit(u32),
    Stale,
    Conflict,
    Revoked,
    Lost,
}

/// A lease as the server records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// When the lease ends, server ms.
    pub(crate) deadline: u64,
    /// The last token of the lock. A cached write owns all tokens from its own to this one.
    pub(crate) fence: u64,
    /// The mode whose request recalls a cached holder.
    pub(crate) recall: Option<Mode>,
}

impl Grant {
    /// A grant that is not cached.
    pub(crate) fn new(token: u64, deadline: u64) -> Grant {
        Grant { token, deadline, fence: token, recall: None }
    }

    /// Reads a grant that names its acquisition. The connection has compared the name.
    pub(super) fn read_named(elements: &mut Elements) -> Result<Grant, BadReply> {
        elements.bytes()?;
        Grant::read(elements)
    }

    pub(super) fn read(elements: &mut Elements) -> Result<Grant, BadReply> {
        let (token, deadline) = (elements.number()?, elements.number()?);
        if elements.is_empty() {
            return Ok(Grant::new(token, deadline));
        }
        let fence = elements.number()?;
        let recall = match &elements.bytes()?[..] {
            b"w" => Some(Mode::Write),
            b"r" => Some(Mode::Read),
            _ => None,
        };
        Ok(Grant { token, deadline, fence, recall })
    }
}

impl Acquire {
    pub(crate) fn call(
        &self,
        scripts: &'static Scripts,
        id: AcquisitionId,
        lock: &LockKey,
        not_after: Moment,
    ) -> Call {
        #[cfg(feature = "legacy")]
        if let Some(other_key) = &lock.other_key {
            return two_key::acquire(self, id, (lock, other_key), not_after);
        }
        let args = Command::with_capacity(ARGUMENTS).word(id.as_str()).number(millis(self.lease));
        let (script, args) = match self.goal {
            Goal::Take(..) if lock.kind == Kind::Mutex => (&scripts.mutex_acquire, args),
            Goal::Take(Mode::Read, fairness) => {
                (&scripts.acquire_read, args.word(self.flags(fairness)))
            }
            Goal::Take(Mode::Write, fairness) => {
                (&scripts.acquire_write, args.word(self.flags(fairness)))
            }
            Goal::Upgrade { token } => (&scripts.upgrade, args.number(token)),
            Goal::TakeUp { mode, from, token } => {
                (&scripts.take_up, args.word(mode.letter()).word(from.as_str()).number(token))
            }
            Goal::Permits(Permits { count, limit }) => {
                let args = args.number(count.into()).number(limit.into());
                (&scripts.semaphore_acquire, args)
            }
        };
        let args = match (lock.kind, self.goal) {
            (Kind::Mutex, _) | (_, Goal::TakeUp { .. }) => args,
            (_, Goal::Permits(_)) => args.word(lock.slot.tag()),
            (_, Goal::Take(..)) if self.cached => args.number(BLOCK).word(lock.slot.tag()),
            (_, Goal::Take(..)) => args.word(TOKENS).word(lock.slot.tag()),
            (_, Goal::Upgrade { .. }) => args.word(lock.slot.tag()),
        };
        let args = match &self.wait {
            None => args,
            Some(wait) if wait.ticket == 0 => args.word(wait.place()),
            Some(wait) => args.word(wait.place()).number(wait.ticket),
        };
        Call {
            script,
            slot: lock.slot,
            key: lock.key.clone(),
            second_key: None,
            args,
            not_after: Some(not_after),
        }
    }

    fn flags(&self, fairness: Fairness) -> &'static str {
        let first = self.wait.as_ref().is_some_and(|wait| wait.ticket == 0 && wait.only_cached);
        match (fairness, self.cached, first) {
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

    pub(crate) fn read(reply: Reply) -> Result<(Envelope, Acquired), BadReply> {
        let (envelope, status, mut rest) = Elements::open(reply)?;
        let acquired = match status.as_bytes() {
            b"granted" => Acquired::Granted(Grant::read_named(&mut rest)?),
            b"queued" => Acquired::Queued { ticket: rest.number()?, ahead: rest.number()? },
            b"refused" => Acquired::Refused,
            b"cached" => Acquired::Cached,
            b"full" => Acquired::Full { waiters: rest.number()? },
            b"limit" => Acquired::Limit(limit(&mut rest)?),
            b"stale" => Acquired::Stale,
            b"conflict" => Acquired::Conflict,
            b"revoked" => Acquired::Revoked,
            b"lost" => Acquired::Lost,
            _ => return Err(status.unknown()),
        };
        Ok((envelope, acquired))
    }
}

/// Whole milliseconds, at least one.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquire_millis_of_any_duration_is_at_least_one() {
        let durations = [Duration::ZERO, Duration::from_micros(999), Duration::from_micros(2_999)];
        assert_eq!(durations.map(millis), [1, 1, 2]);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
