//! A server whose memory is full: calls that acquire are refused, calls that release or renew are
//! not.

use std::collections::BTreeMap;

use super::fixture::{Answer, Expect, Lab, id, start};
use super::request::Request;
use super::state_line_shapes::{all, make, restart, status};
use testkit::Server;

fn server() -> Server {
    start("maxmemory-policy noeviction")
}

/// What a call did to a lock.
struct Done {
    answer: Answer,
    before: BTreeMap<String, String>,
    after: BTreeMap<String, String>,
    ends: (Option<u64>, Option<u64>),
}

/// Runs the call from the given state, with a full memory or not.
fn done(lab: &mut Lab, us: u64, (from, call): (&str, &str), full: bool) -> Done {
    restart(lab, us, from);
    let (before, ends) = lab.look();
    lab.checked = true;
    lab.set_full(full);
    let answer = make(lab, call);
    lab.set_full(false);
    let (after, then_ends) = lab.look();
    Done { answer, before, after, ends: (ends, then_ends) }
}

/// Whether a call takes something that its caller did not have, or no longer has.
fn takes((from, call): (&str, &str), done: &Done) -> bool {
    let (call, name) = call.split_once(' ').unwrap_or((call, ""));
    let has = |field: &str| done.before.contains_key(&format!("{field}{}", id(name)));
    let says = |field: &str, start: &str| {
        let text = done.before.get(field);
        text.is_some_and(|text| text.starts_with(start) && text.ends_with(&id(name)))
    };
    let (writes, reads) = (says("s", "2W") || says("writer", ""), says("s", "2R") || has("r:"));
    let is_known = writes || has("q:") || (reads && !call.ends_with("upgrade"));
    let is_acquire = ["write", "read", "upgrade"].iter().any(|word| call.ends_with(word));
    is_acquire
        && (!is_known || from.contains("pass"))
        && matches!(status(&done.answer), "granted" | "queued")
}

/// Each call from each shape, on the fast paths and without them.
#[test]
fn full_memory_refuses_acquires_and_no_other_call() {
    let server = server();
    let mut lab = Lab::on(&server);
    let us = lab.now_us();
    let (mut refused, mut wrong) = (0, Vec::new());
    for (slow_path, at) in all() {
        lab.slow_path = slow_path;
        let (free, full) = (done(&mut lab, us, at, false), done(&mut lab, us, at, true));
        let is_refused = status(&full.answer) == "OOM";
        refused += u32::from(is_refused);
        let is_right = if is_refused {
            let acquires = ["write", "read", "upgrade"].iter().any(|word| at.1.contains(word));
            acquires && full.after == full.before && full.ends.0 == full.ends.1
        } else {
            (&full.answer, &full.after, full.ends) == (&free.answer, &free.after, free.ends)
        };
        if !is_right || is_refused != takes(at, &free) {
            wrong.push(format!("{at:?}, slow path {slow_path}: {:?}", full.answer));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 300, "{refused}");
}

#[test]
fn renew_that_repeats_a_lost_downgrade_goes_on() {
    let server = server();
    let mut lab = Lab::on(&server);
    let ann = lab.write("ann1").granted();
    lab.wait_read("bob1").queued();
    lab.set_full(true);
    assert_eq!(lab.renew_as("ann1", 100_000, "r", ann.token).status(), "renewed");
    assert_eq!(lab.state().reads().len(), 2);
}

#[test]
fn a_full_queue_loses_its_dead() {
    let server = server();
    let mut lab = Lab::on(&server);
    lab.request(&Request::write("ann1").lease(60_000)).granted();
    for (name, ttl) in [("dead1", 1_000), ("dead2", 1_000), ("bob1", 60_000), ("cat1", 60_000)] {
        lab.request(&Request::write(name).waiting().ttl(ttl)).queued();
    }
    lab.pass(1_000);
    lab.set_full(true);
    assert_eq!(lab.request(&Request::write("dan1").waiting().limit(2)).status(), "queue_full");
    assert_eq!(lab.state().queue_ids('w'), ["bob1", "cat1"].map(id));
}

#[test]
fn a_sweep_goes_on() {
    let server = server();
    let mut lab = Lab::on(&server);
    for reader in 0..100 {
        lab.request(&Request::read(&format!("x{reader}")).lease(1_000)).granted();
    }
    lab.request(&Request::write("w1").waiting().ttl(60_000)).queued();
    lab.pass(1_000);
    lab.set_full(true);
    lab.grant_all();
    assert_eq!(lab.state().writes(), Some(id("w1")));
}
