//! The worlds to search. `make check` runs them all, including the slow ones with `DEEP=1`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::checker::program::{AcquireProgram, FaultBudget, ModelPlan, UNLIMITED};
use crate::checker::report;
use crate::checker::scripts_under_test::ScriptVariant;
use crate::checker::search::{SearchSummary, search};
use crate::checker::time::UNIT;
use crate::checker::world::{FAULT_NAMES, LockModel};

pub(super) const NO_FAULTS: FaultBudget = ModelPlan::new("", &[]).budget;

pub(super) const W: &[AcquireProgram] = &[AcquireProgram::WRITE];
pub(super) const R: &[AcquireProgram] = &[AcquireProgram::READ];
pub(super) const RU: &[AcquireProgram] = &[AcquireProgram::UPGRADE];
pub(super) const WD: &[AcquireProgram] = &[AcquireProgram::DOWNGRADE];
/// One after the other.
const W_THEN_R: &[AcquireProgram] = &[AcquireProgram::WRITE, AcquireProgram::READ];
const R_THEN_W: &[AcquireProgram] = &[AcquireProgram::READ, AcquireProgram::WRITE];
/// A write that becomes a read and a write again.
pub(super) const WDU: &[AcquireProgram] = &[AcquireProgram::DOWNGRADE_THEN_UPGRADE];
/// A write that is held for at most one unit.
pub(super) const SHORT: &[AcquireProgram] = &[AcquireProgram::WRITE_WITH_MAX_HOLD];
/// Both may be released by calls of their holders.
pub(super) const WG: &[AcquireProgram] = &[AcquireProgram::WRITE_AND_GIVE_BACK];
pub(super) const RG: &[AcquireProgram] = &[AcquireProgram::READ_AND_GIVE_BACK];
pub(super) const TW: &[AcquireProgram] = &[AcquireProgram::TRY_WRITE];
pub(super) const TR: &[AcquireProgram] = &[AcquireProgram::TRY_READ];
/// Readers-first, both of them.
pub(super) const RF: &[AcquireProgram] = &[AcquireProgram::READ_FIRST];
pub(super) const WF: &[AcquireProgram] = &[AcquireProgram::WRITE_READERS_FIRST];

/// One permit of a semaphore with two, and both.
pub(super) const P1: &[AcquireProgram] = &[AcquireProgram::PERMIT];
pub(super) const P2: &[AcquireProgram] = &[AcquireProgram::ALL_PERMITS];
/// Both, one of which is released first.
pub(super) const PS: &[AcquireProgram] = &[AcquireProgram::SHRINK];
pub(super) const TP: &[AcquireProgram] = &[AcquireProgram::TRY_PERMIT];

/// Cached, with guards to come.
pub(super) const CW: &[AcquireProgram] = &[AcquireProgram::CACHED_WRITE];
pub(super) const CR: &[AcquireProgram] = &[AcquireProgram::CACHED_READ];
/// With one guard to come.
const CS: &[AcquireProgram] = &[AcquireProgram::CACHED_WRITE_ONCE];
/// It tries, and waits for holders that only cache the lock.
const TC: &[AcquireProgram] = &[AcquireProgram::TRY_WRITE_OF_CACHED];

/// Searches a world and prints the result. Fails if a rule is broken or the search is incomplete.
fn check(plan: ModelPlan) {
    let planned = plan.budget.each().map(|times| times > 0);
    let summary = search(&mut LockModel::new(plan, ScriptVariant::default()));
    println!("{}", summary.row());
    record_for_table(&summary);
    if let Some(violation) = &summary.violation {
        panic!("{} after {} steps\n{}", violation.what, violation.steps, violation.history);
    }
    assert!(summary.is_complete, "the search of this world has not come to its end");
    let happened = summary.faults.map(|times| times > 0);
    assert_eq!(happened, planned, "what may go wrong has gone wrong, each of {FAULT_NAMES:?}");
}

/// Takes an hour or so, and runs only on request.
fn check_deep(plan: ModelPlan) {
    if std::env::var("DEEP").is_ok_and(|deep| !deep.is_empty()) {
        check(plan);
    }
}

/// Writes the table of all worlds that this program has searched so far.
fn record_for_table(summary: &SearchSummary) {
    static ROWS: Mutex<BTreeMap<&str, String>> = Mutex::new(BTreeMap::new());
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.insert(summary.name, summary.row());
    let table = report::table(rows.values());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::fs::create_dir_all(&folder).unwrap(); // cargo may build in another one
    std::fs::write(folder.join("check.md"), table).unwrap();
}

/// The smallest world, which runs with all tests.
#[test]
fn a_small_world_is_searched_to_its_end() {
    check(ModelPlan::new("W,R", &[W, R]));
}

mod network {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_writers_and_calls_messages_and_requests_that_get_lost() {
        let budget = FaultBudget {
            abandoned: 1,
            lost_messages: 1,
            cancelled: 1,
            slow: UNLIMITED,
            ..NO_FAULTS
        };
        let name = "network: W,W; unlimited slowness, 1 abandoned call, 1 lost message, 1 cancel";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[W, W]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_write_that_becomes_a_read_and_a_reader() {
        let budget = FaultBudget { abandoned: 1, slow: 1, ..NO_FAULTS };
        let name = "network: WD,R; slowness 1, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[WD, R]) });
    }

    /// An answer may be under way while a part of the lease passes. With a lease of two units, a
    /// renewal would be useless so late.
    #[test]
    #[ignore = "a world of `make check`"]
    fn writer_and_reader_with_calls_of_one_unit() {
        let budget = FaultBudget { abandoned: 1, slow: 1, ..NO_FAULTS };
        let name = "network: W,R; slowness 1, 1 abandoned call, calls of a unit, lease 3";
        check(ModelPlan { budget, call_slice: UNIT, lease: 3, ..ModelPlan::new(name, &[W, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn holders_that_release_by_a_call() {
        let budget = FaultBudget { abandoned: 1, slow: 1, ..NO_FAULTS };
        let name = "network: WG,RG; slowness 1, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[WG, RG]) });
    }
}

mod queue {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_writers_and_a_reader_that_are_slow() {
        let budget = FaultBudget { slow: 2, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("queue: W,W,R; slowness 2", &[W, W, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_writers_one_reader_with_crash() {
        let budget = FaultBudget { crashes: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("queue: W,W,R; 1 crash", &[W, W, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn three_writers_and_a_reader() {
        check(ModelPlan::new("queue: W,W,W,R", &[W, W, W, R]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn writer_two_readers_with_cancel() {
        let budget = FaultBudget { cancelled: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("queue: W,R,R; 1 cancel", &[W, R, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn readers_first() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("queue: WF,RF,R; slowness 1", &[WF, RF, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_fair_writer_and_readers_first() {
        check(ModelPlan::new("queue: W,WF,RF,RF", &[W, WF, RF, RF]));
    }

    /// A client may have let an earlier grant lapse. Late calls and messages of one acquisition
    /// meet the next one.
    #[test]
    #[ignore = "a world of `make check`"]
    fn write_then_read_beside_read_then_write() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        let plan = ModelPlan::new("queue: W.R,R.W; slowness 1", &[W_THEN_R, R_THEN_W]);
        check(ModelPlan { budget, ..plan });
    }

    /// Times that are twice as close to each other.
    #[test]
    #[ignore = "a world of `make check`"]
    fn twice_as_many_ticks() {
        let budget = FaultBudget { slow: UNLIMITED, ..NO_FAULTS };
        let plan =
            ModelPlan::new("queue: W,R; unlimited slowness, lease and ttl 4, window 2", &[W, R]);
        check(ModelPlan { budget, lease: 4, ttl: 4, window: 2, ..plan });
    }

    /// The claim requests less than the window of the grant.
    #[test]
    #[ignore = "a world of `make check`"]
    fn renewals_that_want_less() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        let plan = ModelPlan::new(
            "queue: W, and a W of one unit at most; slowness 1, window 2",
            &[W, SHORT],
        );
        check(ModelPlan { budget, window: 2, ..plan });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn try_only() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("queue: TW,TR,W; slowness 1", &[TW, TR, W]) });
    }

    #[test]
    #[ignore = "a world of `DEEP=1 make check`"]
    fn two_writers_and_a_reader_that_are_slower() {
        let budget = FaultBudget { slow: 3, ..NO_FAULTS };
        check_deep(ModelPlan { budget, ..ModelPlan::new("deep: W,W,R; slowness 3", &[W, W, R]) });
    }
}

mod changes {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_readers_that_upgrade_and_a_writer() {
        check(ModelPlan::new("changes: RU,RU,W", &[RU, RU, W]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_reader_that_upgrades_and_two_readers() {
        check(ModelPlan::new("changes: RU,R,R", &[RU, R, R]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_reader_that_gives_up_its_upgrade() {
        let budget = FaultBudget { cancelled: 1, abandoned: 1, ..NO_FAULTS };
        let name = "changes: RU,R; 1 abandoned call, 1 cancel";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[RU, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn revoke_and_force_release() {
        let budget = FaultBudget { revoked: 1, forced: 1, slow: 1, ..NO_FAULTS };
        let name = "changes: W,R; 1 revoke, 1 force_release, slowness 1";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[W, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn revoke_and_force_release_of_holders_beside_an_upgrade() {
        let budget = FaultBudget { revoked: 1, forced: 1, ..NO_FAULTS };
        let name = "changes: RU,R; 1 revoke, 1 force_release";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[RU, R]) });
    }

    /// A renewal of the read may come after the upgrade.
    #[test]
    #[ignore = "a world of `make check`"]
    fn a_reader_that_upgrades_and_renewals_that_come_late() {
        let budget = FaultBudget { abandoned: 1, slow: 1, ..NO_FAULTS };
        let name = "changes: RU,R; slowness 1, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[RU, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn downgrade_then_upgrade() {
        let budget = FaultBudget { abandoned: 1, ..NO_FAULTS };
        check(ModelPlan {
            budget,
            ..ModelPlan::new("changes: WDU,R; 1 abandoned call", &[WDU, R])
        });
    }
}

mod history {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_writer_and_a_reader_through_a_failover() {
        let budget = FaultBudget { failovers: 1, abandoned: 1, ..NO_FAULTS };
        let name = "history: W,R; 1 failover, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[W, R]) });
    }

    /// Here each belief must be right.
    #[test]
    #[ignore = "a world of `make check`"]
    fn a_writer_and_a_reader_whose_lock_moves() {
        let budget = FaultBudget { moves: 1, abandoned: 1, ..NO_FAULTS };
        let name = "history: W,R; 1 move, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[W, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_writers_through_a_failover() {
        let budget = FaultBudget { failovers: 1, slow: 1, ..NO_FAULTS };
        check(ModelPlan {
            budget,
            ..ModelPlan::new("history: W,W; 1 failover, slowness 1", &[W, W])
        });
    }

    /// The renewals of the reader repeat a downgrade that the failover has lost, and one that comes
    /// late does no more than that.
    #[test]
    #[ignore = "a world of `make check`"]
    fn a_write_that_becomes_a_read_through_a_failover() {
        let budget = FaultBudget { failovers: 1, abandoned: 1, ..NO_FAULTS };
        let name = "history: WD,R; 1 failover, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[WD, R]) });
    }

    #[test]
    #[ignore = "a world of `DEEP=1 make check`"]
    fn two_writers_and_a_reader_through_a_failover() {
        let budget = FaultBudget { failovers: 1, ..NO_FAULTS };
        check_deep(ModelPlan { budget, ..ModelPlan::new("deep: W,W,R; 1 failover", &[W, W, R]) });
    }
}

/// `C` keeps the lease for guards to come, to write or to read.
mod cached {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_and_a_writer() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("cached: CW,W; slowness 1", &[CW, W]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_and_a_reader_and_calls_and_messages_that_get_lost() {
        let budget = FaultBudget { abandoned: 1, lost_messages: 1, ..NO_FAULTS };
        let name = "cached: CW,R; 1 abandoned call, 1 lost message";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[CW, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn two_that_cache_a_write() {
        check(ModelPlan::new("cached: CW,CW", &[CW, CW]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_and_a_cached_read() {
        check(ModelPlan::new("cached: CW,CR", &[CW, CR]));
    }

    #[test]
    #[ignore = "a world of `DEEP=1 make check`"]
    fn two_cached_one_uncached() {
        check_deep(ModelPlan::new("deep: CR,CR,W", &[CR, CR, W]));
    }

    #[test]
    #[ignore = "a world of `DEEP=1 make check`"]
    fn two_that_cache_and_a_try() {
        check_deep(ModelPlan::new("deep: CR,CR,TC", &[CR, CR, TC]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn try_waits_for_cached_lease() {
        check(ModelPlan::new("cached: CR,TC,W", &[CR, TC, W]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_read_and_a_reader_that_upgrades() {
        check(ModelPlan::new("cached: CR,RU", &[CR, RU]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_that_is_revoked() {
        let budget = FaultBudget { revoked: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("cached: CS,R; 1 revoke", &[CS, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_that_is_taken() {
        let budget = FaultBudget { forced: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("cached: CS,W; 1 force_release", &[CS, W]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_write_through_a_failover() {
        let budget = FaultBudget { failovers: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("cached: CW,R; 1 failover", &[CW, R]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_cached_read_through_a_move() {
        let budget = FaultBudget { moves: 1, slow: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("cached: CR,W; 1 move, slowness 1", &[CR, W]) });
    }
}

/// A semaphore with two permits.
mod permits {
    use super::*;

    #[test]
    #[ignore = "a world of `make check`"]
    fn all_permits_among_single_permits() {
        let budget = FaultBudget { slow: 1, ..NO_FAULTS };
        check(ModelPlan {
            budget,
            ..ModelPlan::new("permits: P1,P1,P2; slowness 1", &[P1, P1, P2])
        });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn release_permits() {
        let budget = FaultBudget { abandoned: 1, slow: 1, ..NO_FAULTS };
        let name = "permits: PS,P1; slowness 1, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[PS, P1]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn permits_shrink_beside_two_waiters() {
        check(ModelPlan::new("permits: PS,P1,P2", &[PS, P1, P2]));
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn three_holders_with_crash() {
        let budget = FaultBudget { crashes: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("permits: P1,P1,P2; 1 crash", &[P1, P1, P2]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn permits_with_a_cancelled_request_and_a_try() {
        let budget = FaultBudget { cancelled: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("permits: P1,P2,TP; 1 cancel", &[P1, P2, TP]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_failover() {
        let budget = FaultBudget { failovers: 1, ..NO_FAULTS };
        check(ModelPlan { budget, ..ModelPlan::new("permits: PS,P1; 1 failover", &[PS, P1]) });
    }

    /// The late call may be a renewal that names all permits, after some were given back.
    #[test]
    #[ignore = "a world of `make check`"]
    fn a_failover_and_a_call_that_comes_late() {
        let budget = FaultBudget { failovers: 1, abandoned: 1, ..NO_FAULTS };
        let name = "permits: PS,P1; 1 failover, 1 abandoned call";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[PS, P1]) });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_move_and_calls_and_messages_that_get_lost() {
        let budget = FaultBudget { moves: 1, abandoned: 1, lost_messages: 1, ..NO_FAULTS };
        let name = "permits: P1,P2; 1 move, 1 abandoned call, 1 lost message";
        check(ModelPlan { budget, ..ModelPlan::new(name, &[P1, P2]) });
    }
}

mod small_limits {
    use super::*;

    #[test]
    #[ignore = "a world of `DEEP=1 make check`"]
    fn a_writer_and_three_readers() {
        let plan = ModelPlan::new("deep: W,R,R,R with small limits", &[W, R, R, R]);
        check_deep(ModelPlan { small_limits: true, ..plan });
    }

    #[test]
    #[ignore = "a world of `make check`"]
    fn a_writer_and_two_readers_of_which_one_dies() {
        let budget = FaultBudget { crashes: 1, ..NO_FAULTS };
        let plan = ModelPlan::new("small limits: W,R,R; 1 crash", &[W, R, R]);
        check(ModelPlan { small_limits: true, budget, ..plan });
    }
}
