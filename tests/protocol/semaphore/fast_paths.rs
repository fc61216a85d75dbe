//! States in which a fast path must do exactly what the slow path does, or leave the call to it.
//! They are rare in random histories.

use super::super::fixture::{Answer, Expect, GRACE, GRANTS, HERE, TAG, id};
use super::bench::{Bench, State};

/// The state after these calls, with the fast paths and without them.
#[track_caller]
fn both(calls: impl Fn(&mut Bench) -> Answer) -> State {
    let (mut fast, mut slow) = (Bench::new(), Bench::slow_path());
    let us = fast.lab.now_us().max(slow.lab.now_us());
    fast.lab.set_clock(us);
    slow.lab.set_clock(us);
    assert_eq!(calls(&mut fast), calls(&mut slow));
    let state = fast.state();
    assert_eq!(state, slow.state());
    state.unwrap()
}

/// Waits for permits, or polls with a ticket.
#[track_caller]
fn wait(bench: &mut Bench, number: usize, permits: usize, limit: usize, ticket: usize) -> Answer {
    let id = id(&format!("bob{number}"));
    let [permits, limit, ticket] = [permits, limit, ticket].map(|it| it.to_string());
    let place = "1000 60000 1000 -";
    let args = [HERE, "0", &id, "10000", &permits, &limit, TAG, place, &ticket];
    bench.send("acquire", &args[..if ticket == "0" { 8 } else { 9 }])
}

/// As many waiters as one call grants permits, all for one permit.
fn crowd(bench: &mut Bench, limit: usize) {
    bench.take_of("ann1", limit as u64, limit as u64).granted();
    for number in 1..=GRANTS {
        wait(bench, number, 1, limit, 0).queued();
    }
}

#[test]
fn a_poll_grants_the_last_permit_that_a_batch_has_left() {
    let limit = GRANTS + 1;
    let state = both(|bench| {
        crowd(bench, limit);
        wait(bench, limit, 1, limit, 0).queued();
        wait(bench, limit + 1, 1, limit, 0).queued();
        bench.release("ann1").unwrap();
        bench.lab.pass(1);
        wait(bench, limit + 1, 1, limit, limit + 1)
    });
    assert_eq!((state.used, state.queue.len()), (limit as u64, 1));
}

#[test]
fn a_poll_drops_a_head_that_wants_more_than_a_lowered_limit() {
    let state = both(|bench| {
        crowd(bench, 80);
        wait(bench, 71, 60, 80, 0).queued();
        wait(bench, 72, 1, 80, 0).queued();
        bench.set_limit(80, 50).unwrap();
        bench.release("ann1").unwrap();
        bench.lab.pass(1);
        wait(bench, 72, 1, 50, GRANTS + 2)
    });
    assert_eq!((state.used, state.queue.len()), (GRANTS as u64 + 1, 0));
}

#[test]
fn a_release_drops_a_waiter_that_wants_more_than_a_lowered_limit() {
    let state = both(|bench| {
        bench.take("ann1", 10).granted();
        for (number, permits) in [(1, 2), (2, 8), (3, 1)] {
            wait(bench, number, permits, 10, 0).queued();
        }
        bench.set_limit(10, 5).unwrap();
        bench.release("ann1")
    });
    assert_eq!((state.used, state.queue.len()), (3, 0));
}

#[test]
fn key_outlives_a_waiter_for_permits_by_the_whole_grace() {
    for beyond in [0, 1] {
        let mut bench = Bench::new();
        let deadline = bench.take("ann1", 10).granted().deadline;
        let ttl = deadline - bench.lab.now() + beyond;
        let expected = Some(deadline + GRACE + beyond);
        let place = format!("1000 {ttl} 1000 -");
        let args = [HERE, "0", &id("bob1"), "10000", "1", "10", TAG, &place, "1"];
        bench.send("acquire", &args[..8]).queued();
        assert!(bench.lab.ends() >= expected, "after it joined");

        let mut bench = Bench::with_ann(10);
        bench.wait("bob1", 1).queued();
        bench.send("acquire", &args).queued();
        assert!(bench.lab.ends() >= Some(bench.lab.now() + ttl + GRACE), "after a poll");
    }
}
