//! What the clients of a world do, and what may go wrong in it.

use std::time::Duration;

use crate::checker::time::UNIT;
use crate::client::acquisition::AcquisitionState;
use crate::client::config::ClientConfig;
use crate::client::lease_options::{LeaseOptions, RenewalPolicy, WaitPolicy};
use crate::client::poll_schedule::PollConfig;
use crate::protocol::{AcquireKind, Fairness, LockMode, PermitRequest};

use crate::checker::time::LOCAL_NOW;
use crate::checker::world::FAULT_NAMES;

/// One acquisition of a client, from its request to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcquireProgram {
    pub(super) mode: LockMode,
    pub(super) fairness: Fairness,
    /// It joins the queue; otherwise it only tries.
    pub(super) is_queued: bool,
    /// The longest hold, in units: near its end, renewals request less than the lease.
    pub(super) hold: Option<u32>,
    /// What it may do with the lease, in this order.
    pub(super) changes: &'static [LeaseChange],
    /// Its holder may also release it by a call of its own.
    pub(super) releases_by_call: bool,
    /// It caches the lease for this many more guards, and releases it when it is recalled.
    pub(super) caches: bool,
    pub(super) uses: u8,
    /// A try waits for holders that only cache the lock.
    pub(super) waits_for_cached: bool,
    /// The permits of a semaphore that it requests, or 0 for the lock.
    pub(super) permits: u32,
}

/// The limit of the semaphore in a world.
pub(super) const LIMIT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseChange {
    Upgrade,
    Downgrade,
    /// Keeps this many of its permits.
    Shrink(u32),
}

impl AcquireProgram {
    pub(super) const WRITE: AcquireProgram = AcquireProgram {
        mode: LockMode::Write,
        fairness: Fairness::PhaseFair,
        is_queued: true,
        hold: None,
        changes: &[],
        releases_by_call: false,
        caches: false,
        uses: 0,
        waits_for_cached: false,
        permits: 0,
    };
    pub(super) const WRITE_AND_GIVE_BACK: AcquireProgram =
        AcquireProgram { releases_by_call: true, ..AcquireProgram::WRITE };
    pub(super) const READ_AND_GIVE_BACK: AcquireProgram =
        AcquireProgram { releases_by_call: true, ..AcquireProgram::READ };
    pub(super) const WRITE_WITH_MAX_HOLD: AcquireProgram =
        AcquireProgram { hold: Some(1), ..AcquireProgram::WRITE };
    pub(super) const READ: AcquireProgram =
        AcquireProgram { mode: LockMode::Read, ..AcquireProgram::WRITE };
    pub(super) const READ_FIRST: AcquireProgram = AcquireProgram {
        mode: LockMode::Read,
        fairness: Fairness::ReadersFirst,
        ..AcquireProgram::WRITE
    };
    pub(super) const WRITE_READERS_FIRST: AcquireProgram =
        AcquireProgram { fairness: Fairness::ReadersFirst, ..AcquireProgram::WRITE };
    pub(super) const TRY_WRITE: AcquireProgram =
        AcquireProgram { is_queued: false, ..AcquireProgram::WRITE };
    pub(super) const TRY_READ: AcquireProgram =
        AcquireProgram { is_queued: false, ..AcquireProgram::READ };
    pub(super) const TRY_WRITE_OF_CACHED: AcquireProgram =
        AcquireProgram { waits_for_cached: true, ..AcquireProgram::TRY_WRITE };
    pub(super) const CACHED_WRITE: AcquireProgram =
        AcquireProgram { caches: true, uses: 2, ..AcquireProgram::WRITE };
    pub(super) const CACHED_WRITE_ONCE: AcquireProgram =
        AcquireProgram { uses: 1, ..AcquireProgram::CACHED_WRITE };
    pub(super) const CACHED_READ: AcquireProgram =
        AcquireProgram { caches: true, uses: 1, ..AcquireProgram::READ };
    pub(super) const UPGRADE: AcquireProgram =
        AcquireProgram { changes: &[LeaseChange::Upgrade], ..AcquireProgram::READ };
    pub(super) const DOWNGRADE: AcquireProgram =
        AcquireProgram { changes: &[LeaseChange::Downgrade], ..AcquireProgram::WRITE };
    pub(super) const DOWNGRADE_THEN_UPGRADE: AcquireProgram = AcquireProgram {
        changes: &[LeaseChange::Downgrade, LeaseChange::Upgrade],
        ..AcquireProgram::WRITE
    };
    pub(super) const PERMIT: AcquireProgram = AcquireProgram { permits: 1, ..AcquireProgram::READ };
    pub(super) const ALL_PERMITS: AcquireProgram =
        AcquireProgram { permits: LIMIT, ..AcquireProgram::READ };
    pub(super) const SHRINK: AcquireProgram =
        AcquireProgram { changes: &[LeaseChange::Shrink(1)], ..AcquireProgram::ALL_PERMITS };
    pub(super) const TRY_PERMIT: AcquireProgram =
        AcquireProgram { is_queued: false, ..AcquireProgram::PERMIT };

    pub(super) fn request(&self, settings: &ClientConfig) -> AcquisitionState {
        let hold = self.hold.map(|units| units * UNIT);
        let fairness = self.fairness;
        let options =
            LeaseOptions { fairness, max_hold: hold, ..LeaseOptions::from_config(settings) };
        let options = match self.caches {
            true => LeaseOptions { renewal: RenewalPolicy::Manual, is_cacheable: true, ..options },
            false => options,
        };
        let count = self.permits;
        let permits = (count > 0).then_some(PermitRequest { count, limit: LIMIT });
        let options = LeaseOptions { permits, ..options };
        let goal =
            permits.map_or(AcquireKind::Lock(self.mode, self.fairness), AcquireKind::Permits);
        AcquisitionState::new(goal, &options, self.policy(), LOCAL_NOW)
    }

    pub(super) fn policy(&self) -> WaitPolicy {
        match self.is_queued {
            true => WaitPolicy::Queue { deadline: None },
            false if self.waits_for_cached => {
                WaitPolicy::Try { deadline: LOCAL_NOW.saturating_add(UNIT), cached_wait: UNIT }
            }
            false => WaitPolicy::strict_try(LOCAL_NOW.saturating_add(UNIT)),
        }
    }
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FaultBudget {
    /// A client gives up a call. The call may still arrive; its answer does not.
    pub(super) abandoned: u8,
    /// A message is lost.
    pub(super) lost_messages: u8,
    /// A request is dropped by its caller.
    pub(super) cancelled: u8,
    /// A client dies.
    pub(super) crashes: u8,
    /// The server's replica takes over, without the last write.
    pub(super) failovers: u8,
    /// Another server has the lock, with all writes.
    pub(super) moves: u8,
    /// Somebody else revokes the current leases.
    pub(super) revoked: u8,
    /// Somebody else takes the lock from all its holders.
    pub(super) forced: u8,
    /// Time passes although a client could act.
    pub(super) slow: u8,
}

impl FaultBudget {
    /// In the order of `FAULTS`.
    pub(super) fn each(&self) -> [u8; FAULT_NAMES.len()] {
        let FaultBudget {
            abandoned,
            lost_messages,
            cancelled,
            crashes,
            failovers,
            moves,
            revoked,
            forced,
            slow,
        } = *self;
        [abandoned, lost_messages, cancelled, crashes, failovers, moves, revoked, forced, slow]
    }
}

/// No limit to how slow clients are.
pub(super) const UNLIMITED: u8 = u8::MAX;

/// A world to search.
#[derive(Clone, Debug)]
pub(super) struct ModelPlan {
    pub(super) name: &'static str,
    /// The program of each client.
    pub(super) programs: &'static [&'static [AcquireProgram]],
    pub(super) budget: FaultBudget,
    /// The limits of the scripts are lowered, so that few clients reach them.
    pub(super) small_limits: bool,
    /// In units: the lease, a waiter's time to live, and the window of a grant.
    pub(super) lease: u32,
    pub(super) ttl: u32,
    pub(super) window: u32,
    /// The time limit of an attempt to acquire. If it is less than a unit, no time passes
    /// meanwhile.
    pub(super) call_slice: Duration,
    /// The search stops, without being complete, after this many states.
    pub(super) max_states: usize,
}

impl ModelPlan {
    pub(super) const fn new(
        name: &'static str,
        programs: &'static [&'static [AcquireProgram]],
    ) -> ModelPlan {
        let budget = FaultBudget {
            abandoned: 0,
            lost_messages: 0,
            cancelled: 0,
            crashes: 0,
            failovers: 0,
            moves: 0,
            revoked: 0,
            forced: 0,
            slow: 0,
        };
        ModelPlan {
            name,
            programs,
            budget,
            small_limits: false,
            lease: 2,
            ttl: 2,
            window: 1,
            call_slice: Duration::from_secs(2),
            max_states: 30_000_000,
        }
    }

    /// Its clients acquire permits of a semaphore.
    pub(super) fn has_permits(&self) -> bool {
        self.programs.iter().copied().flatten().any(|wish| wish.permits > 0)
    }

    pub(super) fn settings(&self) -> ClientConfig {
        let poll = PollConfig {
            poll_interval: UNIT,
            waiter_ttl: self.ttl * UNIT,
            claim_timeout: self.window * UNIT,
        };
        ClientConfig {
            lease: self.lease * UNIT,
            safety_margin: Some(Duration::ZERO),
            polling: poll,
            call_timeout: UNIT,
            acquire_call_timeout: self.call_slice,
            ..ClientConfig::default()
        }
    }
}
