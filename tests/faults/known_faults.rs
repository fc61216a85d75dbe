//! Histories with known faults, which the checker must find, and correct histories, in which it
//! must find nothing.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::self_test::TURNS;
use chaos::checker::{Excuses, Findings};
use chaos::history::{History, Nanos};
use chaos::ledger::{Census, Change, Completion, NodeState, Role};
use chaos::nemesis::Touched;
use chaos::nemesis::{Nemesis, Unordered};
use chaos::run::{Run, run};
use chaos::scenario::Fault;
use chaos::scorecard::count;
use chaos::scorecard_rows::{Promise, Row, Variant, rows};
use chaos::staying::{Measured, Usage};
use chaos::store::{Store, StoreClient, StoreWrite};
use chaos::verdict::{Outcome, Verdict};
use testkit::{Error, Result, TempFolder};

const PATIENCE: Nanos = 10_000_000_000;

fn excuse_name(name: usize, span: (Nanos, Nanos)) -> Excuses {
    Excuses { names: [(name, vec![span])].into(), ..Excuses::default() }
}

/// A history of workers, each with its lines between commas. Times are in milliseconds here.
fn findings(workers: &[&str]) -> Findings {
    Findings::of(&history(workers), &Excuses::default(), PATIENCE)
}

fn history(workers: &[&str]) -> History {
    let mut history = History::default();
    for lines in workers {
        let worker = history.add(None);
        for line in lines.split(", ") {
            history.apply(worker, &in_nanos(line)).unwrap();
        }
    }
    history
}

/// The first word, and the deadline of `G` and `D`, are times.
fn in_nanos(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(String::from).collect();
    let time = |word: &str| (word.parse::<Nanos>().unwrap() * 1_000_000).to_string();
    words[0] = time(&words[0]);
    let deadline = match words[1].as_str() {
        "G" => 4,
        "D" => 3,
        _ => 0,
    };
    if deadline > 0 {
        words[deadline] = time(&words[deadline]);
    }
    words.join(" ")
}

#[test]
fn findings_of_a_correct_lock_history_are_empty() {
    let found = findings(&[
        "1 R 0 7 w, 2 G 0 10 1000, 3 W 0 1, 5 W 0 2, 6 E 0 held, 7 X 0 Released",
        "1 R 0 7 r, 8 G 0 11 1000, 10 E 0 held, 11 X 0 Released",
        "1 R 0 7 r, 8 G 0 12 1000, 12 E 0 held, 13 X 0 Released",
        "9 R 0 7 w, 13 G 0 13 1000, 14 W 0 3, 16 E 0 held, 17 X 0 Released",
        "1 R 0 8 w, 2 G 0 10 1000, 6 E 0 held, 7 X 0 Released", // another lock
    ]);
    assert_eq!((found.requests, found.grants, found.writes), (5, 5, 3));
    assert_eq!(found.waits, [1_000_000, 1_000_000, 4_000_000, 7_000_000, 7_000_000]);
    let kinds =
        [&found.overlaps, &found.tokens, &found.stale, &found.lost, &found.vanished, &found.stuck];
    assert!(kinds.iter().all(|seen| seen.count == 0), "{found:?}");
}

#[test]
fn cached_readers_of_one_process_share_a_token_and_no_others_do() {
    let token = |token: u64, how: &str| format!("4 G 1 {token} 1000 {how}");
    let count = |second: &str, other: &str| {
        let worker =
            format!("1 R 0 7 r, 2 G 0 10 1000 cached, 3 R 1 7 r, {second}, 5 E 0 held, 6 E 1 held");
        findings(&[&worker, &format!("4 R 0 7 r, {other}, 6 E 0 held")]).tokens.count
    };
    let other = |token: u64, how: &str| format!("5 G 0 {token} 1000 {how}");
    assert_eq!(count(&token(10, "cached"), &other(9, "cached")), 0);
    assert!(count(&token(10, "cached"), &other(10, "cached")) > 0, "two processes");
    assert!(count(&token(10, "own"), &other(11, "own")) > 0, "one has a lease of its own");
}

#[test]
fn a_try_is_refused_because_of_somebody() {
    let writer = "10 R 0 7 w, 11 G 0 10 1000, 20 E 0 held, 21 X 0 Released";
    let reader = "10 R 0 7 r, 11 G 0 10 1000, 20 E 0 held, 21 X 0 Released";
    let denied = |holder: &str, lines: &str| findings(&[holder, lines]).denied.count;
    assert_eq!(denied(writer, "15 R 0 7 r, 16 N 0"), 0);
    assert_eq!(denied(writer, "1 R 0 7 r, 12 N 0"), 0);
    assert_eq!(denied(writer, "15 R 0 8 r, 16 N 0"), 1, "of another lock");
    assert_eq!(denied(writer, "1 R 0 7 r, 9 N 0"), 1, "too early");
    assert_eq!(denied(writer, "22 R 0 7 r, 23 N 0"), 1, "too late");
    assert_eq!(denied(reader, "15 R 0 7 w, 16 N 0"), 0);
    assert_eq!(denied(reader, "15 R 0 7 r, 16 N 0"), 1, "a reader is in no reader's way");
    let waiter = "10 R 0 7 w, 20 F 0 TimedOut";
    assert_eq!(denied(waiter, "15 R 0 7 r, 16 N 0"), 0);
    assert_eq!(denied(waiter, "10022 R 0 7 r, 10023 N 0"), 1, "it is gone");
}

/// A lock every 100 ms: 20 s before a fault, and `share` of as many for 80 s with it. Lock 1 is of
/// the struck server, whose requests fail and take that many calls. `other` is one more request.
fn while_a_fault_stays(share: usize, calls: u64, other: &str) -> Vec<String> {
    let mut lines = String::new();
    let mut id = 0;
    for tenth in 0..1_000 {
        let at = tenth * 100;
        let skips = at >= 20_000 && tenth % 10 >= share;
        if !skips {
            lines += &format!(
                "{at} R {id} 0 w, {} G {id} {} {}, {} E {id} held, {} X {id} Released, ",
                at + 1,
                tenth + 1,
                at + 10_000,
                at + 10,
                at + 11
            );
            id += 1;
        }
    }
    lines += &format!("30000 R {id} 1 w, 37000 F {id} Unavailable");
    let history = history(&[&lines, other]);
    let touched =
        Touched { names: vec![1], worker: None, errors: &["Unavailable"], is_all_refused: true };
    let seconds = |from: Nanos, until: Nanos| (from * 1_000_000_000, until * 1_000_000_000);
    let usage = Usage { memory_kib: vec![10_000], tasks: vec![30], ..Usage::default() };
    let mut measured = Measured {
        touched,
        before: seconds(0, 20),
        during: seconds(20, 100),
        usage: [usage.clone(), usage.clone(), usage],
        control: [10.0, 10.0],
        calls: Some(calls),
        ..Measured::default()
    };
    measured.judge(&history, &rows().pop().unwrap().variants[0].load)
}

#[test]
fn locks_that_a_staying_fault_does_not_touch_must_go_on() {
    let fine = "100 R 0 2 r, 101 N 0";
    assert_eq!(while_a_fault_stays(10, 501, fine), [""; 0]);
    let many = while_a_fault_stays(10, 502, fine);
    assert!(matches!(&many[..], [one] if one.contains("502 calls")), "{many:?}");
    let slow = while_a_fault_stays(8, 0, fine);
    assert!(matches!(&slow[..], [one] if one.contains("a share of 0.80")), "{slow:?}");
    for harm in [
        "30000 R 0 0 w, 30001 F 0 Unavailable",
        "30000 R 0 0 r, 30001 G 0 2000 90000, 30002 L 0, 30003 E 0 lost",
        "30000 R 0 0 r, 30001 G 0 2000 90000, 30003 E 0 held, 30004 X 0 Unknown",
    ] {
        let harmed = while_a_fault_stays(10, 0, harm);
        assert!(matches!(&harmed[..], [one] if one.contains("does not touch")), "{harmed:?}");
    }
    for (wrong, why) in [
        ("30000 R 0 1 w, 30001 F 0 WrongType", "otherwise"),
        ("30000 R 0 1 w, 60000 F 0 Unavailable", "after 30s"),
        ("50000 R 0 1 w, 50001 G 0 2000 90000, 50002 E 0 held, 50003 X 0 Released", "granted"),
    ] {
        let found = while_a_fault_stays(10, 0, wrong);
        assert!(matches!(&found[..], [one] if one.contains(why)), "{found:?}");
    }
}

#[test]
fn usage_that_grows_while_a_fault_stays_is_found() {
    let usage = |memory: u64, tasks: u64, sockets: u64, clients: u64| Usage {
        memory_kib: vec![memory],
        tasks: vec![tasks],
        sockets: vec![sockets],
        clients,
    };
    let ten_seconds = (0, 10_000_000_000);
    let judged = |control: [f64; 2], end: Usage, dials: u64| {
        let first = usage(10_000, 30, 13, 40);
        let mut measured = Measured {
            usage: [first.clone(), first, end],
            dials: Some(dials),
            before: ten_seconds,
            during: ten_seconds,
            control,
            ..Measured::default()
        };
        let history = history(&["1 R 0 0 w, 2 G 0 1 9000, 3 E 0 held, 4 X 0 Released"]);
        measured.judge(&history, &rows().pop().unwrap().variants[0].load)
    };
    let grown = |end, dials| judged([1.0; 2], end, dials);
    assert_eq!(grown(usage(16_000, 80, 17, 44), 40), [""; 0]);
    let unmeasured = judged([0.0; 2], usage(10_000, 30, 13, 40), 0);
    assert!(matches!(&unmeasured[..], [one] if one.contains("NaN")), "{unmeasured:?}");
    for (end, dials, what) in [
        (usage(18_000, 30, 13, 40), 0, "memory"),
        (usage(10_000, 100, 13, 40), 0, "tasks"),
        (usage(10_000, 30, 18, 40), 0, "sockets"),
        (usage(10_000, 30, 13, 45), 0, "clients"),
        (usage(10_000, 30, 13, 40), 41, "dialled"),
    ] {
        let found = grown(end, dials);
        assert!(matches!(&found[..], [one] if one.contains(what)), "{found:?}");
    }
}

/// It waits for holders that only cache the lock, and never for itself.
#[test]
fn a_try_that_waits_is_in_the_way_of_others() {
    let cached = "1 R 0 7 r, 2 G 0 10 100 cached, 3 E 0 held, 4 X 0 Released";
    let own = "1 R 0 7 r, 2 G 0 10 100 own, 3 E 0 held, 4 X 0 Released";
    // Long after the cached lock is gone.
    let (first, other) = ("90000 R 0 7 w, 90020 N 0", "90010 R 0 7 w, 90011 N 0");
    assert_eq!(findings(&[cached, first]).denied.count, 1, "nobody is in its own way");
    assert_eq!(findings(&[cached, first, other]).denied.count, 0);
    assert_eq!(findings(&[own, first, other]).denied.count, 2, "no try waits for these");
}

#[test]
fn findings_of_overlap_and_token_order_name_both_workers() {
    let found = findings(&[
        "1 R 0 7 w, 2 G 0 10 1000, 6 E 0 held, 7 X 0 Released",
        "1 R 0 7 w, 8 G 0 11 1000, 9 E 0 held, 10 X 0 Released",
        "1 R 0 7 w, 5 G 0 12 1000, 7 E 0 held, 8 X 0 Released",
    ]);
    let [overlap] = &found.overlaps.examples[..] else { panic!("{found:?}") };
    assert!(overlap.contains("worker 0's") && overlap.contains("worker 2's"), "{overlap}");
    let [order] = &found.tokens.examples[..] else { panic!("{found:?}") };
    assert!(order.contains("worker 1's") && order.contains("worker 2's"), "{order}");
}

#[test]
fn a_guard_that_came_too_late_holds_nothing() {
    let held = "1 R 0 7 w, 2 G 0 10 1000, 60 E 0 held";
    let late = "1 R 0 7 w, 50 G 0 9 50, 70 E 0 lost";
    let found = findings(&[held, late]);
    assert_eq!((found.overlaps.count, found.tokens.count), (0, 0));
}

#[test]
fn too_many_permits_are_found() {
    let over = |first: &str, second: &str| findings(&[first, second]).overlaps.count;
    let three = "1 R 0 7 3/5, 2 G 0 10 1000, 60 E 0 held, 61 X 0 Released";
    let two = "1 R 0 7 2/5, 2 G 0 10 1000, 60 E 0 held, 61 X 0 Released";
    let beside = "1 R 0 7 3/5, 5 G 0 11 1000, 70 E 0 held";
    let after = "1 R 0 7 3/5, 60 G 0 11 1000, 70 E 0 held";
    assert_eq!((over(two, beside), over(three, beside), over(three, after)), (0, 1, 0));
    let kept = |at: &str| three.replace("60 E", &format!("{at} K 0 2, 60 E"));
    assert_eq!(over(&kept("4"), beside), 0, "a part was given back");
    assert_eq!(over(&kept("6"), beside), 1, "too late");
    // It has the greater token, so the other one, which has not ended yet, held at its grant.
    let unheard = "1 R 0 7 3/5, 50 G 0 10 1000, 60 E 0 held";
    let at_once = "1 R 0 7 3/5, 5 G 0 11 1000, 6 E 0 held, 7 X 0 Released";
    assert_eq!(over(unheard, at_once), 1);
    // Beside the third there is room for one of the two, not for both.
    let one = "1 R 0 7 2/5, 3 G 0 12 1000, 60 E 0 held";
    let found = findings(&[two, one, "1 R 0 7 2/5, 4 G 0 13 1000, 60 E 0 held"]);
    let [told] = &found.overlaps.examples[..] else { panic!("{found:?}") };
    assert!(told.contains("6 of 5 permits") && told.contains("token 13"), "{told}");
    assert_eq!((found.waits_for_permits.len(), found.tokens.count, found.passed.count), (3, 0, 0));
}

#[test]
fn findings_count_a_permits_waiter_that_is_overtaken() {
    let waits = "1 R 0 7 5/5, 9000 G 0 11 20000, 9001 E 0 held";
    let passes = |requested: u32, token: u32| {
        let granted = requested + 1;
        let passing = format!("{requested} R 0 7 1/5, {granted} G 0 {token} 20000, 8000 E 0 held");
        history(&[waits, &passing])
    };
    let passed = |history: &History, excuses: &Excuses| {
        Findings::of(history, excuses, PATIENCE).passed.count
    };
    let none = Excuses::default();
    assert_eq!(passed(&passes(3_000, 10), &none), 1);
    assert_eq!(passed(&passes(1_000, 10), &none), 0, "it may have been there first");
    assert_eq!(passed(&passes(3_000, 12), &none), 0, "it came later, by its token");
    assert_eq!(passed(&passes(3_000, 10), &excuse_name(7, (2_000_000, 3_000_000))), 0);
    assert_eq!(passed(&passes(3_000, 10), &excuse_name(8, (2_000_000, 3_000_000))), 1);
    let unaware = |unaware| Excuses { unaware, ..Excuses::default() };
    assert_eq!(passed(&passes(3_000, 10), &unaware(5_999_000_000)), 1);
    assert_eq!(passed(&passes(3_000, 10), &unaware(6_000_000_000)), 0, "it did not know");
    let early = "0 R 0 7 5/5, 3100 G 0 11 20000, 3101 E 0 held";
    let late = "500 R 0 7 5/5, 9000 G 0 12 20000, 9001 E 0 held";
    let passing = "3000 R 0 7 1/5, 3001 G 0 10 20000, 3050 E 0 held";
    let both = history(&[early, late, passing]);
    assert_eq!(passed(&both, &unaware(2_000_000_000)), 1, "the other one was passed for long");
}

#[test]
fn a_waiter_is_passed_for_a_moment_when_its_slot_moves() {
    let waits = "1 R 0 9 5/5, 9000 G 0 12 19000";
    let is_broken = |granted: u32, what: &str| {
        let (ended, released) = (granted + 100, granted + 101);
        let passing = format!(
            "4000 R 0 9 1/5, {granted} G 0 11 9000, {ended} E 0 held, {released} X 0 Released"
        );
        let moved = Fault { what: what.into(), ..fault(10, 20, &[], &[]) };
        !broken(Promise::InTurn, &[waits, &passing], &[moved]).is_empty()
    };
    assert!(!is_broken(8_800, "move") && !is_broken(8_800, "skew"));
    assert!(is_broken(4_001, "move"));
    assert!(is_broken(8_800, "flush"), "that ends no subscription");
}

#[test]
fn a_try_for_permits_is_refused_because_of_somebody() {
    let holder = "10 R 0 7 3/5, 11 G 0 10 1000, 20 E 0 held, 21 X 0 Released";
    let denied = |lines: &str| findings(&[holder, lines]).denied.count;
    assert_eq!(denied("15 R 0 7 3/5, 16 N 0"), 0);
    assert_eq!(denied("15 R 0 7 2/5, 16 N 0"), 1, "enough are left");
    assert_eq!(denied("22 R 0 7 3/5, 23 N 0"), 1, "too late");
    assert_eq!(denied("1 R 0 7 1/5, 10 N 0"), 0, "the other may have waited");
    let waiter = "10 R 0 7 5/5, 20 F 0 TimedOut";
    assert_eq!(findings(&[waiter, "15 R 0 7 1/5, 16 N 0"]).denied.count, 0);
}

#[test]
fn belief_ends_at_the_deadline_as_it_was_last_noted() {
    let rival = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held";
    let silent = "1 R 0 7 w, 2 G 0 10 40, 100 E 0 lost";
    let renewed = "1 R 0 7 w, 2 G 0 10 40, 30 D 0 70, 100 E 0 lost";
    let noticed = "1 R 0 7 w, 2 G 0 10 40, 30 D 0 70, 45 L 0, 100 E 0 lost";
    assert_eq!(findings(&[silent, rival]).overlaps.count, 0);
    assert_eq!(findings(&[renewed, rival]).overlaps.count, 1);
    assert_eq!(findings(&[noticed, rival]).overlaps.count, 0);
}

#[test]
fn lease_of_a_killed_worker_overlaps_only_before_its_death() {
    let killed = "1 R 0 7 w, 2 G 0 10 1000";
    let rival = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held";
    let mut dead = history(&[killed, rival]);
    dead.killed(0, 40_000_000);
    assert_eq!(Findings::of(&dead, &Excuses::default(), PATIENCE).overlaps.count, 0);
    dead.killed(0, 55_000_000);
    assert_eq!(Findings::of(&dead, &Excuses::default(), PATIENCE).overlaps.count, 1);
}

#[test]
fn a_token_that_falls_or_is_given_twice_is_found() {
    let first = "1 R 0 7 w, 2 G 0 10 1000, 3 E 0 held";
    let lower = "4 R 0 7 w, 5 G 0 9 1000, 6 E 0 held";
    let same = "1 R 0 7 w, 5 G 0 10 1000, 6 E 0 held";
    let at_once = "1 R 0 7 w, 2 G 0 9 1000, 6 E 0 held";
    assert_eq!(findings(&[first, lower]).tokens.count, 1);
    assert_eq!(findings(&[first, same]).tokens.count, 1);
    // Both were requested before either was granted, and neither had ended: any order is allowed.
    assert_eq!(findings(&[first, at_once]).tokens.count, 0);
}

#[test]
fn a_stale_write_that_the_store_accepted_is_found() {
    let old = "1 R 0 7 w, 2 G 0 10 40, 3 W 0 1, 90 W 0 3, 91 E 0 lost";
    let refused = "1 R 0 7 w, 2 G 0 10 40, 3 W 0 1, 90 V 0, 91 E 0 lost";
    let new = "1 R 0 7 w, 50 G 0 11 1000, 51 W 0 2, 60 E 0 held";
    assert_eq!(findings(&[old, new]).stale.count, 1);
    let found = findings(&[refused, new]);
    assert_eq!((found.stale.count, found.refused, found.overtaken.count), (0, 1, 0));
}

#[test]
fn a_loss_is_told_apart_from_a_grant_that_vanished() {
    let noticed = "1 R 0 7 w, 2 G 0 10 40, 40 L 0, 41 E 0 lost, 42 X 0 AlreadyLost";
    let late = "1 R 0 7 w, 2 G 0 10 40, 90 L 0, 91 E 0 lost, 92 X 0 AlreadyLost";
    let vanished = "1 R 0 7 w, 2 G 0 10 1000, 41 E 0 held, 42 X 0 AlreadyLost";
    let too_late = "1 R 0 7 w, 2 G 0 10 1000, 41 E 0 held, 1042 X 0 AlreadyLost";
    let rival = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held";
    let counts = |found: Findings| (found.lost.count, found.noticed_late, found.vanished.count);
    let early = "1 R 0 7 w, 2 G 0 10 40, 30 D 0 70, 39 L 0, 41 E 0 lost, 42 X 0 Unknown";
    assert_eq!(counts(findings(&[noticed, rival])), (1, 0, 0));
    assert_eq!(findings(&[noticed, rival]).noticed_in_time, 1);
    assert_eq!(counts(findings(&[late, rival])), (1, 1, 0));
    assert_eq!(counts(findings(&[early, rival])), (1, 0, 1), "a renewal said so");
    assert_eq!(counts(findings(&[vanished, rival])), (0, 0, 1));
    assert_eq!(counts(findings(&[too_late])), (0, 0, 0));
}

#[test]
fn tokens_of_cached_handles_are_told_apart() {
    let counts = |workers: &[&str]| {
        let found = findings(workers);
        (found.tokens.count, found.tokens_cached.count)
    };
    let first = "1 R 0 7 w, 2 G 0 10 1000, 3 E 0 held";
    let first_cached = "1 R 0 7 w, 2 G 0 10 1000 cached, 3 E 0 held";
    let cached = "4 R 0 7 w, 5 G 0 9 1000 cached, 6 E 0 held";
    let plain = "3 R 0 7 w, 7 G 0 8 1000, 8 E 0 held";
    assert_eq!(counts(&[first, plain]), (1, 0));
    assert_eq!(counts(&[first, cached]), (0, 1));
    assert_eq!(counts(&[first_cached, plain]), (0, 1));
    assert!(counts(&[first, cached, plain]).0 == 1, "a cached pair hides no plain one");
}

#[test]
fn only_rows_that_promise_exclusion_promise_the_order_of_cached_handles() {
    let given =
        ["1 R 0 7 w, 2 G 0 10 1000, 3 E 0 held", "4 R 0 7 w, 5 G 0 9 1000 cached, 6 E 0 held"];
    let broken = |row: &str| {
        let row = rows().into_iter().find(|it| it.name == row).unwrap();
        Verdict::of(&history(&given), &[], &row.variants[0], &[]).broken
    };
    assert!(broken("moves")[0].contains("tokens of cached handles"), "{:?}", broken("moves"));
    assert_eq!(broken("step"), [""; 0]);
}

#[test]
fn waiter_that_waits_past_the_last_lease_is_stuck() {
    let dead = "1 R 0 7 w, 2 G 0 10 1000";
    let given_back = "1 R 0 7 w, 2 G 0 10 1000, 5 E 0 held, 6 X 0 Released";
    let unknown = "1 R 0 7 w, 2 G 0 10 1000, 5 E 0 held, 6 X 0 Unknown";
    let soon = "9 R 0 7 w, 1500 G 0 11 9000, 1501 E 0 held";
    let late = "9 R 0 7 w, 10500 G 0 11 19000, 10501 E 0 held";
    let later = "9 R 0 7 w, 12000 G 0 11 19000, 12001 E 0 held";
    let never = "9 R 0 7 w, 12000 F 0 TimedOut it took too long";
    let failed = "9 R 0 7 w, 12000 F 0 Unavailable no master";
    let afterwards = "2000 R 0 7 r, 13000 G 0 11 19000, 13001 E 0 held";
    let stuck = |workers: &[&str]| findings(workers).stuck.count;
    assert_eq!(stuck(&[dead, soon]), 0);
    assert_eq!(stuck(&[dead, late]), 0, "its lease went on until 1000");
    assert_eq!(stuck(&[unknown, late]), 0, "and may have");
    for waits in [later, never, failed, afterwards] {
        assert_eq!(stuck(&[dead, waits]), 1, "{waits:?}");
    }
    assert_eq!(stuck(&[given_back, late]), 1);
    assert_eq!(stuck(&[given_back, afterwards]), 1, "whoever had it before");
    let excuse = |name: usize| excuse_name(name, (1_000_000_000, 3_000_000_000));
    assert_eq!(Findings::of(&history(&[dead, later]), &excuse(7), PATIENCE).stuck.count, 0);
    assert_eq!(Findings::of(&history(&[dead, later]), &excuse(8), PATIENCE).stuck.count, 1);
    // A failover may have lost the release.
    let excuse = excuse_name(7, (500_000_000, 600_000_000));
    let released =
        |late: &str| Findings::of(&history(&[given_back, late]), &excuse, PATIENCE).stuck.count;
    assert_eq!((released(late), released(later)), (0, 1));
    // A waiter for permits may wait for any holder of permits.
    let some = "9 R 0 7 1/5, 10 G 0 10 5000, 9000 E 0 held, 9001 X 0 Released";
    let waits = "9 R 0 7 5/5, 12000 G 0 11 19000";
    let too_long = "9 R 0 7 5/5, 19002 G 0 11 29000";
    assert_eq!((stuck(&[some, waits]), stuck(&[some, too_long])), (0, 1));
    // A reader does not wait for readers, and a writer does.
    let reader = "9 R 0 7 r, 10 G 0 10 5000, 9000 E 0 held, 9001 X 0 Released";
    let reads = "9 R 0 7 r, 12000 G 0 11 19000";
    assert_eq!((stuck(&[reader, reads]), stuck(&[reader, later])), (1, 0));
}

#[test]
fn outcomes_and_errors_are_counted() {
    let found = findings(&[
        "1 R 0 7 w, 2 F 0 Unavailable no master, 3 R 1 7 w, 4 G 1 10 1000, 5 E 1 held, \
         6 X 1 Unknown, 7 R 2 7 w, 8 G 2 11 1000, 9 E 2 held, 10 X 2 Failed refused",
    ]);
    assert_eq!((found.requests, found.grants, found.unknown, found.unreleased.count), (3, 2, 1, 1));
    assert_eq!(found.failed["Unavailable"], 1);
}

#[test]
fn a_line_that_makes_no_sense_is_an_error() {
    let mut history = History::default();
    history.add(None);
    for line in ["", "1", "1 G 0 10 20", "x R 0 7 w", "1 R 5 7 w"] {
        assert!(history.apply(0, line).is_err(), "{line}");
    }
}

/// The broken promises of a verdict, with this promise beside those of every row.
fn broken(promise: Promise, workers: &[&str], faults: &[Fault]) -> Vec<String> {
    let promises = Box::leak(Box::new([promise]));
    let variant = Variant { promises, ..rows().remove(0).variants.remove(0) };
    Verdict::of(&history(workers), faults, &variant, &[]).broken
}

fn fault(at: Nanos, until: Nanos, struck: &[usize], far: &[usize]) -> Fault {
    Fault {
        what: "something".into(),
        at: at * 1_000_000,
        until: until * 1_000_000,
        struck: struck.to_vec(),
        proof: String::new(),
        far: far.to_vec(),
        out: vec![7],
        out_until: until * 1_000_000,
    }
}

#[test]
fn each_lock_promise_is_broken_by_its_fault_and_not_without() {
    const GOOD: &str = "1 R 0 7 w, 2 G 0 10 40, 5 E 0 held, 6 X 0 Released";
    const RIVAL: &str = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held, 61 X 0 Released";
    let of = |promise| -> Vec<&str> {
        match promise {
            Promise::NoOverlap => vec![
                "1 R 0 7 w, 2 G 0 10 900, 55 E 0 held, 56 X 0 Released",
                "1 R 0 7 w, 2 G 0 10 40, 3 V 0, 5 E 0 held, 6 X 0 Released",
                "1 R 0 7 w, 2 G 0 12 40, 5 E 0 held, 6 X 0 Released",
            ],
            Promise::TokensRise => vec!["1 R 0 7 w, 2 G 0 12 40, 5 E 0 held, 6 X 0 Released"],
            Promise::InTurn => vec![
                "1 R 0 9 5/5, 4000 R 1 9 1/5, 4001 G 1 11 9000, 7000 E 1 held, \
                 7001 X 1 Released, 8000 G 0 12 19000",
            ],
            Promise::NoLoss => {
                vec!["1 R 0 7 w, 2 G 0 10 40, 40 L 0, 41 E 0 lost, 42 X 0 AlreadyLost"]
            }
            Promise::NothingVanished => {
                vec!["1 R 0 7 w, 2 G 0 10 40, 5 E 0 held, 6 X 0 AlreadyLost"]
            }
            Promise::NoError => vec!["1 R 0 7 w, 2 F 0 Rejected no memory"],
            Promise::OnlyErrors(_) => vec!["1 R 0 7 w, 2 F 0 Unavailable no master"],
            Promise::ReleaseWorks => vec![
                "1 R 0 7 w, 2 G 0 10 40, 5 E 0 held, 6 X 0 Unknown",
                "1 R 0 7 w, 2 G 0 10 40, 5 E 0 held, 6 X 0 Failed refused",
            ],
            Promise::ToldInTime => {
                vec!["1 R 0 7 w, 2 G 0 10 40, 45 R 1 8 r, 55 L 0, 56 E 0 lost, 57 X 0 AlreadyLost"]
            }
        }
    };
    let all = [
        Promise::NoOverlap,
        Promise::TokensRise,
        Promise::InTurn,
        Promise::NoLoss,
        Promise::NothingVanished,
        Promise::NoError,
        Promise::OnlyErrors(&["Rejected"]),
        Promise::ReleaseWorks,
        Promise::ToldInTime,
    ];
    for promise in all {
        assert!(broken(promise, &[GOOD, RIVAL], &[]).is_empty(), "{promise:?}");
        for faulty in of(promise) {
            assert_eq!(broken(promise, &[faulty, RIVAL], &[]).len(), 1, "{promise:?}: {faulty:?}");
        }
    }
    let refused = of(Promise::NoError);
    assert!(broken(Promise::OnlyErrors(&["Rejected"]), &refused, &[]).is_empty());
}

#[test]
fn lease_loss_noticed_late_by_a_paused_worker_is_counted_only() {
    let rival = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held, 61 X 0 Released";
    let still = "1 R 0 7 w, 2 G 0 10 40, 55 L 0, 56 E 0 lost, 57 X 0 AlreadyLost";
    assert!(broken(Promise::ToldInTime, &[still, rival], &[]).is_empty());
    assert_eq!(findings(&[still, rival]).noticed_late, 1, "and is counted");
}

#[test]
fn a_client_worker_that_was_cut_off_is_excused_and_the_others_are_not() {
    let late = |worker: usize| {
        let mut cut = fault(10, 50_000, &[], &[worker]);
        cut.out = Vec::new();
        let waits = "1 R 0 7 w, 50000 G 0 10 60000";
        let other = "1 R 0 8 w, 2 G 0 10 1000, 3 E 0 held, 4 X 0 Released";
        broken(Promise::NoLoss, &[waits, other], &[cut]).len()
    };
    assert_eq!((late(0), late(1)), (0, 1));
}

#[test]
fn lease_losses_without_a_rival_that_waits_break_their_row() {
    let told = "1 R 0 7 w, 2 G 0 10 40, 40 L 0, 41 E 0 lost, 42 X 0 AlreadyLost";
    let rival = "1 R 0 7 w, 50 G 0 11 1000, 60 E 0 held, 61 X 0 Released";
    let later = "45 R 0 7 w, 50 G 0 11 1000, 60 E 0 held, 61 X 0 Released";
    let faults = vec![fault(1, 2, &[], &[]); 20];
    assert!(broken(Promise::ToldInTime, &[told, rival], &faults).is_empty());
    assert_eq!(broken(Promise::ToldInTime, &[told], &faults).len(), 1);
    assert_eq!(broken(Promise::ToldInTime, &[told, later], &faults).len(), 1, "nobody waited");
    assert!(broken(Promise::ToldInTime, &[told], &faults[1..]).is_empty());
}

#[test]
fn stuck_waiter_breaks_every_row() {
    let timed_out = "1 R 0 7 w, 60001 F 0 TimedOut it took too long";
    assert_eq!(broken(Promise::NoLoss, &[timed_out], &[]).len(), 2, "stuck, and out of time");
    // A fault lasted for most of its time.
    let struck = [fault(10, 55_000, &[], &[])];
    assert!(broken(Promise::NoLoss, &[timed_out], &struck).is_empty());
    let struck = [fault(10, 20_000, &[], &[])];
    assert_eq!(broken(Promise::NoLoss, &[timed_out], &struck).len(), 2);
}

#[test]
fn a_pause_is_the_longest_time_without_a_grant_of_what_was_struck() {
    let grants = &[
        "1 R 0 7 r, 2 G 0 10 9000, 3 E 0 held, 4 R 1 7 r, 20 G 1 11 9000",
        "1 R 0 8 r, 30 G 0 10 9000, 31 R 1 8 r, 90 G 1 11 9000, 91 R 2 8 r, 95 G 2 12 9000",
        "1 R 0 7 r, 50 G 0 13 9000",
    ];
    let variant = rows().remove(0).variants.remove(0);
    let pause = |fault: Fault| {
        let recoveries = Verdict::of(&history(grants), &[fault], &variant, &[]).recoveries;
        recoveries.first().map(|time| Duration::from_nanos(*time).as_millis())
    };
    assert_eq!(pause(fault(10, 40, &[7, 8], &[])), Some(20), "at 20, 30 and 50");
    assert_eq!(pause(fault(10, 40, &[7, 8], &[2])), Some(60), "at 20, 30 and 90");
    assert_eq!(pause(fault(10, 40, &[7], &[])), Some(30));
    assert_eq!(pause(fault(10, 60, &[7], &[])), None, "never again");
    assert_eq!(pause(fault(92, 93, &[8], &[])), Some(3));
}

/// The result of a run of a row that strikes fifty times.
fn result(server: &str, faults: u64) -> Value {
    json!({
        "version": OF_THIS, "row": "failover", "title": "a replica takes over", "variant": "", "place": [4, 0],
        "promises": ["NoOverlap"], "server": server, "backend": "redis", "machine": "2 x any",
        "node_timeout_ms": 3_000, "lease_ms": 12_000, "ended": 1_790_000_000, "seconds": 1_800,
        "faults": faults, "acquisitions": 1_000, "overlaps": 0, "lost": 1, "vanished": 0, "noticed_late": 0,
        "releases_unknown": 0, "releases_failed": 2, "orphans": 3, "stale_writes_accepted": 0, "writes_refused": 0,
        "failed": { "Rejected": 4 }, "wait_ns": { "p99": faults * 1_000_000 },
        "recovery_ns": [1_000_000, 2_000_000_000_u64], "outcome": "kept", "broken": [], "void": [],
    })
}

const OF_THIS: &str = "src 1234567, lua 89abcde, cli f012345, Cargo.lock 6789abc";

fn with_field(mut result: Value, field: &str, value: Value) -> Value {
    result[field] = value;
    result
}

fn of_row(place: usize, row: &str, result: Value) -> Value {
    with_field(with_field(result, "row", json!(row)), "place", json!([place, 0]))
}

#[test]
fn scorecard_adds_up_runs_of_one_version_by_server() {
    let (redis, valkey) = ("Redis 7.0.15", "Valkey 9.1.2");
    let of_a_row_that_is_gone = of_row(5, "gone", result(valkey, 9_000));
    let of_a_row_that_is_gone = with_field(of_a_row_that_is_gone, "version", json!("src 0"));
    let runs = [
        of_a_row_that_is_gone,
        with_field(result(redis, 8_000), "version", json!("src 0, lua 0, cli 0, Cargo.lock 0")),
        with_field(result(redis, 7_000), "node_timeout_ms", json!(1_000)), // the row was another
        result(redis, 20),
        with_field(result(valkey, 1), "broken", json!(["one", "two"])),
        with_field(result(redis, 11), "void", json!(["a failover"])), // counts for nothing else
        result(redis, 30),
        of_row(0, "steady", result("Redis 8.2.3", 0)),
        with_field(of_row(6, "step", result("Redis 8.2.3", 900)), "overlaps", json!(2)),
    ];
    let lines: Vec<String> = runs.iter().map(Value::to_string).collect();
    let folder = TempFolder::new("runs").unwrap();
    let file = folder.write("chaos.jsonl", lines.join("\n")).unwrap();
    let script = testkit::project_root().join("scripts/publish");
    let said = Command::new(script).arg("--scorecard").arg(&file).output().unwrap();
    let card = String::from_utf8(said.stdout).unwrap();
    for line in [
        "| `failover` | a replica takes over | no overlap | 51 | 3,000 | 0 | 1 in 17 faults | 2 |",
        "| `steady` | a replica takes over | no overlap | 0 | 1,000 | 0 | 1 in 333 acquisitions | 0 |",
        "| `step` | a replica takes over | no overlap | 900 | 1,000 | 2 | - | 0 |",
        "| `failover` | Redis 7.0.15, redis | 50 | 2,000 | 0 | 2 | 0 | 0 | 0, 0 | 0 | 1 |",
        "| `failover` | Valkey 9.1.2, redis | 1 | 1,000 | 0 | 1 | 0 | 0 | 0, 0 | 2 | 0 |",
        "| `failover` | Redis 7.0.15, redis | 30 ms | 2.0 s, 2.0 s | 0, 4 | 6 | Rejected 8 |",
        "- version: src 1234567, lua 89abcde, cli f012345, Cargo.lock 6789abc",
        "  - gone, Valkey 9.1.2, redis",
    ] {
        assert!(card.lines().any(|one| one == line), "{line}\n{card}");
    }
    assert_eq!(card.matches("Redis 7.0.15").count(), 2, "{card}");
}

#[test]
fn a_row_goes_on_where_its_results_end() {
    let (redis, row) = ("Redis 7.0.15", rows().into_iter().find(|row| row.name == "failover"));
    let row = row.unwrap();
    let results = [
        result(redis, 20),
        result(redis, 7),
        result("Valkey 9.1.2", 900),
        with_field(result(redis, 901), "version", json!("src 0, lua 0, cli 0, Cargo.lock 0")),
        with_field(result(redis, 902), "outcome", json!("broken")),
        with_field(result(redis, 903), "outcome", json!("void")),
        with_field(result(redis, 904), "backend", json!("fred")),
        with_field(result(redis, 905), "variant", json!("unconfirmed")),
        with_field(result(redis, 906), "row", json!("kill")),
        with_field(result(redis, 907), "node_timeout_ms", json!(1_000)),
        with_field(result(redis, 908), "lease_ms", json!(1_000)),
    ];
    let lines: Vec<String> = results.iter().map(Value::to_string).collect();
    let had = count(&lines.join("\n"), OF_THIS, &row, &row.variants[0], redis, "redis");
    assert_eq!(had.unwrap(), 27);
}

/// Three masters with a replica each, at the start.
fn census() -> Census {
    let told = |number: usize| NodeState {
        run_id: format!("run{number}"),
        role: if number < 3 { Role::Master } else { Role::ReplicaOf(number - 3) },
        epoch: number as u64 % 3 + 1,
        current_epoch: 6,
        promotions: 0,
    };
    Census((0..6).map(|number| (number, told(number))).collect())
}

/// The same after one of them was changed.
fn with(change: impl FnOnce(&mut BTreeMap<usize, NodeState>)) -> Census {
    let mut census = census();
    change(&mut census.0);
    census
}

fn told(nodes: &mut BTreeMap<usize, NodeState>, number: usize) -> &mut NodeState {
    nodes.get_mut(&number).unwrap()
}

/// The replica of the first master has become a master, at the next epoch.
fn failed_over(nodes: &mut BTreeMap<usize, NodeState>) {
    *told(nodes, 0) = NodeState {
        role: Role::ReplicaOf(3),
        epoch: 7,
        current_epoch: 7,
        ..told(nodes, 0).clone()
    };
    *told(nodes, 3) = NodeState {
        role: Role::Master,
        epoch: 7,
        current_epoch: 7,
        promotions: 1,
        ..told(nodes, 3).clone()
    };
}

const TAKES_OVER: Change = Change::TakesOver { from: 0, to: 3 };

#[test]
fn census_reports_unordered_cluster_changes_only() {
    let noticed = |after: &Census, ordered: &[Change]| {
        after.unordered(&census(), ordered, Completion::Done).len()
    };
    let restarted = with(|nodes| told(nodes, 4).run_id = "another".into());
    let ended = with(|nodes| drop(nodes.remove(&4)));
    let come =
        with(|nodes| drop(nodes.insert(6, NodeState { role: Role::Master, ..nodes[&0].clone() })));
    let moved = with(|nodes| {
        let target = told(nodes, 1);
        (target.epoch, target.current_epoch) = (7, 7);
    });
    let voted = with(|nodes| told(nodes, 5).current_epoch = 7);
    let followed = with(|nodes| told(nodes, 5).role = Role::ReplicaOf(1));
    let failed_over = with(failed_over);

    let follows = Change::Follows { replica: 5, master: 1 };
    let cases: [(&Census, &[Change], usize); 7] = [
        (&restarted, &[Change::Restarts(4)], 1),
        (&ended, &[Change::Leaves(4)], 1),
        (&come, &[Change::Joins(6)], 1),
        (&moved, &[Change::TakesSlot(1)], 2), // of the node, and of the cluster
        (&voted, &[Change::TakesSlot(2)], 1),
        (&followed, &[follows], 1),
        (&failed_over, &[TAKES_OVER], 4), // what each of the two is, the promotion, and the epoch
    ];
    assert_eq!(noticed(&census(), &[]), 0);
    for (number, (after, order, changes)) in cases.into_iter().enumerate() {
        assert_eq!(noticed(after, order), 0, "case {number}");
        assert_eq!(noticed(after, &[]), changes, "case {number}");
        let other = [Change::Restarts(2), Change::TakesSlot(0)];
        let seen = after.unordered(&census(), &other, Completion::Done);
        let epoch_only = number == 4;
        assert_eq!(
            seen.is_empty(),
            epoch_only,
            "case {number}, by the orders of another: {seen:?}"
        );
    }
    // A slot raised its master's epoch. That of another master must not rise with it.
    assert_eq!(noticed(&moved, &[Change::TakesSlot(2)]), 1);
    // A failover that undid an ordered one, and one more than was ordered.
    assert!(noticed(&census(), &[TAKES_OVER]) > 0);
    let mut there_and_back = with(failed_over_and_back);
    assert_eq!(noticed(&there_and_back, &[TAKES_OVER, Change::TakesOver { from: 3, to: 0 }]), 0);
    told(&mut there_and_back.0, 3).promotions = 2;
    assert_eq!(noticed(&there_and_back, &[TAKES_OVER, Change::TakesOver { from: 3, to: 0 }]), 1);
}

fn failed_over_and_back(nodes: &mut BTreeMap<usize, NodeState>) {
    *told(nodes, 0) =
        NodeState { epoch: 8, current_epoch: 8, promotions: 1, ..told(nodes, 0).clone() };
    *told(nodes, 3) =
        NodeState { epoch: 8, current_epoch: 8, promotions: 1, ..told(nodes, 3).clone() };
}

#[test]
fn an_order_that_was_cut_short_may_have_been_carried_out_or_not() {
    let noticed = |after: &Census, ordered: &[Change]| {
        after.unordered(&census(), ordered, Completion::CutShort).len()
    };
    let killed = with(|nodes| drop(nodes.remove(&0)));
    let other = with(|nodes| told(nodes, 1).role = Role::ReplicaOf(4));
    let orders = [TAKES_OVER, Change::Restarts(0)];
    for after in [&census(), &with(failed_over), &killed] {
        assert_eq!(noticed(after, &orders), 0, "{after:?}");
    }
    assert_eq!(noticed(&other, &orders), 1);
    assert_eq!(noticed(&killed, &[TAKES_OVER]), 1);
}

/// A row without faults of servers, in which a change happens that no nemesis ordered.
async fn with_unordered(what: Unordered) -> Result<Run> {
    let flush = rows().into_iter().find(|row| row.name == "flush");
    let row = Row {
        nemesis: Nemesis::Unordered(what),
        ..flush.ok_or_else(|| Error::new("there is no such row"))?
    };
    let folder = std::env::temp_dir().join(format!("rwlease-void-{}-{what:?}", std::process::id()));
    // As a run before this one leaves it behind, with a line that no worker writes.
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("worker-0.log"), "558 X 872 Released\n".repeat(10_000))?;
    let ran = run(&row, &row.variants[0], 2, 7, &folder).await?;
    let ran = ran.ok_or_else(|| Error::new("it could not be run"))?;
    assert_eq!(ran.verdict.outcome(), Outcome::Void, "{what:?}: {}", ran.report());
    let log = std::fs::read_to_string(folder.join("servers/node-0.log"))?;
    assert!(log.contains("Ready to accept connections"), "{log}");
    assert!(std::fs::read_to_string(folder.join("servers.log"))?.contains("at the start"));
    std::fs::remove_dir_all(folder)?;
    Ok(ran)
}

#[tokio::test(flavor = "multi_thread")]
async fn unordered_change_of_a_node_makes_a_run_void() -> Result {
    let cases = [
        (Unordered::Failover, "is a replica of node"),
        (Unordered::ThereAndBack, "promotions in its log: 1, ordered: 0"),
        (Unordered::Restart, "was started again"),
        (Unordered::End, "has ended"),
        (Unordered::Epoch, "a master all the time, went from epoch"),
        (Unordered::FailoverAndError, "is a replica of node"),
    ];
    for (what, words) in cases {
        let _turn = TURNS.acquire().await?;
        let run = with_unordered(what).await?;
        let report = run.report();
        assert_eq!(run.verdict.json()["faults"], 0, "{what:?}");
        assert!(report.contains("VOID") && report.contains(words), "{what:?}: {report}");
        let seen = run.scene.faults.len();
        assert_eq!(seen, 1, "{what:?}: it went on");
    }
    Ok(())
}

#[test]
fn verdict_with_an_unordered_failover_is_void() {
    let variant = rows().remove(0).variants.remove(0);
    let overlap = &[
        "1 R 0 7 w, 2 G 0 10 1000, 6 E 0 held, 7 X 0 Released",
        "1 R 0 7 w, 5 G 0 11 1000, 9 E 0 held, 10 X 0 Released",
    ];
    let faults = [fault(1, 2, &[7], &[]), fault(3, 4, &[7], &[])];
    let verdict = Verdict::of(&history(overlap), &faults, &variant, &[]);
    let void = verdict.clone().beside(&["a failover".into()]);
    let kept = Verdict::of(&history(&[]), &faults, &variant, &[]).beside(&[]);
    let outcomes = [&kept, &void, &verdict.clone().beside(&[])].map(Verdict::outcome);
    assert_eq!(outcomes, [Outcome::Kept, Outcome::Void, Outcome::Broken]);
    assert_eq!((void.faults, void.recoveries.len()), (0, 0));
    assert_eq!((kept.faults, verdict.faults), (2, 2));
    assert_eq!(void.json()["outcome"], "void");
    assert_eq!(outcomes.map(Outcome::exit_status), [0, 3, 1]);
    // A void run does not hide a broken one.
    assert_eq!(Outcome::Void.max(Outcome::Broken), Outcome::Broken);
    assert_eq!(Outcome::Void.max(Outcome::Kept), Outcome::Void);
}

#[tokio::test]
async fn store_refuses_writes_of_older_tokens() -> Result {
    let store = Store::start().await?;
    let mut client = StoreClient::connect(&store.url()).await?;
    let write = |token, hold| StoreWrite { name: "stale", token, hold };
    let (old, new) = (write(4, 1), write(7, 2));
    assert_eq!(client.enter(&old).await?, Some((1, 0)));
    assert_eq!(client.set(&old, 1).await?, Some(2));
    assert_eq!(client.read("stale").await?, Some(1));
    assert_eq!(client.enter(&new).await?, Some((3, 1)));
    assert_eq!(client.set(&old, 2).await?, None, "an older token");
    assert_eq!(client.enter(&old).await?, None, "an older token");
    assert_eq!(client.enter(&write(7, 3)).await?, None, "another writer of the token");
    assert_eq!(store.behind().await?, [""; 0]);
    // As if two writers had read the same counter.
    assert_eq!(client.set(&new, 1).await?, Some(4));
    assert_eq!(store.behind().await?.len(), 1);
    Ok(())
}
