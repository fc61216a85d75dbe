//! Redlock: one lock on several independent deployments, held by whoever holds it on most of them.

mod telemetry;

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, Either, join_all, select, select_all};
use futures::stream::FuturesUnordered;

use crate::client::Handle;
use crate::client::acquire;
use crate::client::request::{LeaseOptions, WaitPolicy};
use crate::clock::{Clock, Moment};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::guard::{Hold, Released};
use crate::lock::lease::{Lease, LeaseState};
use crate::lock::locks::Locks;
use crate::lock::request::options;
use crate::lock::retry::{Cancel, Wait};
use crate::node::Address;
use crate::protocol::{AHEAD, Kind, LockKey, Mode, RaiseToken, Raised};

/// A member that did not answer in the part of the lease that this is the divisor of is passed
/// over, in the range below.
const PARTS_FOR_A_MEMBER: u32 = 50;
const SHORTEST_FOR_A_MEMBER: Duration = Duration::from_millis(20);
const LONGEST_FOR_A_MEMBER: Duration = Duration::from_millis(500);

/// The least that the slow members are waited for when most have answered already.
const LEAST_GRACE: Duration = Duration::from_millis(5);

/// Several independent deployments, on most of which a lock must be held: the Redlock algorithm.
/// Each is a [`Locks`] of its own, over single servers without replicas as Redlock has them, or
/// over clusters.
///
/// ```no_run
/// # #[cfg(feature = "redis")]
/// # async fn example() -> rwlease::Result<()> {
/// use rwlease::{Locks, Quorum};
///
/// let mut members = Vec::new();
/// for url in ["redis://a", "redis://b", "redis://c", "redis://d", "redis://e"] {
///     members.push(Locks::connect([url]).await?);
/// }
/// let quorum = Quorum::new(members)?;
/// let held = quorum.write("order:{42}").await?;
/// # Ok(()) }
/// ```
///
/// # What it does
///
/// All members are tried at the same time, each for a time far shorter than the lease. The lock is
/// held if a majority of them granted it and time is left: until the moment at which less than a
/// majority of the leases is good, each counted from before its request was sent, less the drift of
/// clocks. Otherwise it is given back everywhere, also where no answer came, and tried again after
/// a random pause. Each member's lease is renewed by itself, and the lock is held for as long as a
/// majority is. There is no queue.
///
/// # What it is good for, and what not
///
/// It goes on while a minority of the members is dead or cut off, without a failover. It is as safe
/// as the members' clocks: each must run at about the speed of this process's, and none may jump
/// ahead. A member that comes back with its locks forgotten must stay away for as long as the
/// longest lease, or a second majority can be found. And as with every lease, a process that was
/// stopped in between does not know that its lock has passed on: what protects data then is a store
/// that checks [tokens](QuorumGuard::token), or data that a second writer cannot spoil. A member
/// that was missed, or is lost later, is not taken again: the lock lives on the others.
///
/// The clocks of the members should agree within seconds. A token that is more than a minute ahead
/// of a member's clock is not taken there: otherwise one member with a wrong clock would give the
/// lock a life of years on all others. Where so many refuse a read/write lock's token, or would,
/// that no majority takes it, the member that gave it is left out of that lock, as if it had not
/// answered, and the lock is given back there. The event `rwlease.clock` names it, and so does the
/// error if less than a majority is left.
///
/// Both sides of that argument: the [description of the
/// algorithm](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), and Martin
/// Kleppmann's [How to do distributed
/// locking](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). Where one
/// cluster is enough, its lock with [`RwLock`](crate::RwLock) has a queue, costs less, and survives
/// the loss of a master as well.
#[derive(Clone, Debug)]
pub struct Quorum {
    members: Arc<[Locks]>,
}

impl Quorum {
    /// A quorum of these members: an odd number, usually five. Two clients of one deployment are
    /// not independent, and make the quorum worthless; that is not checked.
    ///
    /// # Errors
    ///
    /// [`Invalid`](ErrorKind::Invalid) for less than three members: with one or two, no loss is
    /// survived.
    pub fn new(members: impl IntoIterator<Item = Locks>) -> Result<Quorum> {
        let members: Arc<[Locks]> = members.into_iter().collect();
        if members.len() < 3 {
            return Err(Error::invalid("a quorum needs at least three members"));
        }
        Ok(Quorum { members })
    }

    /// How many members must grant a lock: more than half of them.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Acquires a [`Mutex`](crate::Mutex) of this name: on each member what every other Redlock
    /// client does, so that they exclude each other. It has no fencing token.
    pub fn mutex(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::Mutex, name.as_ref(), Mode::Write)
    }

    /// Acquires a read/write lock of this name, for reading.
    pub fn read(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::ReadWrite, name.as_ref(), Mode::Read)
    }

    /// Acquires a read/write lock of this name, for writing.
    pub fn write(&self, name: impl AsRef<str>) -> QuorumAcquire {
        QuorumAcquire::new(self, Kind::ReadWrite, name.as_ref(), Mode::Write)
    }
}

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
/// None: there is no queue, and who tries first has it.
///
/// # Errors
///
/// As [`Acquire`](crate::Acquire). [`Unavailable`](ErrorKind::Unavailable) if for the clients' call
/// timeout less than a majority of the members answered, its source being what one of the others
/// said; or if a member's clock is wrong, and less than a majority is left without it. Then it
/// names that member and how far its clock is ahead.
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

/// What came of one try at all members.
enum Tried {
    Held(QuorumGuard),
    /// A majority answered, and others hold it.
    Refused,
    /// No majority could be called.
    Unreached(Error),
}

impl QuorumAcquire {
    fn new(quorum: &Quorum, kind: Kind, name: &str, mode: Mode) -> Self {
        let clients = || quorum.members.iter().map(|member| &member.client);
        let prefix = |client: &Arc<Handle>| match kind {
            Kind::ReadWrite => client.settings.prefix.clone(),
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
        Box::pin(async move { cancel.or(self.run()).await })
    }
}

/// A member, as it is told of.
struct Member {
    /// From 1 on.
    number: usize,
    /// Who serves the lock there, if that is known.
    node: Option<Address>,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.number)?;
        match &self.node {
            Some(node) => write!(f, " ({node})"),
            None => Ok(()),
        }
    }
}

/// One try at all members.
struct Round<'a> {
    quorum: &'a Quorum,
    locks: &'a [LockKey],
    mode: Mode,
    options: &'a LeaseOptions,
    member_timeout: Duration,
    drift: Duration,
}

impl Round<'_> {
    async fn run(&self) -> Result<Tried> {
        let (members, majority) = (&self.quorum.members, self.quorum.majority());
        let clock = &*members[0].client.clock;
        let started = clock.now();
        let mut until = started.after(self.member_timeout);
        let mut tries: FuturesUnordered<_> = members
            .iter()
            .zip(self.locks)
            .map(|(member, lock)| self.acquire(member, lock))
            .collect();
        let (mut held, mut refused, mut failed) = (Vec::new(), 0, None);
        while held.len() + tries.len() >= majority {
            match select(tries.next(), clock.sleep_until(until)).await {
                Either::Left((Some(Ok(Some(hold))), _)) => {
                    held.push(hold);
                    if held.len() == majority {
                        // The others may take as long again as these did. Those that do not are
                        // given back, and the majority is enough.
                        let now = clock.now();
                        until = until.min(now.after(now.since(started).max(LEAST_GRACE)));
                    }
                }
                Either::Left((Some(Ok(None)), _)) => refused += 1,
                Either::Left((Some(Err(error)), _)) => failed = Some(worse(failed, error)),
                Either::Left((None, _)) | Either::Right(_) => break,
            }
        }
        if held.len() < majority {
            // Dropping them releases them, and leaves those that had no answer yet.
            return self.failed(held.len() + refused >= majority, failed);
        }
        drop(tries);
        let mut guard = QuorumGuard {
            holds: held,
            majority,
            drift: self.drift,
            member_timeout: self.member_timeout,
            token: None,
        };
        if self.locks[0].kind == Kind::ReadWrite {
            match self.agree_on_token(&mut guard).await {
                Ok(token) => guard.token = Some(token),
                Err(Some(wrong)) => return Ok(Tried::Unreached(wrong)),
                Err(None) => return self.failed(false, failed),
            }
        }
        if guard.is_held() { Ok(Tried::Held(guard)) } else { self.failed(false, failed) }
    }

    /// Gives a majority the greatest token that its members gave. Where more of them say that it is
    /// too far ahead than take it, the clock of the member that gave it is wrong: it is left out,
    /// and the lock is given back there. Fails when no majority has a token; with what to say if
    /// that is for a clock.
    async fn agree_on_token(
        &self,
        guard: &mut QuorumGuard,
    ) -> std::result::Result<u64, Option<Error>> {
        let mut wrong = None;
        while guard.holds.len() >= guard.majority {
            let written = match guard.foresee() {
                Some(foreseen) => foreseen,
                None => guard.write_token_back().await.ok_or(None)?,
            };
            if written.count >= guard.majority {
                for (place, by) in written.refused {
                    self.tell_of_clock(&self.member(&guard.holds[place]), "behind", by);
                }
                return Ok(written.token);
            }
            let nearest = written.refused.iter().min_by_key(|(_, by)| *by);
            let Some(&(place, by)) = nearest.filter(|_| written.refused.len() >= written.count)
            else {
                break; // too few have said anything
            };
            let behind = self.member(&guard.holds[place]);
            for hold in guard.holds.extract_if(.., |hold| hold.0.token() == written.token) {
                let ahead = self.member(&hold);
                self.tell_of_clock(&ahead, "ahead", by);
                wrong = Some(self.clock_is_wrong(&ahead, &behind, by));
            }
        }
        Err(wrong)
    }

    /// Which member's lease this is.
    fn member(&self, hold: &Hold) -> Member {
        let Lease { client, acquisition } = &hold.0;
        let mut members = self.quorum.members.iter();
        let place = members.position(|member| Arc::ptr_eq(&member.client.0, client));
        Member {
            number: place.map_or(0, |place| place + 1),
            node: client.router.master_of(acquisition.lock.slot),
        }
    }

    fn tell_of_clock(&self, member: &Member, outcome: &'static str, by: Duration) {
        telemetry::clocks_differ(&self.locks[0], member.number, member.node.as_ref(), outcome, by);
    }

    fn clock_is_wrong(&self, ahead: &Member, behind: &Member, by: Duration) -> Error {
        let (members, majority) = (self.quorum.members.len(), self.quorum.majority());
        let message = format!(
            "{ahead} of {members} gave a token that is {:.0} s ahead of the clock of {behind}: its clock is wrong, or theirs, and less than \
             {majority} members are left without it",
            by.as_secs_f64()
        );
        self.with_lock(Error::new(ErrorKind::Unavailable, message))
    }

    async fn acquire(&self, member: &Locks, lock: &LockKey) -> Result<Option<Hold>> {
        let client = &member.client;
        let until = client.clock.now().after(self.member_timeout);
        let taken =
            acquire::take(client, lock, self.mode, self.options, WaitPolicy::Try { until }).await?;
        Ok(taken.map(|acquisition| Hold(Lease::new((**client).clone(), acquisition))))
    }

    /// What to make of a try without a majority; fails if trying again is of no use.
    fn failed(&self, answered: bool, failed: Option<Error>) -> Result<Tried> {
        match failed {
            _ if answered => Ok(Tried::Refused),
            Some(error) if error.kind() != ErrorKind::Unavailable => Err(error),
            failed => {
                let (members, majority) = (self.quorum.members.len(), self.quorum.majority());
                let message = format!("less than {majority} of {members} members answered in time");
                let error = self.with_lock(Error::new(ErrorKind::Unavailable, message));
                Ok(Tried::Unreached(failed.into_iter().fold(error, Error::with_source)))
            }
        }
    }

    fn with_lock(&self, error: Error) -> Error {
        self.locks[0].with_lock(error)
    }
}

/// The error to tell of: one that does not pass by itself, if there is one.
fn worse(known: Option<Error>, error: Error) -> Error {
    known
        .filter(|known| {
            known.kind() != ErrorKind::Unavailable || error.kind() == ErrorKind::Unavailable
        })
        .unwrap_or(error)
}

/// A lock that is held on a majority of a [`Quorum`]'s members.
///
/// Dropped, it is released in the background on all of them, as every guard is.
#[must_use = "dropped at once, the lock is released at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct QuorumGuard {
    holds: Vec<Hold>,
    majority: usize,
    drift: Duration,
    member_timeout: Duration,
    token: Option<u64>,
}

impl QuorumGuard {
    /// The fencing token of a read/write lock, and `None` for a mutex. It is the greatest that the
    /// members gave, and was written back to a majority of them before it was handed out: so the
    /// majority of the next holder has a member that gives a greater one. That holds as long as
    /// members keep what they acknowledged, and, when a lock was idle and forgotten in between, as
    /// long as their clocks differ by less than the grace of ten seconds for which it is kept.
    /// Members that are more than a minute apart do not take each other's tokens: see [`Quorum`].
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// The leases at the members that granted it.
    pub fn leases(&self) -> impl ExactSizeIterator<Item = &Lease> {
        self.holds.iter().map(|hold| &hold.0)
    }

    /// What is left of it, computed now: until less than a majority of the leases is good, less the
    /// drift. Zero if it is lost.
    pub fn remaining(&self) -> Duration {
        let mut left: Vec<Duration> = self
            .leases()
            .map(|lease| {
                lease.remaining().saturating_sub(self.drift.saturating_sub(lease.margin()))
            })
            .collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        left.get(self.majority - 1).copied().unwrap_or_default()
    }

    /// Whether it is held, computed now.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How it stands, computed now: [`Uncertain`](LeaseState::Uncertain) when less than a majority
    /// of the leases is being renewed as it should.
    pub fn state(&self) -> LeaseState {
        let sound = self.leases().filter(|lease| lease.state() == LeaseState::Held).count();
        if !self.is_held() {
            LeaseState::Lost
        } else if sound < self.majority {
            LeaseState::Uncertain
        } else {
            LeaseState::Held
        }
    }

    /// Ends when it is lost: when less than a majority of the leases is good, less the drift.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped and called again.
    pub async fn lost(&self) {
        loop {
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            let clock = self.clock();
            let ends = clock.sleep_until(clock.now().after(left));
            let held = self.leases().filter(|lease| lease.is_held());
            let each_lost: Vec<_> = held.map(|lease| Box::pin(lease.lost())).collect();
            // They may all have ended since.
            if each_lost.is_empty() {
                return;
            }
            drop(select(ends, select_all(each_lost)).await);
        }
    }

    /// Makes it as long again as it was requested, on a majority: needed only where nobody else
    /// renews. One round trip in time.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) when it is lost; [`Unavailable`](ErrorKind::Unavailable) when less
    /// than a majority was renewed, with the lock as it was.
    ///
    /// # Cancel safety
    ///
    /// As [`Lease::renew`].
    pub async fn renew(&self) -> Result<()> {
        let renewals = self.leases().map(|lease| self.in_time(lease.renew()));
        let renewed = join_all(renewals).await.into_iter().flatten().flatten().count();
        let error = |kind, message| {
            Err(self.holds[0].0.acquisition.lock.with_lock(Error::new(kind, message)))
        };
        if !self.is_held() {
            error(ErrorKind::Lost, "the lock is lost")
        } else if renewed < self.majority {
            error(ErrorKind::Unavailable, "less than a majority of the members renewed it")
        } else {
            Ok(())
        }
    }

    /// Releases it everywhere. [`Released`](Released::Released) if a majority says that it was held
    /// until now; [`AlreadyLost`](Released::AlreadyLost) if so many say the opposite that there was
    /// no majority; [`Unknown`](Released::Unknown) otherwise. Members that do not answer in time
    /// are released in the background. One round trip in time.
    ///
    /// # Errors
    ///
    /// [`Refused`](ErrorKind::Refused) and [`Foreign`](ErrorKind::Foreign) when so many members
    /// refuse that there is no majority of others.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the releases are finished in the background.
    pub async fn release(mut self) -> Result<Released> {
        let was_held = self.is_held();
        let holds = std::mem::take(&mut self.holds);
        let (held, majority) = (holds.len(), self.majority);
        let clock = holds[0].0.client.clock.clone();
        let policy = self.member_timeout;
        let releases = holds.into_iter().map(async |hold| {
            let until = clock.now().after(policy);
            match select(std::pin::pin!(hold.release()), clock.sleep_until(until)).await {
                Either::Left((released, _)) => released,
                Either::Right(_) => Ok(Released::Unknown),
            }
        });
        let (mut released, mut lost, mut refused) = (0, 0, None);
        for outcome in join_all(releases).await {
            match outcome {
                Ok(Released::Released) => released += 1,
                Ok(Released::AlreadyLost) => lost += 1,
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            _ if released >= majority => Ok(Released::Released),
            _ if held - lost < majority || !was_held => Ok(Released::AlreadyLost),
            Some(error) => Err(error),
            None => Ok(Released::Unknown),
        }
    }

    /// What would come of writing the greatest token back, if so many members must refuse it that
    /// no majority can take it. Then it is not sent: each member that takes it gives tokens from
    /// then on that the members that refused it refuse as well.
    fn foresee(&self) -> Option<Written> {
        let token = self.leases().map(Lease::token).max()?;
        // A member's token is not behind its clock.
        let by = |lease: &Lease| Duration::from_micros(token - lease.token());
        let ahead = self.leases().map(by).enumerate();
        let refused: Vec<_> = ahead.filter(|(_, by)| *by > AHEAD).collect();
        let count = self.holds.len() - refused.len();
        (count < self.majority).then_some(Written { token, count, refused })
    }

    /// Writes the greatest of the members' tokens back to them.
    async fn write_token_back(&self) -> Option<Written> {
        let token = self.leases().map(Lease::token).max()?;
        let raised = self.leases().map(async |lease| match lease.token() == token {
            true => Some(Raised::Done),
            false => self.in_time(raise(lease, token)).await.flatten(),
        });
        let mut written = Written { token, count: 0, refused: Vec::new() };
        for (place, raised) in join_all(raised).await.into_iter().enumerate() {
            match raised {
                Some(Raised::Done) => written.count += 1,
                Some(Raised::Ahead(by)) => written.refused.push((place, by)),
                Some(Raised::Lost) | None => {}
            }
        }
        Some(written)
    }

    /// What comes of it in the time that a member has.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let clock = self.clock();
        match select(
            std::pin::pin!(work),
            clock.sleep_until(clock.now().after(self.member_timeout)),
        )
        .await
        {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.holds[0].0.client.clock
    }
}

/// What came of writing a token back.
struct Written {
    token: u64,
    /// How many members have it now.
    count: usize,
    /// The places of those for which it is too far ahead, and how far.
    refused: Vec<(usize, Duration)>,
}

/// What a member says to that token, if it says anything.
async fn raise(lease: &Lease, token: u64) -> Option<Raised> {
    let Lease { client, acquisition } = lease;
    let id = acquisition.id;
    let raise = RaiseToken { id, token };
    let reply =
        client.query(&acquisition.lock, &raise.call(client.scripts, &acquisition.lock)).await;
    raise.read(reply.ok()?).ok()
}
