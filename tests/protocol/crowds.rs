//! Many holders. Once the first end that was known of them has passed, a call looks at a few of
//! them for dead ones. What a call costs does not depend on how many of them live.

use super::fixture::{Answer, Expect, HERE, Lab, TAG, id};
use super::request::Request;

/// How long the first lease was to last, and the others.
const FIRST: u64 = 1_000;
const LEASE: u64 = 60_000;

/// How many holders one call looks at.
const LOOKS: u64 = 16;

/// Readers that live, of which one has renewed a lease that would have ended by now.
fn living_readers(count: usize) -> Lab {
    let mut lab = Lab::new();
    lab.checked = false;
    for number in 0..count {
        let lease = if number == 0 { FIRST } else { LEASE };
        lab.request(&Request::read(&format!("r{number}")).lease(lease)).granted();
    }
    lab.renew("r0", LEASE).unwrap();
    lab.pass(FIRST);
    lab
}

/// The calls of a try until it is decided, as a client makes them.
fn calls_of_a_try(lab: &mut Lab, request: &Request) -> (String, u32) {
    (1..)
        .find_map(|calls| {
            let reply = lab.request(request).unwrap();
            (!reply.more).then_some((reply.status, calls))
        })
        .unwrap()
}

#[test]
fn try_write_beside_many_living_readers_takes_one_call() {
    for count in [20, 1_000, 10_000] {
        let mut lab = living_readers(count);
        for _ in 0..3 {
            let refused = calls_of_a_try(&mut lab, &Request::write("w1"));
            assert_eq!(refused, ("busy".into(), 1), "beside {count}");
        }
    }
}

#[test]
fn try_upgrade_beside_many_living_readers_takes_one_call() {
    let mut lab = living_readers(1_000);
    // The first one that a call looks at, and the last one.
    for name in ["r999", "r0"] {
        let token = lab.token_of(name);
        let refused = calls_of_a_try(&mut lab, &Request::upgrade(name, token));
        assert_eq!(refused, ("busy".into(), 1), "{name}");
    }
}

#[test]
fn waiting_writer_beside_many_living_readers_leaves_nothing_over() {
    let mut lab = living_readers(1_000);
    for _ in 0..3 {
        assert!(!lab.wait_write("w1").unwrap().more);
        assert!(!lab.grant_waiters().unwrap().more);
    }
}

/// The polls of a waiting writer correct the bound that the readers' ends have.
#[test]
fn polls_beside_living_readers_come_to_an_end_of_the_array() {
    let mut lab = living_readers(1_000);
    let polls = 1_000_u64.div_ceil(LOOKS);
    for _ in 0..polls {
        lab.wait_write("w1").unwrap();
    }
    let ends = lab.now() - FIRST + LEASE;
    assert!(lab.state().number("read_min") >= ends, "{:?}", lab.state().fields.get("read_min"));
}

/// Dead readers are swept away by the calls of one try, or of one waiter, even with a living one
/// among them that goes last.
#[test]
fn writer_among_dead_readers_is_granted_when_the_last_living_one_goes() {
    for waits in [false, true] {
        for living in [0, 500, 999] {
            let mut lab = Lab::new();
            lab.checked = false;
            for number in 0..1_000 {
                let lease = if number == living { LEASE } else { FIRST };
                lab.request(&Request::read(&format!("r{number}")).lease(lease)).granted();
            }
            lab.pass(FIRST);
            let request = Request::write("w1");
            let request = if waits { request.waiting() } else { request };
            let (status, calls) = calls_of_a_try(&mut lab, &request);
            assert_eq!(status, if waits { "queued" } else { "busy" });
            assert!(calls <= 64, "{calls}");
            lab.release(&format!("r{living}")).unwrap();
            lab.grant_all();
            let (status, _) = calls_of_a_try(&mut lab, &request);
            assert_eq!(status, "granted", "{living}");
        }
    }
}

/// Takes one of so many permits, or waits for it.
fn take(lab: &mut Lab, name: &str, lease: u64, limit: u64, waits: bool) -> Answer {
    let (id, lease, limit) = (id(name), lease.to_string(), limit.to_string());
    let args = [HERE, "0", &id, &lease, "1", &limit, TAG, "1000 5000 1000 -"];
    lab.send("semaphore/acquire", &args[..if waits { 8 } else { 7 }])
}

/// A semaphore of which each holder has one permit. The lease of one of them has ended, or would
/// have without its renewal.
fn holders(count: u64, first: u64, renews: bool) -> Lab {
    let mut lab = Lab::new();
    lab.checked = false;
    for number in 0..count {
        let lease = if number == first { FIRST } else { LEASE };
        let held = take(&mut lab, &format!("r{number}"), lease, count, false).granted();
        if number == first && renews {
            let (lease, token) = (LEASE.to_string(), held.token.to_string());
            let renew = [HERE, &id(&format!("r{number}")), &lease, "1", &token];
            lab.send("semaphore/renew", &renew).unwrap();
        }
    }
    lab.pass(FIRST);
    lab
}

#[test]
fn try_acquire_beside_many_living_holders_takes_one_call() {
    for count in [20, 1_000, 10_000] {
        let mut lab = holders(count, 0, true);
        for _ in 0..3 {
            let refused = take(&mut lab, "x1", 1_000, count, false).unwrap();
            assert_eq!((refused.status.as_str(), refused.more), ("busy", false), "{count}");
        }
    }
}

/// Any of the holders may be dead, and then there is room. So the calls of a waiter go on until all
/// were looked at.
#[test]
fn waiter_is_granted_the_permit_of_a_dead_holder_among_many() {
    for dead in [0, 500, 999] {
        let mut lab = holders(1_000, dead, false);
        let mut more = take(&mut lab, "x1", 1_000, 1_000, true).unwrap().more;
        while more {
            more = lab.send("semaphore/grant_waiters", &[HERE]).unwrap().more;
        }
        take(&mut lab, "x1", 1_000, 1_000, true).granted();
    }
}

/// A try finds it too, by and by: each looks at some more of them.
#[test]
fn tries_find_the_permit_of_a_dead_holder_among_many() {
    let mut lab = holders(1_000, 0, false);
    let mut tries = (1..).map(|_| take(&mut lab, "x1", 1_000, 1_000, false).unwrap().status);
    let needed = tries.position(|status| status == "granted").unwrap() as u64;
    assert!(needed <= 1_000 / LOOKS + 1, "{needed}");
}

/// The living ones that a call has looked at have too many permits: the dead could not make room.
#[test]
fn waiter_for_all_permits_beside_living_holders_leaves_nothing_over() {
    let mut lab = holders(100, 0, true);
    for _ in 0..3 {
        let (id, limit) = (id("x1"), "100");
        let place = "1000 5000 1000 -";
        let all = [HERE, "0", &id, "1000", limit, limit, TAG, place];
        let queued = lab.send("semaphore/acquire", &all).unwrap();
        assert_eq!((queued.status.as_str(), queued.more), ("queued", false));
    }
}

/// Some are dead, and more of them may be behind.
#[test]
fn try_that_finds_dead_holders_is_repeated_until_there_is_room() {
    let mut lab = Lab::new();
    lab.checked = false;
    for number in 0..40 {
        let lease = if number < 10 { LEASE } else { FIRST };
        take(&mut lab, &format!("r{number}"), lease, 40, false).granted();
    }
    lab.pass(FIRST);
    let args = [HERE, "0", &id("x1"), "1000", "30", "40", TAG];
    let refused = lab.send("semaphore/acquire", &args).unwrap();
    assert_eq!((refused.status.as_str(), refused.more), ("busy", true));
    lab.send("semaphore/acquire", &args).granted();
}
