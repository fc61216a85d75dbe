//! The worlds to search, and those beyond the assumptions, in which a promise must be seen to
//! break. `make check` runs them all, including the slow ones with `DEEP=1`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rwlease_model::faults::root;
use rwlease_model::program::{FAULT_NAMES, ModelPlan};
use rwlease_model::report;
use rwlease_model::scripts_under_test::ScriptVariant;
use rwlease_model::search::{SearchSummary, search};
use rwlease_model::world::LockModel;

/// Searches a world and prints the result. Fails if a rule is broken or the search is incomplete.
/// The `deep` worlds take an hour or so, and run only on request.
fn check(name: &'static str) {
    let is_wanted = std::env::var("DEEP").is_ok_and(|deep| !deep.is_empty());
    if name.starts_with("deep") && !is_wanted {
        return;
    }
    let plan = ModelPlan::named(name);
    let planned = plan.budget.0.map(|times| times > 0);
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

/// Worlds whose clocks differ by one tick more than the margin, with the rule that is judged.
const BEYOND: [(&str, &str); 4] = [
    ("who believes has a lease", "beyond: W,R; late clocks, lease 3"),
    ("who believes has a lease", "beyond: W,W; late clocks, lease 3, margin 1, 1 lost tick"),
    ("no reader beside a writer", "beyond, two hold: W,R; late clocks, slowness 3, lease 3"),
    (
        "one writer",
        "beyond, two hold: W,W; late clocks, slowness 3, lease 3, margin 1, 1 lost tick",
    ),
];

/// A holder believes that it holds for longer than the server's record of its lease lasts, until
/// another one holds beside it.
#[test]
#[ignore = "worlds of `make check`"]
fn clocks_further_apart_than_the_margin_break_a_promise() {
    for (rule, name) in BEYOND {
        let judged = ScriptVariant { only: Some(rule), ..ScriptVariant::default() };
        let summary = search(&mut LockModel::new(ModelPlan::named(name), judged));
        println!("{}", summary.row());
        record_for_table(&summary);
        let violation = summary.violation.unwrap_or_else(|| panic!("{name}: {rule} is not broken"));
        println!("{}", violation.history);
        assert!(violation.what.starts_with(rule), "{name}: {}", violation.what);
    }
}

/// Writes the table of all worlds that this program has searched so far.
fn record_for_table(summary: &SearchSummary) {
    static ROWS: Mutex<BTreeMap<&str, String>> = Mutex::new(BTreeMap::new());
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.insert(summary.name, summary.row());
    let table = report::table(rows.values());
    let folder = root().join("target");
    std::fs::create_dir_all(&folder).unwrap(); // cargo may build in another one
    std::fs::write(folder.join("check.md"), table).unwrap();
}

/// The smallest world, which runs with all tests.
#[test]
fn a_small_world_is_searched_to_its_end() {
    check("W,R");
}

/// Makes a test of each of these worlds.
macro_rules! worlds {
    ($($module:ident { $($(#[$doc:meta])* $test:ident: $world:literal;)+ })+) => {
        $(mod $module {
            $(
                $(#[$doc])*
                #[test]
                #[ignore = "a world of `make check`"]
                fn $test() {
                    super::check($world);
                }
            )+
        })+
    };
}

worlds! {
    network {
        two_writers_and_calls_messages_and_requests_that_get_lost:
            "network: W,W; unlimited slowness, 1 abandoned call, 1 lost message, 1 cancel";
        a_write_that_becomes_a_read_and_a_reader: "network: WD,R; slowness 1, 1 abandoned call";
        /// An answer may be under way while a part of the lease passes. With a lease of two units,
        /// a renewal would be useless so late.
        writer_and_reader_with_calls_of_one_unit:
            "network: W,R; slowness 1, 1 abandoned call, calls of a unit, lease 3";
        holders_that_release_by_a_call: "network: WG,RG; slowness 1, 1 abandoned call";
    }
    queue {
        two_writers_and_a_reader_that_are_slow: "queue: W,W,R; slowness 2";
        two_writers_one_reader_with_crash: "queue: W,W,R; 1 crash";
        three_writers_and_a_reader: "queue: W,W,W,R";
        writer_two_readers_with_cancel: "queue: W,R,R; 1 cancel";
        readers_first: "queue: WF,RF,R; slowness 1";
        a_fair_writer_and_readers_first: "queue: W,WF,RF,RF";
        /// A client may have let an earlier grant lapse. Late calls and messages of one acquisition
        /// meet the next one.
        write_then_read_beside_read_then_write: "queue: W.R,R.W; slowness 1";
        /// Times that are twice as close to each other.
        model_case_with_twice_as_many_ticks:
            "queue: W,R; unlimited slowness, lease and ttl 4, window 2";
        /// The claim requests less than the window of the grant.
        renewals_that_want_less: "queue: W,WS; slowness 1, window 2";
        try_only: "queue: TW,TR,W; slowness 1";
        two_writers_and_a_reader_that_are_slower: "deep: W,W,R; slowness 3";
    }
    changes {
        two_readers_that_upgrade_and_a_writer: "changes: RU,RU,W";
        a_reader_that_upgrades_and_two_readers: "changes: RU,R,R";
        a_reader_that_gives_up_its_upgrade: "changes: RU,R; 1 abandoned call, 1 cancel";
        revoke_and_force_release: "changes: W,R; 1 revoke, 1 force_release, slowness 1";
        revoke_and_force_release_of_holders_beside_an_upgrade:
            "changes: RU,R; 1 revoke, 1 force_release";
        /// A renewal of the read may come after the upgrade.
        a_reader_that_upgrades_and_renewals_that_come_late:
            "changes: RU,R; slowness 1, 1 abandoned call";
        downgrade_then_upgrade: "changes: WDU,R; 1 abandoned call";
    }
    history {
        a_writer_and_a_reader_through_a_failover: "history: W,R; 1 failover, 1 abandoned call";
        /// Here each belief must be right.
        a_writer_and_a_reader_whose_lock_moves: "history: W,R; 1 move, 1 abandoned call";
        two_writers_through_a_failover: "history: W,W; 1 failover, slowness 1";
        /// The renewals of the reader repeat a downgrade that the failover has lost, and one that
        /// comes late does no more than that.
        a_write_that_becomes_a_read_through_a_failover:
            "history: WD,R; 1 failover, 1 abandoned call";
        two_writers_and_a_reader_through_a_failover: "deep: W,W,R; 1 failover";
    }
    cached {
        a_cached_write_and_a_writer: "cached: CW,W; slowness 1";
        a_cached_write_and_a_reader_and_calls_and_messages_that_get_lost:
            "cached: CW,R; 1 abandoned call, 1 lost message";
        two_that_cache_a_write: "cached: CW,CW";
        a_cached_write_and_a_cached_read: "cached: CW,CR";
        two_cached_one_uncached: "deep: CR,CR,W";
        two_that_cache_and_a_try: "deep: CR,CR,TC";
        try_waits_for_cached_lease: "cached: CR,TC,W";
        a_cached_read_and_a_reader_that_upgrades: "cached: CR,RU";
        a_cached_write_that_is_revoked: "cached: CS,R; 1 revoke";
        a_cached_write_that_is_taken: "cached: CS,W; 1 force_release";
        a_cached_write_through_a_failover: "cached: CW,R; 1 failover";
        a_cached_read_through_a_move: "cached: CR,W; 1 move, slowness 1";
    }
    permits {
        all_permits_among_single_permits: "permits: P1,P1,P2; slowness 1";
        release_permits: "permits: PS,P1; slowness 1, 1 abandoned call";
        permits_released_in_part_beside_two_waiters: "permits: PS,P1,P2";
        three_holders_with_crash: "permits: P1,P1,P2; 1 crash";
        permits_with_a_cancelled_request_and_a_try: "permits: P1,P2,TP; 1 cancel";
        a_failover: "permits: PS,P1; 1 failover";
        /// The late call may be a renewal that names all permits, after some were given back.
        a_failover_and_a_call_that_comes_late: "permits: PS,P1; 1 failover, 1 abandoned call";
        a_move_and_calls_and_messages_that_get_lost:
            "permits: P1,P2; 1 move, 1 abandoned call, 1 lost message";
    }
    clocks {
        two_writers_whose_clocks_are_late:
            "clocks: W,W; late clocks, slowness 1, lease 3, margin 1";
        two_writers_with_late_clocks_and_late_calls:
            "clocks: W,W; late clocks, slowness 1, 1 abandoned call, calls of a unit, lease 3, margin 1";
        /// The reader believes in grants that are pushed.
        writer_and_reader_with_late_clocks_and_pushed_grants:
            "clocks: W,R; late clocks, slowness 2, lease 3, window 2, margin 1";
        two_writers_and_a_reader_whose_clocks_are_late:
            "clocks: W,W,R; late clocks, lease 3, margin 1";
        writer_and_reader_whose_clocks_lose_ticks:
            "clocks: W,R; late clocks, a tick lost of 4, slowness 1, lease and ttl 5, margin 2";
        writer_and_reader_whose_clocks_gain_ticks:
            "clocks: W,R; late clocks, a tick gained of 3, lease 3, margin 1";
        /// However fast a client's clock is, it needs no margin.
        two_writers_whose_clocks_run_as_fast_as_they_like: "clocks: W,W; unlimited extra ticks";
        late_clocks_with_a_crash: "clocks: W,R; late clocks, 1 crash, lease 3, margin 1";
        a_downgrade_with_late_clocks: "clocks: WD,R; late clocks, slowness 1, lease and ttl 3, margin 1";
        an_upgrade_with_late_clocks: "clocks: RU,R; late clocks, lease and ttl 3, margin 1";
        a_move_with_late_clocks: "clocks: W,R; late clocks, 1 move, slowness 1, lease 3, margin 1";
        a_cached_read_with_late_clocks: "clocks: CR,W; late clocks, lease and ttl 3, margin 1";
        a_cached_write_with_late_clocks: "clocks: CW,R; late clocks, lease and ttl 3, margin 1";
        permits_with_late_clocks: "clocks: P1,P2; late clocks, slowness 1, lease and ttl 3, margin 1";
    }
    small_limits {
        a_writer_and_three_readers: "deep: W,R,R,R; small limits";
        a_writer_and_two_readers_of_which_one_dies: "limits: W,R,R; small limits, 1 crash";
    }
}
