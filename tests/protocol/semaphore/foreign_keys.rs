//! Keys of other types, and hashes that no script wrote.

use super::super::arguments;
use super::super::fixture::{Expect, HERE, Lab, id};
use super::bench::Bench;

/// Calls of each script of a semaphore.
fn calls() -> Vec<(&'static str, Vec<String>)> {
    arguments::calls(|script| script.starts_with("semaphore/"))
}

#[track_caller]
fn all_refused(lab: &mut Lab, calls: &[(&str, Vec<String>)], code: &str) {
    lab.checked = false;
    for slow_path in [false, true] {
        lab.slow_path = slow_path;
        for (script, args) in calls {
            let answer = lab.unchanged(|lab| lab.send(script, args));
            answer.refused_with(code);
        }
    }
}

#[test]
fn a_lock_is_no_semaphore() {
    for state in [
        "write ann1, release ann1",
        "write ann1",
        "read ann1",
        "read ann1, read bob1",
        "write bob1, wait_write ann1",
    ] {
        all_refused(&mut Lab::after(state), &calls(), "LOCKTYPE");
    }
}

#[test]
fn a_semaphore_is_no_lock() {
    let calls = arguments::calls(|script| !script.contains('/'));
    for waits in [false, true] {
        let mut bench = Bench::with_ann(10);
        if waits {
            bench.wait("bob1", 1).queued();
        }
        all_refused(&mut bench.lab, &calls, "LOCKTYPE");
        assert_eq!(bench.lab.grant_waiters().unwrap_err().detail, "shape P");
    }
}

#[test]
fn keys_of_other_kinds_are_left_alone() {
    let mut lab = Lab::new();
    lab.at_key::<()>("SET", &["a string"]);
    for (script, args) in calls() {
        lab.checked = false;
        lab.send(script, &args).refused_with("WRONGTYPE");
    }
    lab.at_key::<()>("DEL", &[]);
    lab.set_field("other", "1");
    all_refused(&mut lab, &calls(), "LOCKTYPE");
}

#[test]
fn semaphore_malformed_line_is_rejected() {
    let mut bench = Bench::with_ann(1);
    let (fields, _) = bench.lab.look();
    let line = fields["s"].clone();
    let token = &fields[&format!("r:{}", id("ann1"))][14..30];
    let (head, tail) = line.split_at(45);
    for bad in ["3P".to_owned() + &line[2..], "9P".to_owned() + &line[2..]] {
        bench.lab.set_field("s", &bad);
        all_refused(&mut bench.lab, &calls(), "LOCKVERSION");
    }
    for bad in [
        "2X".to_owned() + &line[2..],
        head.to_owned(),
        format!("{head}10 1"),
        format!("{} 1 1", &head[..40]),
        format!("{head}-1 1 1"),
        format!("{}4{tail}", &head[..44]),
        format!("{} {tail}", &head[..44]),
    ] {
        bench.lab.set_field("s", &bad);
        all_refused(&mut bench.lab, &calls(), "LOCKTYPE");
        bench.lab.slow_path = false;
        let renew = [HERE, &id("ann1"), "10000", "1", token];
        let answer = bench.lab.unchanged(|lab| lab.send("semaphore/renew", &renew));
        answer.refused_with("LOCKTYPE");
    }
    // A usual release does not check the limit.
    for bad in [format!("{head}0 1 1"), format!("{head}4294967296 1 1")] {
        bench.lab.set_field("s", &bad);
        for slow_path in [false, true] {
            bench.lab.slow_path = slow_path;
            bench
                .lab
                .unchanged(|lab| lab.send("semaphore/grant_waiters", &[HERE]))
                .refused_with("LOCKTYPE");
        }
    }
    // Queue fields without the flag that they are there.
    bench.lab.slow_path = false;
    bench.lab.set_field("s", &line);
    bench.lab.set_field("ticket", "41");
    assert_eq!(bench.wait("bob1", 10).queued(), 1);
}

#[test]
fn a_malformed_record_is_not_renewed() {
    let mut bench = Bench::with_ann(1);
    let field = format!("r:{}", id("ann1"));
    let (fields, _) = bench.lab.look();
    let head = fields[&field][..30].to_owned();
    bench.lab.checked = false;
    for bad in [head.clone(), format!("{head}x 1"), format!("{head}0 x")] {
        bench.lab.set_field(&field, &bad);
        for slow_path in [false, true] {
            bench.lab.slow_path = slow_path;
            let renew = [HERE, &id("ann1"), "10000", "1", &head[14..]];
            let answer = bench.lab.unchanged(|lab| lab.send("semaphore/renew", &renew));
            answer.refused_with("LOCKTYPE");
        }
    }
}

/// A release moves the last holder of the array to the place of the one that it removes.
#[test]
fn release_is_rejected_if_the_last_holder_is_malformed() {
    let place = "i:1".to_owned();
    let record = format!("r:{}", id("bob1"));
    for (field, queue) in [(&place, false), (&record, false), (&place, true), (&record, true)] {
        for slow_path in [false, true] {
            let mut bench = Bench::with_ann(1);
            bench.take("bob1", 1).granted();
            if queue {
                bench.wait("cat1", 10).queued();
            }
            bench.lab.checked = false;
            bench.lab.slow_path = slow_path;
            bench.lab.at_key::<()>("HDEL", &[field]);
            let release = [HERE, &id("ann1")];
            let answer = bench.lab.unchanged(|lab| lab.send("semaphore/release", &release));
            answer.refused_with("LOCKTYPE");
        }
    }
}
