//! What the clients of a world do, and what may go wrong in it.

use std::time::Duration;

use rwlease_core::acquisition::{
    AcquisitionConfig, AcquisitionState, LeaseOptions, PollConfig, WaitPolicy,
};
use rwlease_core::protocol::{AcquireKind, Confirmation, PermitRequest};

use crate::time::UNIT;
use rwlease::{Fairness, LockMode, RenewalPolicy};

use crate::time::LOCAL_NOW;

/// One acquisition of a client, from its request to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireProgram {
    pub mode: LockMode,
    pub fairness: Fairness,
    /// It joins the queue; otherwise it only tries.
    pub is_queued: bool,
    /// The longest hold, in units: near its end, renewals request less than the lease.
    pub hold: Option<u32>,
    /// What it may do with the lease, in this order.
    pub changes: &'static [LeaseChange],
    /// Its holder may also release it by a call of its own.
    pub releases_by_call: bool,
    /// It caches the lease for this many more guards, and releases it when it is recalled.
    pub uses: u8,
    /// A try waits for holders that only cache the lock.
    pub waits_for_cached: bool,
    /// The permits of a semaphore that it requests, or 0 for the lock.
    pub permits: u32,
}

/// The limit of the semaphore in a world.
pub const LIMIT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Upgrade,
    Downgrade,
    /// Keeps this many of its permits.
    ReleasePermits(u32),
}

impl AcquireProgram {
    /// The program of a word: reads and writes of a lock (`W`, `RU`), or permits (`P1`).
    pub fn named(word: &str) -> AcquireProgram {
        let write = AcquireProgram {
            mode: LockMode::Write,
            fairness: Fairness::PhaseFair,
            is_queued: true,
            hold: None,
            changes: &[],
            releases_by_call: false,
            uses: 0,
            waits_for_cached: false,
            permits: 0,
        };
        let read = AcquireProgram { mode: LockMode::Read, ..write };
        match word {
            "W" => write,
            "R" => read,
            "RU" => AcquireProgram { changes: &[LeaseChange::Upgrade], ..read },
            "WD" => AcquireProgram { changes: &[LeaseChange::Downgrade], ..write },
            // A write that becomes a read and a write again.
            "WDU" => {
                AcquireProgram { changes: &[LeaseChange::Downgrade, LeaseChange::Upgrade], ..write }
            }
            // A write that is held for at most one unit.
            "WS" => AcquireProgram { hold: Some(1), ..write },
            // Both may be released by calls of their holders.
            "WG" => AcquireProgram { releases_by_call: true, ..write },
            "RG" => AcquireProgram { releases_by_call: true, ..read },
            // They only try.
            "TW" => AcquireProgram { is_queued: false, ..write },
            "TR" => AcquireProgram { is_queued: false, ..read },
            // It waits for holders that only cache the lock.
            "TC" => AcquireProgram { is_queued: false, waits_for_cached: true, ..write },
            // Readers-first, both of them.
            "WF" => AcquireProgram { fairness: Fairness::ReadersFirst, ..write },
            "RF" => AcquireProgram { fairness: Fairness::ReadersFirst, ..read },
            // Cached, with guards to come: two, or one.
            "CW" => AcquireProgram { uses: 2, ..write },
            "CS" => AcquireProgram { uses: 1, ..write },
            "CR" => AcquireProgram { uses: 1, ..read },
            // One permit of a semaphore with two, and both.
            "P1" => AcquireProgram { permits: 1, ..read },
            "P2" => AcquireProgram { permits: LIMIT, ..read },
            // Both, one of which is released first.
            "PS" => AcquireProgram {
                changes: &[LeaseChange::ReleasePermits(1)],
                permits: LIMIT,
                ..read
            },
            "TP" => AcquireProgram { is_queued: false, permits: 1, ..read },
            _ => unreachable!("there is no program {word}"),
        }
    }

    pub fn request(&self, lease: Duration) -> AcquisitionState {
        let hold = self.hold.map(|units| units * UNIT);
        let fairness = self.fairness;
        let options = LeaseOptions {
            lease,
            fairness,
            renewal: RenewalPolicy::Automatic,
            max_hold: hold,
            at_least: None,
            confirmation: Confirmation::default(),
            is_cacheable: false,
            reserved: false,
            is_member: false,
            permits: None,
        };
        let options = match self.uses > 0 {
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

    pub fn policy(&self) -> WaitPolicy {
        match self.is_queued {
            true => WaitPolicy::Queue { deadline: None },
            false if self.waits_for_cached => {
                WaitPolicy::Try { deadline: LOCAL_NOW.saturating_add(UNIT), cached_wait: UNIT }
            }
            false => WaitPolicy::strict_try(LOCAL_NOW.saturating_add(UNIT)),
        }
    }
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFault {
    /// A client gives up a call. The call may still arrive; its answer does not.
    Abandon,
    /// A message is lost.
    LoseMessage,
    /// A request is dropped by its caller.
    Cancel,
    /// A client dies.
    Crash,
    /// The server's replica takes over, without the last write.
    FailOver,
    /// Another server has the lock, with all writes.
    Move,
    /// Somebody else revokes the current leases.
    Revoke,
    /// Somebody else takes the lock from all its holders.
    Force,
    /// Time passes although a client could act.
    Slow,
    /// A client's clock never makes a tick of the server's clock.
    LoseTick,
    /// A client's clock makes a tick that the server's clock does not make.
    GainTick,
}

/// The names of all faults, in the order of [`ModelFault`].
pub const FAULT_NAMES: [&str; 11] = [
    "abandoned call",
    "lost message",
    "cancel",
    "crash",
    "failover",
    "move",
    "revoke",
    "force_release",
    "slowness",
    "lost tick",
    "extra tick",
];

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultBudget(pub [u8; FAULT_NAMES.len()]);

impl FaultBudget {
    pub fn left(&self, fault: ModelFault) -> u8 {
        self.0[fault as usize]
    }

    pub fn has(&self, fault: ModelFault) -> bool {
        self.left(fault) > 0
    }

    pub fn spend(&mut self, fault: ModelFault) {
        let left = &mut self.0[fault as usize];
        if *left != UNLIMITED {
            *left -= 1;
        }
    }
}

/// No limit to how slow clients are.
pub const UNLIMITED: u8 = u8::MAX;

/// A world to search.
#[derive(Clone, Debug)]
pub struct ModelPlan {
    pub name: &'static str,
    /// The program of each client.
    pub programs: Vec<Vec<AcquireProgram>>,
    pub budget: FaultBudget,
    /// The limits of the scripts are lowered, so that few clients reach them.
    pub small_limits: bool,
    /// In units: the lease, a waiter's time to live, and the window of a grant.
    pub lease: u32,
    pub ttl: u32,
    pub window: u32,
    /// In units: how much earlier a lease ends at the client than at the server.
    pub margin: u32,
    /// Each client has a clock of its own, which may be late by this many ticks.
    pub late: u8,
    /// A clock loses or gains at most one tick in this many ticks, if there is such a limit.
    pub tick_period: u8,
    /// The time limit of an attempt to acquire. If it is less than a unit, no time passes
    /// meanwhile.
    pub call_slice: Duration,
    /// The search stops, without being complete, after this many states.
    pub max_states: usize,
}

impl ModelPlan {
    /// The world of a name such as `queue: W,R.W; 1 crash, slowness 2`: the programs of each
    /// client, one after the other, and then what may go wrong and what differs from other worlds.
    pub fn named(name: &'static str) -> ModelPlan {
        let world = name.split_once(": ").map_or(name, |(_area, world)| world);
        let (programs, settings) = world.split_once("; ").unwrap_or((world, ""));
        let client = |words: &str| words.split('.').map(AcquireProgram::named).collect();
        let mut plan = ModelPlan {
            name,
            programs: programs.split(',').map(client).collect(),
            budget: FaultBudget::default(),
            small_limits: false,
            lease: 2,
            ttl: 2,
            window: 1,
            margin: 0,
            late: 0,
            tick_period: 0,
            call_slice: Duration::from_secs(2),
            max_states: 30_000_000,
        };
        settings.split_terminator(", ").for_each(|setting| plan.set(setting));
        plan
    }

    fn set(&mut self, setting: &str) {
        let number = setting.split(' ').find_map(|word| word.parse().ok()).unwrap_or(1);
        let kind = setting.trim_matches(|letter: char| letter == ' ' || letter.is_ascii_digit());
        if let Some(fault) = FAULT_NAMES.iter().position(|name| *name == kind) {
            self.budget.0[fault] = number;
            return;
        }
        match kind {
            "unlimited slowness" => self.budget.0[ModelFault::Slow as usize] = UNLIMITED,
            "unlimited extra ticks" => self.budget.0[ModelFault::GainTick as usize] = UNLIMITED,
            "a tick lost of" => self.lose_or_gain_each(number, ModelFault::LoseTick),
            "a tick gained of" => self.lose_or_gain_each(number, ModelFault::GainTick),
            "late clocks" => self.late = number,
            "margin" => self.margin = number.into(),
            "small limits" => self.small_limits = true,
            "calls of a unit" => self.call_slice = UNIT,
            "lease" => self.lease = number.into(),
            "lease and ttl" => (self.lease, self.ttl) = (number.into(), number.into()),
            "window" => self.window = number.into(),
            _ => unreachable!("there is no setting {setting}"),
        }
    }

    fn lose_or_gain_each(&mut self, period: u8, fault: ModelFault) {
        self.budget.0[fault as usize] = UNLIMITED;
        self.tick_period = period;
    }

    /// Each client has a clock of its own.
    pub fn has_clocks_apart(&self) -> bool {
        self.late > 0
    }

    /// Its clients acquire permits of a semaphore.
    pub fn has_permits(&self) -> bool {
        self.programs.iter().flatten().any(|wish| wish.permits > 0)
    }

    pub fn settings(&self) -> AcquisitionConfig {
        let poll = PollConfig {
            poll_interval: UNIT,
            waiter_ttl: self.ttl * UNIT,
            claim_timeout: self.window * UNIT,
        };
        AcquisitionConfig {
            safety_margin: Some(self.margin * UNIT),
            polling: poll,
            call_timeout: UNIT,
            acquire_call_timeout: self.call_slice,
            ..AcquisitionConfig::default()
        }
    }
}
