//! The limit belongs to the semaphore, and changes only by a call that knows it.

use super::super::fixture::{Expect, id};
use super::bench::{Bench, told_limit};

#[test]
fn an_acquire_by_another_limit_is_told_the_one_that_stands() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        bench.take("ann1", 1).granted();
        let before = bench.state();
        for limit in [9, 11] {
            assert_eq!(told_limit(&bench.take_of("bob1", 1, limit)), 10);
        }
        assert_eq!(bench.state(), before, "and nothing was done");
    }
}

#[test]
fn the_limit_changes_only_from_the_one_that_is_expected() {
    let mut bench = Bench::with_ann(10);
    assert_eq!(told_limit(&bench.set_limit(9, 20)), 10);
    assert_eq!(bench.state().unwrap().limit, 10);
    assert_eq!(bench.set_limit(10, 20).status(), "set");
    assert_eq!(bench.set_limit(10, 20).status(), "set", "it may come again");
    assert_eq!(told_limit(&bench.set_limit(10, 30)), 20);
    bench.take_of("bob1", 10, 20).granted();
}

#[test]
fn a_semaphore_that_is_not_there_is_made() {
    let mut bench = Bench::new();
    assert_eq!(bench.set_limit(10, 5).status(), "set");
    let state = bench.state().unwrap();
    assert_eq!((state.limit, state.used, state.flags), (5, 0, 0));
    assert_eq!(told_limit(&bench.take("ann1", 1)), 5);
    bench.take_of("ann1", 5, 5).granted();
}

#[test]
fn a_lower_limit_takes_nothing_from_anybody_and_grants_nothing_meanwhile() {
    let mut bench = Bench::with_ann(6);
    bench.take("bob1", 4).granted();
    assert_eq!(bench.set_limit(10, 5).status(), "set");
    assert_eq!(bench.renew("ann1", 10_000).status(), "renewed");
    bench.release("bob1").unwrap();
    assert_eq!(bench.take_of("cid1", 1, 5).status(), "busy", "six of five are held");
    bench.release_permits("ann1", 4).unwrap();
    bench.take_of("cid1", 1, 5).granted();
}

#[test]
fn waiters_go_on_unless_they_want_more_than_there_will_be() {
    let mut bench = Bench::with_ann(10);
    let big = bench.wait("bob1", 6).queued();
    let small = bench.wait("cid1", 5).queued();
    bench.wait("dan1", 7).queued();
    assert_eq!(bench.set_limit(10, 5).status(), "set");
    // The call drops the head, so that it blocks nobody. The other one is dropped when it polls.
    assert_eq!(bench.state().unwrap().queue, [id("cid1"), id("dan1")]);
    assert_eq!(told_limit(&bench.poll("bob1", 6, big)), 5);
    assert_eq!(bench.poll("cid1", 5, small).queued(), small, "by the limit that it came with");
    assert_eq!(told_limit(&bench.poll("dan1", 7, 3)), 5);
    assert_eq!(bench.state().unwrap().queue, [id("cid1")]);
    bench.release("ann1").unwrap();
    assert_eq!(bench.held(), [(id("cid1"), 5)].into());
}

#[test]
fn a_higher_limit_lets_waiters_in() {
    let mut bench = Bench::with_ann(10);
    bench.wait("bob1", 2).queued();
    bench.set_limit(10, 12).unwrap();
    assert_eq!(bench.held(), [(id("ann1"), 10), (id("bob1"), 2)].into());
}
