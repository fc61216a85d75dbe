//! The leases of a quorum's guard, and how the lock is reacquired at missing members.

use std::sync::Mutex;
use std::time::Duration;

use futures::future::{Either, join_all, select, select_all};
use rwlease_core::acquisition::{HeldLease, LeaseOptions, RenewalPolicy};
use rwlease_core::protocol::{RaiseTokenReply, RaiseTokenRequest};
use rwlease_core::time::LocalInstant;
use tokio::sync::Notify;

use crate::client::config::check_options;
use crate::client::loss::LeaseLoss;
use crate::clock::Clock;
use crate::fencing_token::FencingToken;
use crate::lock::guard::Hold;
use crate::lock::lease::Lease;
use crate::lock::redlock::round::Round;
use crate::lock::redlock::watch::loss_reason;
use crate::locks::lock;

/// The leases of a guard. The guard shares them with the task that [watches](Self::watch) them.
#[derive(Debug)]
pub(super) struct MemberLeases {
    pub(super) round: Round,
    /// The end of the longest hold, if there is a limit.
    hold_ends: Option<LocalInstant>,
    members: Mutex<Members>,
    /// Notified when a lease is added.
    added: Notify,
}

#[derive(Debug)]
struct Members {
    /// One for each member, in their order.
    all: Vec<Member>,
    /// The lock is lost or released. No lease is added, and none counts.
    is_over: bool,
    /// What the report of a loss says, until the loss is reported or the guard ends the lock.
    /// `None` as well before the guard is returned.
    grant: Option<QuorumGrant>,
    /// How many leases had ended with their clients' shutdown when the lock was last found held.
    shut_down: usize,
}

/// The grant of a majority.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuorumGrant {
    /// The greatest token of the members. `None` for a lock without tokens.
    pub(super) token: Option<u64>,
    pub(super) granted_at: LocalInstant,
}

/// What the guard has at a member.
#[derive(Debug)]
enum Member {
    /// A lease, valid or lost.
    Granted(Hold),
    /// The member did not grant the lock.
    Missing,
    /// The member's clock is wrong. It is not tried again.
    LeftOut,
}

impl Member {
    fn hold(&self) -> Option<&Hold> {
        match self {
            Member::Granted(hold) => Some(hold),
            Member::Missing | Member::LeftOut => None,
        }
    }

    /// Whether the lock may be reacquired at the member. A revocation is to end the lock, so not
    /// after one.
    fn is_missing(&self) -> bool {
        match self {
            Member::Granted(Hold(lease)) => {
                !lease.is_held() && lease.with(HeldLease::was_revoked) == Some(false)
            }
            Member::Missing => true,
            Member::LeftOut => false,
        }
    }
}

impl MemberLeases {
    /// The leases that were granted to a round that began at `began`, with the members' positions.
    pub(super) fn new(round: Round, granted: Vec<(usize, Hold)>, began: LocalInstant) -> Self {
        let mut all: Vec<Member> = round.locks.iter().map(|_| Member::Missing).collect();
        for (place, hold) in granted {
            if let Some(member) = all.get_mut(place) {
                *member = Member::Granted(hold);
            }
        }
        MemberLeases {
            hold_ends: round.options.max_hold.map(|hold| began.saturating_add(hold)),
            round,
            members: Mutex::new(Members { all, is_over: false, grant: None, shut_down: 0 }),
            added: Notify::new(),
        }
    }

    /// The guard is returned with this token. From now on a loss is reported.
    pub(super) fn begin(&self, token: Option<u64>) {
        let grant = QuorumGrant { token, granted_at: self.clock().now() };
        lock(&self.members).grant = Some(grant);
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.round.quorum.members[0].client.clock
    }

    /// The leases, with the members' positions.
    pub(super) fn leases(&self) -> Vec<(usize, Lease)> {
        let members = lock(&self.members);
        let members = members.all.iter().enumerate();
        members.filter_map(|(place, member)| Some((place, member.hold()?.0.clone()))).collect()
    }

    /// The time for which a majority of the leases is valid, less the drift. Zero from the moment
    /// on at which it has been zero.
    pub(super) fn remaining(&self) -> Duration {
        self.remaining_of(&mut lock(&self.members))
    }

    fn remaining_of(&self, members: &mut Members) -> Duration {
        if members.is_over {
            return Duration::ZERO;
        }
        let drift = self.round.drift;
        let leases = members.all.iter().filter_map(Member::hold).map(|hold| &hold.0);
        let shut_down =
            leases.clone().filter(|lease| lease.acquisition.with_lease(|_| ()).is_none()).count();
        let mut left: Vec<Duration> = leases
            .map(|lease| lease.remaining().saturating_sub(drift.saturating_sub(lease.margin())))
            .collect();
        left.sort_unstable_by(|one, other| other.cmp(one));
        let left = left.get(self.round.quorum.majority() - 1).copied().unwrap_or_default();
        members.is_over = left.is_zero();
        if !members.is_over {
            members.shut_down = shut_down;
        }
        left
    }

    /// Completes when less than a majority of the leases is valid, less the drift.
    pub(super) async fn ended(&self) {
        loop {
            let mut added = std::pin::pin!(self.added.notified());
            added.as_mut().enable();
            let left = self.remaining();
            if left.is_zero() {
                return;
            }
            let clock = self.clock();
            let ends = clock.sleep_until(clock.now().saturating_add(left));
            let held: Vec<_> = self.leases().into_iter().map(|(_, lease)| lease).collect();
            let held = held.iter().filter(|lease| lease.is_held());
            let each_lost: Vec<_> = held.map(|lease| Box::pin(lease.ended())).collect();
            // All may have ended since.
            if !each_lost.is_empty() {
                drop(select(added, select(ends, select_all(each_lost))).await);
            }
        }
    }

    /// Completes when less than a majority of the leases is held and not at risk.
    pub(super) async fn at_risk(&self) {
        loop {
            let mut added = std::pin::pin!(self.added.notified());
            added.as_mut().enable();
            let sound = self.sound_leases();
            if sound.len() < self.round.quorum.majority() {
                return;
            }
            let alarms = select_all(sound.iter().map(|lease| Box::pin(lease.at_risk())));
            drop(select(added, alarms).await);
        }
    }

    /// Whether less than a majority of the leases is held and not at risk.
    pub(super) fn is_at_risk(&self) -> bool {
        self.sound_leases().len() < self.round.quorum.majority()
    }

    fn sound_leases(&self) -> Vec<Lease> {
        let leases = self.leases().into_iter().map(|(_, lease)| lease);
        leases.filter(|lease| !lease.is_at_risk()).collect()
    }

    /// Leaves a member out for good, and releases the lock there.
    pub(super) fn leave_out(&self, place: usize) {
        let mut members = lock(&self.members);
        let member = members.all.get_mut(place);
        let before = member.map(|member| std::mem::replace(member, Member::LeftOut));
        drop(members);
        drop(before); // after the unlocking, because it emits events
    }

    /// Returns the loss and its reason if the lock is lost, once.
    pub(super) fn take_loss(&self) -> Option<(LeaseLoss, &'static str)> {
        let mut members = lock(&self.members);
        if !self.remaining_of(&mut members).is_zero() {
            return None;
        }
        let QuorumGrant { token, granted_at } = members.grant.take()?;
        let now = self.clock().now();
        let leases = members.all.iter().filter_map(Member::hold).map(|hold| &hold.0);
        let reason = loss_reason(&self.round, leases, members.shut_down, now)?;
        let lock = &self.round.locks[0];
        let loss = LeaseLoss {
            lock: lock.name.clone(),
            slot: lock.slot,
            mode: self.round.mode,
            fencing_token: token.and_then(FencingToken::from_wire),
            held_for: now.saturating_duration_since(granted_at),
            guard_count: 1,
        };
        Some((loss, reason))
    }

    /// Ends the lock, and returns its leases.
    pub(super) fn end(&self) -> Vec<Hold> {
        let mut members = lock(&self.members);
        (members.is_over, members.grant) = (true, None);
        let members = std::mem::take(&mut members.all).into_iter();
        let held = members.filter_map(|place| match place {
            Member::Granted(hold) => Some(hold),
            Member::Missing | Member::LeftOut => None,
        });
        held.collect()
    }

    /// Tries once to reacquire the lock at each missing member, while the lock is held. Returns the
    /// number of members that granted it.
    ///
    /// If the future is dropped, a granted lock is released.
    pub(super) async fn retake_missing(&self, token: Option<u64>) -> usize {
        let Some(options) = self.options_now() else {
            return 0;
        };
        let missing: Vec<usize> = {
            let mut members = lock(&self.members);
            if self.remaining_of(&mut members).is_zero() {
                return 0;
            }
            let members = members.all.iter().enumerate();
            members.filter(|(_, member)| member.is_missing()).map(|(place, _)| place).collect()
        };
        let retakes = missing.into_iter().map(|place| self.retake(place, &options, token));
        join_all(retakes).await.into_iter().filter(|is_retaken| *is_retaken).count()
    }

    async fn retake(&self, place: usize, options: &LeaseOptions, token: Option<u64>) -> bool {
        let Ok(Some(hold)) = self.round.acquire(place, options).await else {
            return false;
        };
        // The next holder's majority may have no other member in common with this one.
        if let Some(token) = token.filter(|token| hold.0.acquisition.fencing_token() < *token)
            && !matches!(self.raise(&hold.0, token).await, Some(RaiseTokenReply::Raised))
        {
            return false;
        }
        self.add(place, hold)
    }

    /// Counts a new lease at a member that is missing, if the lock is held without it.
    fn add(&self, place: usize, hold: Hold) -> bool {
        let mut members = lock(&self.members);
        let is_held = !self.remaining_of(&mut members).is_zero();
        let member = members.all.get_mut(place).filter(|member| member.is_missing());
        let Some(member) = member.filter(|_| is_held) else {
            return false;
        };
        let before = std::mem::replace(member, Member::Granted(hold));
        drop(members);
        drop(before); // after the unlocking, because it emits events
        self.added.notify_waiters();
        true
    }

    /// The options of a lease that is taken now, with the limits of the leases that stand.
    fn options_now(&self) -> Option<LeaseOptions> {
        let mut options = self.round.options.clone();
        options.renewal =
            self.renewals_left().map_or(RenewalPolicy::Automatic, RenewalPolicy::Limited);
        if let Some(ends) = self.hold_ends {
            // The limit counts from the grant, which may come as late as the timeout.
            options.max_hold = Some(ends.saturating_duration_since(
                self.clock().now().saturating_add(self.round.member_timeout),
            ));
        }
        check_options(&options).is_ok().then_some(options)
    }

    /// The least number of renewals that a valid lease has left, if there is a limit.
    pub(super) fn renewals_left(&self) -> Option<u32> {
        let leases = self.leases().into_iter().map(|(_, lease)| lease);
        let held = leases.filter(Lease::is_held);
        held.filter_map(|lease| lease.with(HeldLease::renewals_left).flatten()).min()
    }

    /// The reply of the member to that token, if it replies in time.
    pub(super) async fn raise(&self, lease: &Lease, token: u64) -> Option<RaiseTokenReply> {
        let Lease { client, acquisition } = lease;
        let raise = RaiseTokenRequest { id: acquisition.id, token };
        let call = raise.call(&acquisition.lock);
        let read = |reply| raise.read(reply);
        self.in_time(client.query(&acquisition.lock, &call, read)).await?.ok()
    }

    /// The outcome of `work` within the time that a member has, or `None`.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let clock = self.clock();
        let until = clock.now().saturating_add(self.round.member_timeout);
        match select(std::pin::pin!(work), clock.sleep_until(until)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}
