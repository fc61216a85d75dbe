//! A request for a lock of a quorum: rounds until one has a majority.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::client::ClientHandle;
use crate::client::lease_options::LeaseOptions;
use crate::clock::LocalInstant;
use crate::error::{Error, Result};
use crate::lock::quorum::Quorum;
use crate::lock::quorum::guard::QuorumGuard;
use crate::lock::quorum::round::{Round, RoundOutcome};
use crate::lock::request::options;
use crate::lock::wait_options::{Cancel, Wait};
use crate::protocol::{LockKey, LockKind, LockMode};

/// The default timeout of a member is the lease divided by this, within the range below.
const PARTS_FOR_A_MEMBER: u32 = 50;
const SHORTEST_FOR_A_MEMBER: Duration = Duration::from_millis(20);
const LONGEST_FOR_A_MEMBER: Duration = Duration::from_millis(500);

/// A request for a lock of a [`Quorum`]. It is sent when it is awaited, and returns a
/// [`QuorumGuard`].
///
/// # Cost
///
/// The time of one round trip for each try, to all members at once. A read/write lock takes one
/// more, which writes its token back, and one for each member whose clock is wrong. A dead or slow
/// member adds as much time again as the majority took, at most the [member
/// timeout](Self::member_timeout).
///
/// # Fairness
///
/// None: there is no queue. Whoever tries first after the release wins.
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire). [`Unavailable`](crate::ErrorKind::Unavailable) in two cases:
///
/// - Less than a majority of the members answered within the clients' call timeout. The source is
///   what one of the others reported.
/// - A member's clock is wrong, and less than a majority is left without it. The error names that
///   member, and how far its clock is ahead.
///
/// # Cancel safety
///
/// Cancel safe: dropping the future leaves nothing on any member that can be reached. On the
/// others, the lease ends the lock.
#[must_use = "a request does nothing until it is awaited"]
#[derive(Debug)]
pub struct QuorumAcquire {
    quorum: Quorum,
    locks: Result<Arc<[LockKey]>>,
    mode: LockMode,
    options: LeaseOptions,
    wait: Wait,
    cancel: Cancel<'static>,
    member_timeout: Option<Duration>,
    drift: Option<Duration>,
}

impl QuorumAcquire {
    pub(super) fn new(quorum: &Quorum, kind: LockKind, name: &str, mode: LockMode) -> Self {
        let clients = || quorum.members.iter().map(|member| &member.client);
        let prefix = |client: &Arc<ClientHandle>| match kind {
            LockKind::ReadWrite | LockKind::Semaphore => client.settings.key_prefix.clone(),
            LockKind::SetNxMutex => client.settings.set_nx_key_prefix.clone(),
        };
        let locks = clients().map(|client| LockKey::new(kind, &prefix(client), name));
        QuorumAcquire {
            locks: locks.collect(),
            mode,
            options: LeaseOptions::from_config(&quorum.members[0].client.settings),
            wait: Wait::default(),
            cancel: Cancel::default(),
            member_timeout: None,
            drift: None,
            quorum: quorum.clone(),
        }
    }

    options!();

    /// The timeout for one member in one try. It should be far shorter than the lease, or a dead
    /// member uses it up. Default: a fiftieth of the lease, from 20 ms to 500 ms.
    pub fn member_timeout(mut self, timeout: Duration) -> Self {
        self.member_timeout = Some(timeout);
        self
    }

    /// How much earlier the lock ends here than at its members, to cover different speeds of
    /// clocks. The clients' [margin](crate::Builder::margin) applies if it is larger. Default: a
    /// hundredth of the lease plus 2 ms.
    pub fn drift(mut self, drift: Duration) -> Self {
        self.drift = Some(drift);
        self
    }

    /// Tries once on all members. Returns `None` if others hold the lock.
    ///
    /// # Errors, Cancel safety
    ///
    /// As when it is awaited, but never `TimedOut` or `TriesUsedUp`. `Unavailable` at once if no
    /// majority answers.
    pub async fn try_once(self) -> Result<Option<QuorumGuard>> {
        let round = self.round()?;
        let limit = self.wait.timeout.unwrap_or(round.member_timeout).min(round.member_timeout);
        let until = self.quorum.members[0].client.clock.now().saturating_add(limit);
        match round.run(until).await? {
            RoundOutcome::Held(guard) => Ok(Some(guard)),
            RoundOutcome::Refused => Ok(None),
            RoundOutcome::Unreached(error) => Err(error),
        }
    }

    fn round(&self) -> Result<Round> {
        self.options.check()?;
        self.wait.check()?;
        let lease = self.options.first_lease();
        let default =
            (lease / PARTS_FOR_A_MEMBER).clamp(SHORTEST_FOR_A_MEMBER, LONGEST_FOR_A_MEMBER);
        let locks = match &self.locks {
            Ok(locks) => locks,
            Err(error) => return Err(Error::new(error.kind(), error.to_string())),
        };
        Ok(Round {
            quorum: self.quorum.clone(),
            locks: locks.clone(),
            mode: self.mode,
            options: self.options.clone(),
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
        let mut unreached_since: Option<LocalInstant> = None;
        loop {
            let began = clock.now();
            let until = tries.answer_by(began, round.member_timeout);
            let error = match round.run(until).await? {
                RoundOutcome::Held(guard) => return Ok(guard),
                RoundOutcome::Refused => {
                    unreached_since = None;
                    None
                }
                RoundOutcome::Unreached(_)
                    if unreached_since.is_none() && tries.was_cut_short(began, clock.now()) =>
                {
                    return Err(round.with_lock(tries.out_of_time()));
                }
                RoundOutcome::Unreached(error) => {
                    let since = *unreached_since.get_or_insert(clock.now());
                    if clock.now().saturating_duration_since(since) >= client.settings.call_timeout
                    {
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
