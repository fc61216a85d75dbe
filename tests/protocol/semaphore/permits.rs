//! Taking, keeping and releasing permits.

use super::super::fixture::{Expect, GRACE, KEEP, SLACK, id};
use super::bench::Bench;

#[test]
fn the_first_acquire_makes_the_semaphore_and_permits_are_shared_up_to_its_limit() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        let first = bench.take("ann1", 4).granted();
        assert_eq!(first.deadline, bench.lab.now() + 10_000);
        let second = bench.take("bob1", 6).granted();
        assert!(second.token > first.token);
        let state = bench.state().unwrap();
        assert_eq!((state.limit, state.used, state.holders), (10, 10, 2));
        assert_eq!(bench.take("cid1", 1).status(), "busy");
        assert_eq!(bench.release("ann1").status(), "released");
        assert_eq!(bench.take("cid1", 5).status(), "busy");
        assert!(bench.take("cid1", 4).granted().token > second.token);
    }
}

#[test]
fn a_call_that_comes_again_takes_no_more() {
    let mut bench = Bench::new();
    let first = bench.take("ann1", 4).granted();
    assert_eq!(bench.take("ann1", 4).granted(), first);
    assert_eq!(bench.held(), [(id("ann1"), 4)].into());
    bench.release_permits("ann1", 1).unwrap();
    assert_eq!(bench.take("ann1", 4).granted(), first, "and gives nothing back a second time");
    assert_eq!(bench.held(), [(id("ann1"), 1)].into());
    assert_eq!(bench.release("ann1").status(), "released");
    assert_eq!(bench.release("ann1").status(), "not_found");
    assert_eq!(bench.state().unwrap().used, 0);
}

#[test]
fn a_part_goes_back_and_a_late_call_gives_nothing_back_twice() {
    let mut bench = Bench::new();
    let held = bench.take("ann1", 10).granted();
    let kept = bench.release_permits("ann1", 3).unwrap();
    assert_eq!((kept.status.as_str(), kept.number(0), kept.number(2)), ("kept", held.token, 3));
    assert_eq!(
        bench.release_permits("ann1", 7).unwrap().number(2),
        3,
        "an earlier call that comes late"
    );
    bench.take("bob1", 7).granted();
    assert_eq!(bench.release_permits("cid1", 1).status(), "not_held");
    bench.lab.pass(10_000);
    assert_eq!(bench.release_permits("ann1", 1).status(), "not_held");
}

/// A failover has lost the partial release.
#[test]
fn renew_with_fewer_permits_gives_the_others_back() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        let held = bench.take("ann1", 10).granted();
        bench.wait("bob1", 7).queued();
        let renewed = bench.renew_as("ann1", 20_000, 3, held.token).unwrap();
        let until = bench.lab.now() + 20_000;
        assert_eq!(
            (renewed.status.as_str(), renewed.held().deadline),
            ("renewed", until),
            "{renewed:?}"
        );
        assert_eq!(bench.held(), [(id("ann1"), 3), (id("bob1"), 7)].into());
        bench.release("bob1").status();
        bench.renew_as("ann1", 20_000, 2, held.token).unwrap();
        assert_eq!(bench.state().unwrap().used, 2, "also where nobody waits");
    }
}

/// A renewal that was sent before a partial release and comes after it.
#[test]
fn renew_with_more_permits_adds_none() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        let held = bench.take("ann1", 10).granted();
        bench.release_permits("ann1", 3).unwrap();
        assert_eq!(bench.renew_as("ann1", 20_000, 10, held.token).status(), "renewed");
        assert_eq!(bench.state().unwrap().used, 3);
        bench.wait("bob1", 8).queued();
        assert_eq!(bench.renew_as("ann1", 20_000, 10, held.token).status(), "renewed");
        assert_eq!(bench.held(), [(id("ann1"), 3)].into());
    }
}

#[test]
fn renew_of_permits_by_another_token_changes_nothing() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        let held = bench.take("ann1", 10).granted();
        for token in [held.token - 1, held.token + 1] {
            let before = bench.lab.snapshot();
            let other = bench.renew_as("ann1", 60_000, 3, token).unwrap();
            assert_eq!((other.status.as_str(), other.held()), ("other", held));
            assert_eq!(bench.lab.snapshot(), before);
        }
    }
}

#[test]
fn release_of_enough_permits_grants_the_first_waiter() {
    let mut bench = Bench::with_ann(10);
    bench.wait("bob1", 4).queued();
    bench.release_permits("ann1", 7).unwrap();
    assert_eq!(bench.state().unwrap().queue, [id("bob1")], "three are not enough");
    bench.release_permits("ann1", 6).unwrap();
    assert_eq!(bench.held(), [(id("ann1"), 6), (id("bob1"), 4)].into());
}

#[test]
fn a_lease_ends_at_its_deadline_and_a_renewal_moves_it() {
    for mut bench in [Bench::new(), Bench::slow_path()] {
        bench.take("ann1", 10).granted();
        bench.lab.pass(9_999);
        assert_eq!(bench.take("bob1", 1).status(), "busy");
        let renewed = bench.renew("ann1", 5_000).unwrap();
        assert_eq!(
            (renewed.status.as_str(), renewed.number(1)),
            ("renewed", bench.lab.now() + 5_000)
        );
        let again = bench.renew("ann1", 1_000).unwrap();
        assert_eq!(again.number(1), renewed.number(1), "never shorter");
        bench.lab.pass(4_999);
        assert_eq!(bench.take("bob1", 1).status(), "busy");
        bench.lab.pass(1);
        assert_eq!(bench.renew("ann1", 1_000).status(), "not_held");
        bench.take("bob1", 10).granted();
        assert_eq!(bench.renew("ann1", 1_000).status(), "not_held");
        assert_eq!(bench.release("ann1").status(), "not_found");
        assert_eq!(bench.held(), [(id("bob1"), 10)].into());
    }
}

#[test]
fn dead_holders_are_swept_a_few_in_a_call() {
    let mut bench = Bench::new();
    for holder in 0..40 {
        bench.take_of(&format!("ann{holder}"), 1, 40).granted();
    }
    bench.lab.pass(10_000);
    let mut calls = 0;
    while bench.take_of("bob1", 40, 40).status() == "busy" {
        calls += 1;
        assert!(calls < 4, "16 in a call are enough for 40 in three");
    }
    assert_eq!(calls, 2);
    assert_eq!(bench.held(), [(id("bob1"), 40)].into());
}

#[test]
fn an_idle_key_goes_and_with_it_the_limit() {
    let mut bench = Bench::with_ann(1);
    let life = bench.state().unwrap().life;
    assert_eq!(life, bench.lab.now() + 10_000 + GRACE);
    bench.release("ann1").unwrap();
    assert_eq!(bench.state().unwrap().life, life, "a usual release leaves it alone");
    bench.lab.pass(10_000 + GRACE);
    assert_eq!(bench.inspect().status(), "not_found");
    bench.take_of("ann2", 3, 3).granted();
    assert_eq!(bench.state().unwrap().limit, 3);
}

#[test]
fn the_life_of_a_long_lease_is_lowered_by_its_release() {
    let mut bench = Bench::with_ann(1);
    bench.renew("ann1", KEEP * 10).unwrap();
    assert_eq!(bench.state().unwrap().life, bench.lab.now() + KEEP * 10 + GRACE + SLACK);
    bench.release("ann1").unwrap();
    assert_eq!(bench.state().unwrap().life, bench.lab.now() + GRACE);
}

#[test]
fn a_page_shows_the_holders_and_the_waiters() {
    let mut bench = Bench::with_ann(8);
    bench.wait("bob1", 5).queued();
    let page = bench.inspect().unwrap();
    let numbers: Vec<u64> = (1..5).map(|at| page.number(at)).collect();
    assert_eq!((page.status.as_str(), numbers), ("semaphore", vec![10, 8, 1, 1]));
    assert_eq!(page.list(5)[0], id("ann1"));
    assert!(page.list(5)[1].ends_with("0 8"), "{page:?}");
    assert_eq!(page.list(6)[0], id("bob1"));
    assert!(page.list(6)[1].contains(" 5 - 0 "), "{page:?}");
    let none = bench.send("inspect", &["here", "1", "none", "10"]).unwrap();
    assert_eq!((none.list(5), none.list(6)), (vec![], vec![]));
}
