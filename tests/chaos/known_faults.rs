//! Histories with known faults, which the checker must find, and without, in which it must find nothing.

use crate::chaos::checker::Findings;
use crate::chaos::history::{History, Nanos};

/// A history of workers, each with its lines. Times are in milliseconds here.
fn findings(workers: &[&[&str]]) -> Findings {
    Findings::of(&history(workers))
}

fn history(workers: &[&[&str]]) -> History {
    let mut history = History::default();
    for lines in workers {
        let worker = history.add(None);
        for line in *lines {
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
fn a_good_history_has_nothing() {
    let found = findings(&[
        &[
            "1 R 0 7 w",
            "2 G 0 10 1000",
            "3 W 0 1",
            "5 W 0 2",
            "6 E 0 held",
            "7 X 0 Released",
        ],
        &["1 R 0 7 r", "8 G 0 11 1000", "10 E 0 held", "11 X 0 Released"],
        &["1 R 0 7 r", "8 G 0 12 1000", "12 E 0 held", "13 X 0 Released"],
        &[
            "9 R 0 7 w",
            "13 G 0 13 1000",
            "14 W 0 3",
            "16 E 0 held",
            "17 X 0 Released",
        ],
    ]);
    assert_eq!((found.requests, found.grants, found.writes), (4, 4, 3));
    assert_eq!(found.waits, [1_000_000, 4_000_000, 7_000_000, 7_000_000]);
    let kinds = [
        &found.overlaps,
        &found.tokens,
        &found.stale,
        &found.lost,
        &found.vanished,
        &found.stuck,
    ];
    assert!(kinds.iter().all(|seen| seen.count == 0), "{found:?}");
}

#[test]
fn two_writers_overlap() {
    let held = ["1 R 0 7 w", "2 G 0 10 1000", "6 E 0 held", "7 X 0 Released"];
    let before = ["1 R 0 7 w", "5 G 0 11 1000", "9 E 0 held"];
    let after = ["1 R 0 7 w", "7 G 0 11 1000", "9 E 0 held"];
    assert_eq!(findings(&[&held, &before]).overlaps.count, 1);
    assert_eq!(findings(&[&held, &after]).overlaps.count, 0);
}

#[test]
fn a_reader_beside_a_writer_overlaps_and_beside_a_reader_does_not() {
    let reader = ["1 R 0 7 r", "2 G 0 10 1000", "6 E 0 held"];
    let other = ["1 R 0 7 r", "3 G 0 11 1000", "9 E 0 held"];
    let writer = ["1 R 0 7 w", "5 G 0 12 1000", "9 E 0 held"];
    assert_eq!(findings(&[&reader, &other]).overlaps.count, 0);
    assert_eq!(findings(&[&reader, &other, &writer]).overlaps.count, 2);
}

#[test]
fn different_locks_do_not_overlap() {
    let one = ["1 R 0 7 w", "2 G 0 10 1000", "6 E 0 held"];
    let other = ["1 R 0 8 w", "2 G 0 10 1000", "6 E 0 held"];
    let found = findings(&[&one, &other]);
    assert_eq!((found.overlaps.count, found.tokens.count), (0, 0));
}

#[test]
fn belief_ends_at_the_deadline_as_it_was_last_noted() {
    let rival = ["1 R 0 7 w", "50 G 0 11 1000", "60 E 0 held"];
    let silent = ["1 R 0 7 w", "2 G 0 10 40", "100 E 0 lost"];
    let renewed = ["1 R 0 7 w", "2 G 0 10 40", "30 D 0 70", "100 E 0 lost"];
    let noticed = ["1 R 0 7 w", "2 G 0 10 40", "30 D 0 70", "45 L 0", "100 E 0 lost"];
    assert_eq!(findings(&[&silent, &rival]).overlaps.count, 0);
    assert_eq!(findings(&[&renewed, &rival]).overlaps.count, 1);
    assert_eq!(findings(&[&noticed, &rival]).overlaps.count, 0);
}

#[test]
fn the_dead_believe_nothing() {
    let killed = ["1 R 0 7 w", "2 G 0 10 1000"];
    let rival = ["1 R 0 7 w", "50 G 0 11 1000", "60 E 0 held"];
    let mut dead = history(&[&killed, &rival]);
    dead.killed(0, 40_000_000);
    assert_eq!(Findings::of(&dead).overlaps.count, 0);
    dead.killed(0, 55_000_000);
    assert_eq!(Findings::of(&dead).overlaps.count, 1);
}

#[test]
fn a_token_that_falls_or_is_given_twice_is_found() {
    let first = ["1 R 0 7 w", "2 G 0 10 1000", "3 E 0 held"];
    let lower = ["4 R 0 7 w", "5 G 0 9 1000", "6 E 0 held"];
    let same = ["1 R 0 7 w", "5 G 0 10 1000", "6 E 0 held"];
    let at_once = ["1 R 0 7 w", "5 G 0 9 1000", "6 E 0 held"];
    assert_eq!(findings(&[&first, &lower]).tokens.count, 1);
    assert_eq!(findings(&[&first, &same]).tokens.count, 1);
    // Both had asked before either was granted: any order is one.
    assert_eq!(findings(&[&first, &at_once]).tokens.count, 0);
}

#[test]
fn a_stale_write_that_the_store_accepted_is_found() {
    let old = ["1 R 0 7 w", "2 G 0 10 40", "3 W 0 1", "90 W 0 3", "91 E 0 lost"];
    let refused = ["1 R 0 7 w", "2 G 0 10 40", "3 W 0 1", "90 V 0", "91 E 0 lost"];
    let new = ["1 R 0 7 w", "50 G 0 11 1000", "51 W 0 2", "60 E 0 held"];
    assert_eq!(findings(&[&old, &new]).stale.count, 1);
    let found = findings(&[&refused, &new]);
    assert_eq!((found.stale.count, found.refused), (0, 1));
}

#[test]
fn a_loss_is_told_apart_from_a_grant_that_vanished() {
    let noticed = [
        "1 R 0 7 w",
        "2 G 0 10 40",
        "39 L 0",
        "41 E 0 lost",
        "42 X 0 AlreadyLost",
    ];
    let late = [
        "1 R 0 7 w",
        "2 G 0 10 40",
        "90 L 0",
        "91 E 0 lost",
        "92 X 0 AlreadyLost",
    ];
    let vanished = ["1 R 0 7 w", "2 G 0 10 1000", "41 E 0 held", "42 X 0 AlreadyLost"];
    let too_late = ["1 R 0 7 w", "2 G 0 10 1000", "41 E 0 held", "1042 X 0 AlreadyLost"];
    let rival = ["1 R 0 7 w", "50 G 0 11 1000", "60 E 0 held"];
    let counts = |found: Findings| (found.lost.count, found.noticed_late, found.vanished.count);
    assert_eq!(counts(findings(&[&noticed, &rival])), (1, 0, 0));
    assert_eq!(counts(findings(&[&late, &rival])), (1, 1, 0));
    assert_eq!(counts(findings(&[&vanished, &rival])), (0, 0, 1));
    assert_eq!(counts(findings(&[&too_late])), (0, 0, 0));
}

#[test]
fn one_who_waits_long_for_the_dead_is_stuck() {
    let dead = ["1 R 0 7 w", "2 G 0 10 1000"];
    let soon = ["9 R 0 7 w", "1500 G 0 11 9000", "1501 E 0 held"];
    let long = ["9 R 0 7 w", "12000 G 0 11 19000", "12001 E 0 held"];
    assert_eq!(findings(&[&dead, &soon]).stuck.count, 0);
    assert_eq!(findings(&[&dead, &long]).stuck.count, 1);
}

#[test]
fn outcomes_and_errors_are_counted() {
    let found = findings(&[&[
        "1 R 0 7 w",
        "2 F 0 Unavailable no master",
        "3 R 1 7 w",
        "4 G 1 10 1000",
        "5 E 1 held",
        "6 X 1 Unknown",
        "7 R 2 7 w",
        "8 G 2 11 1000",
        "9 E 2 held",
        "10 X 2 Failed refused",
    ]]);
    assert_eq!(
        (found.requests, found.grants, found.unknown, found.unreleased.count),
        (3, 2, 1, 1)
    );
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
