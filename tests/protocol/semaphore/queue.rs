//! Waiting for permits: first in, first out, however many each waiter requests.

use super::super::fixture::{Expect, GRANTS, HERE, TAG, id};
use super::bench::Bench;

#[test]
fn small_semaphore_requests_do_not_pass_a_big_one() {
    let mut bench = Bench::with_ann(4);
    bench.take("bob1", 4).granted();
    let big = bench.wait("cid1", 8).queued();
    let small = bench.wait("dan1", 1).queued();
    assert!(small > big);
    assert_eq!(bench.take("eve1", 1).status(), "busy", "two are left, and the head waits");
    bench.release("ann1").unwrap();
    assert_eq!(bench.held(), [(id("bob1"), 4)].into());
    bench.release("bob1").unwrap();
    assert_eq!(bench.held(), [(id("cid1"), 8), (id("dan1"), 1)].into());
    assert!(bench.state().unwrap().queue.is_empty());
}

#[test]
fn a_grant_out_of_the_queue_is_claimed_or_lapses() {
    let mut bench = Bench::with_ann(10);
    let ticket = bench.wait("bob1", 10).queued();
    bench.wait("bob2", 10).queued();
    bench.wait("cid1", 10).queued();
    bench.release("ann1").unwrap();
    assert_eq!(bench.held(), [(id("bob1"), 10)].into());
    bench.lab.pass(1_000);
    // The window is over, and bob has not polled since: none of its waiters is granted.
    bench.send("grant_waiters", &[HERE]).unwrap();
    assert_eq!(bench.held(), [(id("cid1"), 10)].into());
    let claimed = bench.renew("cid1", 10_000).unwrap();
    assert_eq!((claimed.status.as_str(), claimed.number(1)), ("renewed", bench.lab.now() + 10_000));
    // It comes back with its ticket, and goes before all later waiters.
    bench.wait("dan1", 1).queued();
    assert_eq!(bench.poll("bob1", 10, ticket).queued(), ticket);
    assert_eq!(bench.state().unwrap().queue, [id("bob1"), id("dan1")]);
}

#[test]
fn a_poll_claims_and_a_release_leaves_the_queue() {
    let mut bench = Bench::with_ann(10);
    let ticket = bench.wait("bob1", 3).queued();
    bench.wait("cid1", 3).queued();
    assert_eq!(bench.release("cid1").status(), "left_queue");
    assert_eq!(bench.poll("bob1", 3, ticket).queued(), ticket);
    bench.release("ann1").unwrap();
    let claimed = bench.poll("bob1", 3, ticket).granted();
    assert_eq!(claimed.deadline, bench.lab.now() + 10_000);
    bench.release("bob1").unwrap();
    let state = bench.state().unwrap();
    assert_eq!((state.flags, state.fields.len()), (0, 0), "nothing is left of the queue");
}

#[test]
fn a_renewal_beside_a_queue_lets_the_head_in_instead_of_the_dead() {
    let mut bench = Bench::with_ann(5);
    bench.lab.pass(6_000);
    bench.take("bob1", 5).granted();
    bench.wait("cid1", 5).queued();
    bench.lab.pass(4_000);
    assert_eq!(bench.renew("bob1", 10_000).status(), "renewed");
    assert_eq!(bench.held(), [(id("bob1"), 5), (id("cid1"), 5)].into());
}

#[test]
fn dead_waiters_are_passed_over() {
    let mut bench = Bench::with_ann(10);
    bench.wait("bob1", 10).queued();
    bench.lab.pass(4_000);
    bench.wait("cid1", 10).queued();
    bench.lab.pass(1_000);
    bench.release("ann1").unwrap();
    assert_eq!(bench.held(), [(id("cid1"), 10)].into());
}

#[test]
fn a_full_queue_takes_no_more() {
    let mut bench = Bench::with_ann(10);
    bench.wait("bob1", 1).queued();
    let (bob, place) = (id("cid1"), "1000 5000 1 -");
    let args = [HERE, "0", &bob, "10000", "1", "10", TAG, place];
    assert_eq!(bench.send("acquire", &args).status(), "queue_full");
    assert_eq!(bench.state().unwrap().queue, [id("bob1")]);
}

#[test]
fn dead_waiters_at_the_head_do_not_fill_a_queue() {
    let mut bench = Bench::with_ann(10);
    let dead = 2 * GRANTS + 8;
    for number in 0..dead {
        bench.wait(&format!("dead{number}"), 1).queued();
    }
    bench.lab.pass(5_000);
    let cid = id("cid1");
    let args = [HERE, "0", &cid, "10000", "1", "10", TAG, "1000 5000 4 -"];
    for left in [dead - GRANTS, dead - 2 * GRANTS] {
        let full = bench.send("acquire", &args).unwrap();
        assert_eq!((full.status.as_str(), full.more), ("queue_full", true));
        assert_eq!((full.number(0), bench.state().unwrap().queue.len()), (left as u64, left));
    }
    let queued = bench.send("acquire", &args).unwrap();
    assert_eq!((queued.status.as_str(), queued.more), ("queued", false));
    assert_eq!(bench.state().unwrap().queue, [cid]);
}

#[test]
fn grants_are_told_on_the_channel_and_a_client_that_is_gone_is_passed_over() {
    let mut bench = Bench::new();
    if !bench.lab.has_push() {
        return;
    }
    bench.take("ann1", 10).granted();
    let place = format!("1000 5000 1000 {HERE}");
    for (name, permits) in [("gone1", "4"), ("bob1", "6"), ("bob2", "3")] {
        let args = [HERE, "0", &id(name), "10000", permits, "10", TAG, &place];
        bench.send("acquire", &args).queued();
    }
    let listener = bench.lab.listen_as("bob");
    bench.release("ann1").unwrap();
    assert_eq!(bench.held(), [(id("bob1"), 6), (id("bob2"), 3)].into(), "nobody heard the first");
    let messages = listener.heard();
    let window = (bench.lab.now() + 1_000).to_string();
    assert_eq!(
        messages.len(),
        2,
        "the second one was granted what the first had not: {messages:?}"
    );
    for (message, name) in messages.iter().zip(["bob1", "bob2"]) {
        let words: Vec<&str> = message.split(' ').collect();
        assert_eq!((words[1], words[2], words[4]), ("0", &*id(name), &*window));
    }
}

#[test]
fn release_of_many_permits_leaves_further_grants_to_grant_waiters() {
    let mut bench = Bench::new();
    bench.take_of("ann1", 100, 100).granted();
    let place = "1000 5000 1000 -";
    for waiter in 0..2 * GRANTS + 8 {
        let id = id(&format!("bob{waiter}"));
        bench.send("acquire", &[HERE, "0", &id, "10000", "1", "100", TAG, place]).queued();
    }
    assert!(bench.release("ann1").unwrap().more);
    assert_eq!(bench.state().unwrap().holders, GRANTS as u64, "so many in a call");
    assert!(bench.send("grant_waiters", &[HERE]).unwrap().more);
    assert!(!bench.send("grant_waiters", &[HERE]).unwrap().more);
    assert_eq!(bench.state().unwrap().holders, 2 * GRANTS as u64 + 8);
}
