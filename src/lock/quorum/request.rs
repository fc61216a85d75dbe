//! A request for a lock of a quorum: rounds until one of them has a majority.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::Handle;
use crate::client::request::LeaseOptions;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::lock::quorum::Quorum;
use crate::lock::quorum::guard::QuorumGuard;
use crate::lock::quorum::round::{Round, Tried};
use crate::lock::request::options;
use crate::lock::wait::{Cancel, Wait};
use crate::protocol::{Kind, LockKey, Mode};

/// A member that did not answer in the part of the lease that this is the divisor of is passed
/// over, in the range below.
const PARTS_FOR_A_MEMBER: u32 = 50;
const SHORTEST_FOR_A_MEMBER: Duration = Duration::from_millis(20);
const LONGEST_FOR_A_MEMBER: Duration = Duration::from_millis(500);

/// A request for a lock of a [`Quorum`], sent when it is awaited; gives a [`QuorumGuard`].
///
/// # Cost
///
/// One round trip in time for each try, to all members at once; one more for a read/write lock,
/// whose token is written back, and one for each member whose clock is wrong. A member that is dead
/// or slow costs as much again as the majority took, at most the [member's
/// time-out](Self::member_timeout).
///
/// # Fairness
///
/// None: there is no queue. The request that tries first gets the lock.
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire). [`Unavailable`](crate::ErrorKind::Unavailable) if for the
/// clients' call timeout less than a majority of the members answered, its source being what one of
/// the others said; or if a member's clock is wrong, and less than a majority is left without it.
/// Then it names that member and how far its clock is ahead.
///
/// # Cancel safety
///
/// Dropped at any point it leaves nothing at any member that can be reached; at the others the
/// lease ends it.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct QuorumAcquire {
    quorum: Quorum,
    locks: Result<Vec<LockKey>>,
    mode: Mode,
    options: LeaseOptions,
    wait: Wait,
    cancel: Cancel<'static>,
    member_timeout: Option<Duration>,
    drift: Option<Duration>,
}

impl QuorumAcquire {
    pub(super) fn new(quorum: &Quorum, kind: Kind, name: &str, mode: Mode) -> Self {
        let clients = || quorum.members.iter().map(|member| &member.client);
        let prefix = |client: &Arc<Handle>| match kind {
            Kind::ReadWrite | Kind::Semaphore => client.settings.prefix.clone(),
            Kind::Mutex => client.settings.mutex_prefix.clone(),
        };
        let locks = clients().map(|client| LockKey::new(kind, &prefix(client), name));
        QuorumAcquire {
            locks: locks.collect(),
            mode,
            options: LeaseOptions::of(&quorum.members[0].client.settings),
            wait: Wait::default(),
            cancel: Cancel::default(),
            member_timeout: None,
            drift: None,
            quorum: quorum.clone(),
        }
    }

    options!();

    /// How long one member is waited for in one try: far shorter than the lease, or a dead member
    /// eats it. Default: a fiftieth of the lease, from 20 ms to 500 ms.
    pub fn member_timeout(mut self, timeout: Duration) -> Self {
        self.member_timeout = Some(timeout);
        self
    }

    /// How much earlier the lock ends here than at its members, where that is more than the
    /// clients' [margin](crate::Builder::margin): for the different speed of clocks. Default: a
    /// hundredth of the lease and 2 ms.
    pub fn drift(mut self, drift: Duration) -> Self {
        self.drift = Some(drift);
        self
    }

    /// Tries once at all members; nothing if others hold it.
    ///
    /// # Errors, Cancel safety
    ///
    /// As when it is awaited; never `TimedOut` or `TriesUsedUp`, and `Unavailable` at once if no
    /// majority answers.
    pub async fn try_once(self) -> Result<Option<QuorumGuard>> {
        let round = self.round()?;
        match round.run().await? {
            Tried::Held(guard) => Ok(Some(guard)),
            Tried::Refused => Ok(None),
            Tried::Unreached(error) => Err(error),
        }
    }

    fn round(&self) -> Result<Round<'_>> {
        self.options.check()?;
        self.wait.check()?;
        let lease = self.options.lease;
        let default =
            (lease / PARTS_FOR_A_MEMBER).clamp(SHORTEST_FOR_A_MEMBER, LONGEST_FOR_A_MEMBER);
        let locks = match &self.locks {
            Ok(locks) => locks,
            Err(error) => return Err(Error::new(error.kind(), error.to_string())),
        };
        Ok(Round {
            quorum: &self.quorum,
            locks,
            mode: self.mode,
            options: &self.options,
            member_timeout: self.member_timeout.unwrap_or(default).min(lease),
            drift: self.drift.unwrap_or(lease / 100 + Duration::from_millis(2)),
        })
    }

    async fn run(&self) -> Result<QuorumGuard> {
        let round = self.round()?;
        let client = &self.quorum.members[0].client;
        let clock = &*client.clock;
        let retry = self.wait.retry.clone().unwrap_or_default();
        let mut tries = retry.begin(clock.now(), self.wait.timeout);
        let mut unreached_since: Option<Moment> = None;
        loop {
            let error = match round.run().await? {
                Tried::Held(guard) => return Ok(guard),
                Tried::Refused => {
                    unreached_since = None;
                    None
                }
                Tried::Unreached(error) => {
                    let since = *unreached_since.get_or_insert(clock.now());
                    if clock.now().since(since) >= client.settings.call_timeout {
                        return Err(error);
                    }
                    Some(error)
                }
            };
            tries
                .pause(clock)
                .await
                .map_err(|over| error.unwrap_or_else(|| round.with_lock(over)))?;
        }
    }
}

impl IntoFuture for QuorumAcquire {
    type Output = Result<QuorumGuard>;
    type IntoFuture = BoxFuture<'static, Result<QuorumGuard>>;

    fn into_future(mut self) -> Self::IntoFuture {
        let cancel = std::mem::take(&mut self.cancel);
        Box::pin(async move { cancel.or(pin!(self.run())).await })
    }
}
