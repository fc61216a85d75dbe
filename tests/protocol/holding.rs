//! Holding: which requests are granted, until when, with which token, and how long the key lives.

use super::fixture::{Answer, Expect, GRACE, KEEP, Lab, SLACK, start};
use super::request::Request;
use super::state_line_shapes::{follow, make, status};

#[test]
fn refused_tries_return_the_first_deadline_of_the_holders() {
    for holders in ["write ann1, pass 5", "read ann1, pass 5", "read ann1, pass 5, read bob1"] {
        for slow_path in [false, true] {
            let mut lab = Lab::after(holders);
            lab.slow_path = slow_path;
            let deadline = lab.now() + 9_995;
            let is_written = holders.starts_with("write");
            for call in ["write cat1", if is_written { "read cat1" } else { "write dan1" }] {
                let refused = lab.unchanged(|lab| make(lab, call)).unwrap();
                assert_eq!((refused.status.as_str(), refused.number(0)), ("busy", deadline));
            }
        }
    }
}

#[test]
fn a_repeated_call_gives_the_same_answer_and_changes_nothing() {
    for others in [0, 1, 8, 20] {
        let mut lab = Lab::new();
        for other in 0..others {
            lab.twice(|lab| lab.request(&Request::read(&format!("other{other}")))).granted();
        }
        lab.twice(|lab| lab.request(&Request::read("ann1"))).granted();
        lab.pass(1);
        assert_eq!(lab.twice(|lab| lab.renew("ann1", 20_000)).status(), "renewed");
        assert_eq!(lab.twice(|lab| lab.upgrade("ann1", 1)).status(), "not_held");
        lab.release("ann1").status();
        assert_eq!(lab.twice(|lab| lab.release("ann1")).status(), "not_found");
    }
    let mut lab = Lab::new();
    lab.twice(|lab| lab.request(&Request::write("ann1"))).granted();
    lab.twice(|lab| lab.request(&Request::write("ann1").waiting())).granted();
    lab.twice(|lab| lab.request(&Request::write("bob1"))).unwrap();
    lab.twice(|lab| lab.request(&Request::write("bob1").waiting())).queued();
    lab.twice(|lab| lab.request(&Request::write("bob1"))).queued();
    lab.twice(|lab| lab.request(&Request::read("cat1").waiting())).queued();
    let token = lab.token_of("ann1");
    for (name, status) in [("ann1", "renewed"), ("dan1", "not_held")] {
        assert_eq!(lab.twice(|lab| lab.renew_as(name, 30_000, "w", token)).status(), status);
    }
    lab.twice(|lab| lab.request(&Request::write("bob1").waiting().ticket(1))).queued();
    lab.twice(Lab::grant_waiters).unwrap();
    let token = lab.last_token();
    lab.twice(|lab| lab.revoke_up_to(token)).unwrap();
    lab.twice(Lab::inspect).unwrap();
    assert_eq!(lab.release("ann1").status(), "released");
    lab.twice(|lab| lab.request(&Request::read("cat1").waiting().ticket(2))).granted();
}

/// `WAIT` counts the replicas that have what was written before it. So a call that finds its own
/// grant must write it again.
#[test]
fn repeated_grant_or_renewal_is_rewritten_unchanged() {
    let server = start("maxmemory-policy noeviction");
    let again = |lab: &mut Lab, what: &str, call: &dyn Fn(&mut Lab) -> Answer| {
        for full in [false, true] {
            let written = lab.changes();
            lab.set_full(full);
            let answer = lab.unchanged(call);
            lab.set_full(false);
            assert!(answer.is_ok(), "{what}, memory full {full}: {answer:?}");
            assert!(lab.changes() > written, "{what}, memory full {full}: nothing is written");
        }
    };
    for request in [Request::write("ann1"), Request::read("ann1")] {
        for others in [0, 20] {
            let mut lab = Lab::on_server_time(&server);
            let reads = request.script() == "acquire_read";
            (0..others).filter(|_| reads).for_each(|other| {
                lab.read(&format!("x{other}")).granted();
            });
            lab.request(&request).granted();
            again(&mut lab, "a try", &|lab| lab.request(&request));
            again(&mut lab, "a wait", &|lab| lab.request(&request.clone().waiting()));
            again(&mut lab, "a renewal", &|lab| lab.renew("ann1", 10));
            lab.wait_write("bob1").queued();
            again(&mut lab, "a renewal beside a waiter", &|lab| lab.renew("ann1", 10));
            lab.revoke().status();
            again(&mut lab, "a renewal of what is revoked", &|lab| lab.renew("ann1", 60_000));
        }
    }
    for waits in [false, true] {
        let mut lab = Lab::on_server_time(&server);
        let token = lab.read("ann1").granted().token;
        let request = if waits {
            Request::upgrade("ann1", token).waiting()
        } else {
            Request::upgrade("ann1", token)
        };
        lab.request(&request).granted();
        again(&mut lab, "an upgrade", &|lab| lab.request(&request));
    }
}

#[test]
fn a_release_says_what_it_ended() {
    let mut lab = Lab::new();
    assert_eq!(lab.unchanged(|lab| lab.release("ann1")).status(), "not_found");
    assert_eq!(lab.ends(), None, "a release makes no key");
    for request in [Request::read("ann1"), Request::write("ann1")] {
        lab.request(&request).granted();
        assert_eq!(lab.unchanged(|lab| lab.release("bob1")).status(), "not_found");
        assert_eq!(lab.release("ann1").status(), "released");
        assert_eq!(lab.unchanged(|lab| lab.release("ann1")).status(), "not_found");
        lab.request(&request).granted();
        lab.pass(10_000);
        assert_eq!(lab.release("ann1").status(), "released", "nobody has looked");
        assert_eq!(lab.unchanged(|lab| lab.release("ann1")).status(), "not_found");
        lab.request(&request).granted();
        lab.pass(10_000);
        lab.grant_waiters().unwrap();
        assert_eq!(lab.release("ann1").status(), "not_found", "somebody has looked");
    }
    lab.write("ann1").granted();
    lab.wait_write("bob1").queued();
    assert_eq!(lab.release("bob1").status(), "left_queue");
    assert_eq!(lab.unchanged(|lab| lab.release("bob1")).status(), "not_found");
}

#[test]
fn a_renewal_never_shortens() {
    for request in [Request::read("ann1"), Request::write("ann1")] {
        let mut lab = Lab::new();
        let first = lab.request(&request).granted();
        let renewed = lab.unchanged(|lab| lab.renew("ann1", 1)).unwrap();
        assert_eq!((renewed.status.as_str(), renewed.held()), ("renewed", first));
        lab.pass(4_000);
        let renewed = lab.renew("ann1", 10_000).unwrap().held();
        assert_eq!(renewed.token, first.token);
        assert_eq!(renewed.deadline, lab.now() + 10_000);
        assert_eq!(lab.renew("ann1", 5_000).unwrap().held(), renewed);
        lab.pass(9_999);
        assert_eq!(lab.write("bob1").status(), "busy");
        lab.pass(1);
        assert_eq!(lab.unchanged(|lab| lab.renew("ann1", 5_000)).status(), "not_held");
        lab.write("bob1").granted();
    }
}

#[test]
fn the_key_lives_as_long_as_the_longest_lease() {
    let mut lab = Lab::new();
    let long = lab.request(&Request::read("ann1").lease(60_000)).granted();
    let ends = lab.ends();
    assert_eq!(ends, Some(long.deadline + GRACE), "a new key has no more than it needs");
    lab.request(&Request::read("bob1").lease(100)).granted();
    assert_eq!(lab.ends(), ends, "a short lease cuts nothing");
    lab.renew("bob1", 1_000).status();
    lab.release("bob1").status();
    assert_eq!(lab.ends(), ends);
    lab.wait_write("cat1").queued();
    lab.release("cat1").status();
    assert_eq!(lab.ends(), ends);

    let renewed = lab.renew("ann1", 60_001).unwrap().held();
    let ends = lab.ends();
    assert_eq!(ends, Some(renewed.deadline + GRACE + SLACK));
    lab.renew("ann1", 60_001 + SLACK).status();
    assert_eq!(lab.ends(), ends, "what is covered is not set again");
    lab.pass(1);
    let renewed = lab.renew("ann1", 60_001 + SLACK).unwrap().held();
    assert_eq!(lab.ends(), Some(renewed.deadline + GRACE + SLACK));

    lab.request(&Request::write("dan1").waiting().ttl(200_000)).queued();
    assert_eq!(lab.ends(), Some(lab.now() + 200_000 + GRACE + SLACK), "a waiter is remembered");
}

/// How long an idle key lives, by how it became idle.
#[test]
fn an_idle_key_is_gone_after_a_while() {
    let ways = [
        ("write ann, release ann", 20_000),
        ("read ann, read bob, release ann, release bob", 20_000),
        ("write ann, wait_write bob, release ann, release bob", 20_000),
        // A call finds it, and its key would end before the grace is over.
        ("write/100 ann, pass 200, grant_waiters", GRACE),
        ("read/100 ann, pass 200, grant_waiters", GRACE),
        ("read ann, force", 20_000),
        // It was held again, and renewed.
        ("write ann, release ann, pass 1, write bob, release bob", 20_000 + SLACK),
        ("write ann, renew/40000 ann, release ann", KEEP),
        // It had long leases.
        ("write/600000 ann, release ann", GRACE),
        ("read ann, read/600000 bob, release bob, release ann", GRACE),
    ];
    for (way, lives) in ways {
        for slow_path in [false, true] {
            let mut lab = Lab::new();
            lab.slow_path = slow_path;
            follow(&mut lab, way);
            assert_eq!(lab.ends(), Some(lab.now() + lives), "{way}, {slow_path}");
            assert_eq!(lab.shape(), ("F".into(), vec![]), "{way}, {slow_path}");
            lab.pass(lives - 1);
            assert!(lab.ends().is_some());
            lab.pass(1);
            assert_eq!(lab.ends(), None);
        }
    }
}

/// A life that one release could not lower is lowered by the next release.
#[test]
fn an_idle_key_with_a_long_life_does_not_keep_it() {
    for slow_path in [false, true] {
        for request in [Request::write("bob1"), Request::read("bob1")] {
            let mut lab = Lab::after("write/600000 ann1");
            lab.checked = false;
            lab.set_line(|line| format!("2F{}", &line[2..31]));
            lab.slow_path = slow_path;
            lab.request(&request).granted();
            lab.checked = true;
            lab.release("bob1").unwrap();
            assert_eq!(lab.ends(), Some(lab.now() + GRACE), "{request:?}, {slow_path}");
        }
    }
}

#[test]
fn the_server_ends_the_key_itself() {
    let server = start("hz 100");
    let mut lab = Lab::on_server_time(&server);
    lab.checked = false;
    lab.request(&Request::write("ann1").lease(200)).granted();
    assert_eq!(lab.write("bob1").status(), "busy");
    let left = |lab: &mut Lab| lab.at_key::<i64>("PTTL", &[]);
    assert!((10_000..=10_200).contains(&left(&mut lab)));
    std::thread::sleep(std::time::Duration::from_millis(250));
    lab.write("bob1").granted();
    assert_eq!(lab.release("bob1").status(), "released");
    assert!((10_000..=20_000 + SLACK as i64).contains(&left(&mut lab)));
}

#[test]
fn tokens_rise_when_the_clock_is_behind() {
    let mut lab = Lab::new();
    let back = 60_000_000;
    let ahead = lab.now_us();
    let mut last = lab.write("ann1").granted().token;
    lab.release("ann1").status();
    lab.set_clock(ahead - back);
    for round in 0..30 {
        let name = format!("x{round}");
        let request = if round % 2 == 0 { Request::write(&name) } else { Request::read(&name) };
        let request = if round % 3 == 0 { request.lease(100) } else { request };
        let token = lab.request(&request).granted().token;
        assert!(token > last, "{token} after {last}");
        last = token;
        lab.release(&name).status();
        let ends = lab.ends().unwrap();
        assert!(
            ends >= last / 1000 + GRACE,
            "a token ahead of the clock is remembered until the clock is there"
        );
    }
    lab.wait_write("ann2").granted();
    lab.wait_write("bob2").queued();
    lab.release("ann2").status();
    assert!(lab.wait_write("bob2").granted().token > last);
    lab.release("bob2").status();
    lab.pass(30_000);
    assert!(lab.write("ann3").granted().token > last);
}

#[test]
fn many_readers_make_a_table() {
    let mut lab = Lab::new();
    for reader in 1..=12 {
        lab.read(&format!("x{reader}")).granted();
        assert_eq!(lab.encoding() == "hashtable", reader > 8, "{reader} readers");
    }
    for reader in 1..=12 {
        lab.release(&format!("x{reader}")).status();
    }
    for reader in 1..=12 {
        lab.read(&format!("y{reader}")).granted();
    }
}

#[test]
fn dead_readers_are_swept_a_few_at_a_time() {
    let mut lab = Lab::new();
    for reader in 0..1_000 {
        lab.checked = reader % 100 == 0;
        lab.request(&Request::read(&format!("x{reader}")).lease(1_000)).granted();
    }
    lab.request(&Request::read("alive1").lease(3_000)).granted();
    lab.pass(1_000);
    let mut left = lab.state().number("readers");
    let queued = lab.wait_write("ann1").unwrap();
    assert_eq!((queued.status.as_str(), queued.more), ("queued", false), "one of them lives");
    let mut calls = 1;
    while lab.state().number("readers") > 1 {
        let answer = lab.grant_waiters().unwrap();
        let now_left = lab.state().number("readers");
        assert!((1..=16).contains(&(left - now_left)) || calls == 1, "{left} to {now_left}");
        assert!(answer.more || now_left == 1);
        left = now_left;
        calls += 1;
    }
    assert!((60..=66).contains(&calls), "{calls}");
    assert_eq!(lab.wait_write("ann1").status(), "queued", "one of them lives");
    lab.pass(2_000);
    lab.wait_write("ann1").granted();
}

#[test]
fn the_dead_cost_the_living_readers_little() {
    let mut lab = Lab::new();
    for reader in 0..200 {
        lab.request(&Request::read(&format!("x{reader}")).lease(1_000)).granted();
    }
    lab.pass(1_000);
    let mut left = 200;
    let mut reader = 0;
    while lab.state().readers.keys().any(|id| id.starts_with("x_")) {
        lab.read(&format!("y{reader}")).granted();
        let now_left = lab.state().readers.keys().filter(|id| id.starts_with("x_")).count();
        assert!(left - now_left <= 2, "a reader that nobody blocks looks at two");
        left = now_left;
        reader += 1;
        assert!(reader < 200);
    }
}

#[test]
fn a_clock_that_goes_back_lets_nobody_in() {
    let mut lab = Lab::after("read/1000 ann1");
    for reader in 0..30 {
        lab.request(&Request::read(&format!("x{reader}")).lease(1_000)).granted();
    }
    lab.pass(1_000);
    lab.wait_write("cat1").status();
    let ahead = lab.now_us();
    lab.set_clock(ahead - 900_000);
    lab.release("cat1").status();
    lab.request(&Request::read("bob1").lease(300)).granted();
    lab.set_clock(ahead - 500_000);
    lab.grant_all();
    assert_eq!(lab.write("dan1").status(), "busy");
    lab.set_clock(ahead);
    lab.grant_all();
    lab.write("dan1").granted();
}

/// The fields of a lock without holders and waiters, after rare histories. (After each call of each
/// test, `state.rs` checks which fields may exist. The table of shapes has the common histories.)
#[test]
fn an_idle_lock_has_these_fields_and_no_more() {
    let left = |more: &[&str], way: &dyn Fn(&mut Lab)| {
        let mut lab = Lab::new();
        way(&mut lab);
        let (shape, beside) = lab.shape();
        let beside: Vec<&str> = beside.iter().map(String::as_str).collect();
        assert_eq!((shape.as_str(), beside.as_slice()), ("F", more));
    };
    let read = |lab: &mut Lab, readers: u32, lease: u64| {
        for number in 0..readers {
            lab.request(&Request::read(&format!("x{number}")).lease(lease)).granted();
        }
    };
    left(&["pad"], &|lab| {
        read(lab, 9, 10_000);
        (0..9).for_each(|number| assert!(lab.release(&format!("x{number}")).is_ok()));
    });
    for way in [
        "write ann, wait_read bob, release ann, release bob",
        // The grant of bob lapses.
        "write ann, wait_write bob, wait_write cat, release ann, pass 1000, grant_waiters, renew cat, \
         release cat",
        "read ann, wait_write bob, revoke, pass 10000, grant_waiters",
    ] {
        left(&[], &|lab| follow(lab, way));
    }
    left(&["pad"], &|lab| {
        read(lab, 30, 1_000);
        lab.pass(1_000);
        // They block nobody, so each call checks only two of them.
        (0..15).for_each(|_| assert_eq!(lab.grant_waiters().status(), "done"));
    });
    left(&["pad"], &|lab| {
        read(lab, 30, 10_000);
        lab.force().unwrap();
        lab.grant_all();
    });
}

/// A lease is over at its deadline for every call, and not a millisecond earlier.
#[test]
fn a_lease_is_over_at_its_deadline() {
    const WRITE: &[(&str, &str)] = &[
        ("holds ann", "writes"),
        ("renew ann", "renewed"),
        ("downgrade ann", "granted"),
        ("accept_transfer ann", "granted"),
        ("confirm ann", "raised"),
    ];
    const READ: &[(&str, &str)] = &[
        ("holds ann", "reads"),
        ("renew ann", "renewed"),
        ("accept_transfer ann", "granted"),
        ("confirm ann", "raised"),
    ];
    let alone = [READ, &[("upgrade ann", "granted")]].concat();
    for (from, calls) in [
        ("write ann", WRITE),
        ("write ann, wait_write cat", WRITE),
        ("read ann", &alone[..]),
        ("read ann, read bob", READ),
        ("read ann, wait_write cat", &alone),
    ] {
        for (call, held) in calls {
            let said = [9_999, 10_000].map(|ms| {
                let mut lab = Lab::new();
                follow(&mut lab, from);
                lab.pass(ms);
                let answer = match *call {
                    "accept_transfer ann" => {
                        let token = lab.token_of("ann");
                        lab.accept_transfer("ann", &from[..1], token, "eve")
                    }
                    call => make(&mut lab, call),
                };
                status(&answer).to_owned()
            });
            assert_eq!(said, [*held, "not_held"], "{call} after {from}");
        }
    }
}
