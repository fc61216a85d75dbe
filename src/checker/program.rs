//! What the clients of a world do, and what may go wrong in it.

use std::time::Duration;

use crate::checker::time::UNIT;
use crate::client::acquisition::State;
use crate::client::polling::PollSettings;
use crate::client::request::{LeaseOptions, Renewal, WaitPolicy};
use crate::client::settings::Settings;
use crate::protocol::{Fairness, Goal, Mode, Permits};

use crate::checker::time::NOW;
use crate::checker::world::FAULTS;

/// One acquisition of a client, from its request to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) mode: Mode,
    pub(super) fairness: Fairness,
    /// It joins the queue; otherwise it only tries.
    pub(super) waits: bool,
    /// The longest hold, in units: near its end, renewals request less than the lease.
    pub(super) hold: Option<u32>,
    /// What it may do with the lease, in this order.
    pub(super) changes: &'static [Change],
    /// Its holder may also release it by a call of its own.
    pub(super) gives_back: bool,
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
pub(super) enum Change {
    Upgrade,
    Downgrade,
    /// Keeps this many of its permits.
    Shrink(u32),
}

impl Wish {
    pub(super) const WRITE: Wish = Wish {
        mode: Mode::Write,
        fairness: Fairness::PhaseFair,
        waits: true,
        hold: None,
        changes: &[],
        gives_back: false,
        caches: false,
        uses: 0,
        waits_for_cached: false,
        permits: 0,
    };
    pub(super) const WRITE_AND_GIVE_BACK: Wish = Wish { gives_back: true, ..Wish::WRITE };
    pub(super) const READ_AND_GIVE_BACK: Wish = Wish { gives_back: true, ..Wish::READ };
    pub(super) const SHORT_WRITE: Wish = Wish { hold: Some(1), ..Wish::WRITE };
    pub(super) const READ: Wish = Wish { mode: Mode::Read, ..Wish::WRITE };
    pub(super) const READ_FIRST: Wish =
        Wish { mode: Mode::Read, fairness: Fairness::ReadersFirst, ..Wish::WRITE };
    pub(super) const WRITE_AFTER_READERS: Wish =
        Wish { fairness: Fairness::ReadersFirst, ..Wish::WRITE };
    pub(super) const TRY_WRITE: Wish = Wish { waits: false, ..Wish::WRITE };
    pub(super) const TRY_READ: Wish = Wish { waits: false, ..Wish::READ };
    pub(super) const TRY_WRITE_OF_CACHED: Wish = Wish { waits_for_cached: true, ..Wish::TRY_WRITE };
    pub(super) const CACHED_WRITE: Wish = Wish { caches: true, uses: 2, ..Wish::WRITE };
    pub(super) const SELDOM_CACHED_WRITE: Wish = Wish { uses: 1, ..Wish::CACHED_WRITE };
    pub(super) const CACHED_READ: Wish = Wish { caches: true, uses: 1, ..Wish::READ };
    pub(super) const UPGRADE: Wish = Wish { changes: &[Change::Upgrade], ..Wish::READ };
    pub(super) const DOWNGRADE: Wish = Wish { changes: &[Change::Downgrade], ..Wish::WRITE };
    pub(super) const THERE_AND_BACK: Wish =
        Wish { changes: &[Change::Downgrade, Change::Upgrade], ..Wish::WRITE };
    pub(super) const PERMIT: Wish = Wish { permits: 1, ..Wish::READ };
    pub(super) const ALL_PERMITS: Wish = Wish { permits: LIMIT, ..Wish::READ };
    pub(super) const SHRINK: Wish = Wish { changes: &[Change::Shrink(1)], ..Wish::ALL_PERMITS };
    pub(super) const TRY_PERMIT: Wish = Wish { waits: false, ..Wish::PERMIT };

    pub(super) fn request(&self, settings: &Settings) -> State {
        let hold = self.hold.map(|units| units * UNIT);
        let fairness = self.fairness;
        let options = LeaseOptions { fairness, hold, ..LeaseOptions::of(settings) };
        let options = match self.caches {
            true => LeaseOptions { renewal: Renewal::Manual, cached: true, ..options },
            false => options,
        };
        let count = self.permits;
        let permits = (count > 0).then_some(Permits { count, limit: LIMIT });
        let options = LeaseOptions { permits, ..options };
        let goal = permits.map_or(Goal::Take(self.mode, self.fairness), Goal::Permits);
        State::new(goal, &options, self.policy(), NOW)
    }

    pub(super) fn policy(&self) -> WaitPolicy {
        match self.waits {
            true => WaitPolicy::Queue { until: None },
            false if self.waits_for_cached => {
                WaitPolicy::Try { until: NOW.after(UNIT), for_cached: UNIT }
            }
            false => WaitPolicy::strict_try(NOW.after(UNIT)),
        }
    }
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Budget {
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

impl Budget {
    /// In the order of `FAULTS`.
    pub(super) fn each(&self) -> [u8; FAULTS.len()] {
        let Budget {
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
pub(super) struct Plan {
    pub(super) name: &'static str,
    /// The program of each client.
    pub(super) programs: &'static [&'static [Wish]],
    pub(super) budget: Budget,
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
    pub(super) most_states: usize,
}

impl Plan {
    pub(super) const fn new(name: &'static str, programs: &'static [&'static [Wish]]) -> Plan {
        let budget = Budget {
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
        Plan {
            name,
            programs,
            budget,
            small_limits: false,
            lease: 2,
            ttl: 2,
            window: 1,
            call_slice: Duration::from_secs(2),
            most_states: 30_000_000,
        }
    }

    /// Its clients acquire permits of a semaphore.
    pub(super) fn has_permits(&self) -> bool {
        self.programs.iter().copied().flatten().any(|wish| wish.permits > 0)
    }

    pub(super) fn settings(&self) -> Settings {
        let poll = PollSettings {
            interval: UNIT,
            waiter_ttl: self.ttl * UNIT,
            window: self.window * UNIT,
        };
        Settings {
            lease: self.lease * UNIT,
            margin: Some(Duration::ZERO),
            poll,
            call_timeout: UNIT,
            call_slice: self.call_slice,
            ..Settings::default()
        }
    }
}
