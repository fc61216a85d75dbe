//! Handing on a held lock: `take_up`. The new acquisition replaces the old one and holds what it
//! held.

use super::lab::{Answer, Expect, HERE, Lab, TAG, id};
use super::request::Request;

fn args(from: &str, mode: &str, token: u64, taker: &str) -> Vec<String> {
    let token = token.to_string();
    [HERE, "0", &id(taker), "10000", mode, &id(from), &token].map(String::from).into()
}

fn twice(lab: &mut Lab, args: &[String]) -> Answer {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    lab.twice("take_up", &args)
}

#[test]
fn a_write_is_taken_up_once() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.pass(100);
    let taken = twice(&mut lab, &args("ann1", "w", ann.token, "bob1")).granted();
    assert_eq!((taken.token, taken.deadline), (ann.token, lab.now() + 10_000));
    assert_eq!(lab.state().writes(), Some(id("bob1")));
    let again = lab.unchanged(|lab| lab.take_up("ann1", "w", ann.token, "cat1"));
    assert_eq!(again.status(), "lost");
    // Late calls of the old acquisition find nothing.
    assert_eq!(lab.unchanged(|lab| lab.renew("ann1", 90_000)).status(), "lost");
    assert_eq!(lab.unchanged(|lab| lab.release("ann1")).status(), "absent");
    assert_eq!(lab.unchanged(|lab| lab.downgrade("ann1", ann.token, 1_000)).status(), "lost");
    assert_eq!(lab.renew("bob1", 20_000).status(), "renewed");
    // The lease can be handed on again.
    lab.take_up("bob1", "w", ann.token, "cat1").granted();
    assert_eq!(lab.unchanged(|lab| lab.release("bob1")).status(), "absent");
    assert_eq!(lab.release("cat1").status(), "released");
    let next = lab.write("dan1").granted();
    assert!(next.token > ann.token);
}

#[test]
fn a_read_is_taken_up_at_its_place() {
    for others in [0, 1, 8, 20] {
        for at in [0, others / 2, others] {
            let mut lab = Lab::new();
            for other in 0..others {
                if other == at {
                    lab.read("ann1").granted();
                }
                lab.read(&format!("x{other}")).granted();
            }
            let ann = lab.read("ann1").granted();
            let index = lab.state().reader(&id("ann1")).unwrap().rest;
            let taken = twice(&mut lab, &args("ann1", "r", ann.token, "bob1")).granted();
            assert_eq!(taken.token, ann.token);
            let state = lab.state();
            assert_eq!(state.reader(&id("bob1")).unwrap().rest, index);
            assert_eq!(state.reader(&id("ann1")), None);
            assert_eq!(state.reads().len(), others + 1);
            let again = lab.unchanged(|lab| lab.take_up("ann1", "r", ann.token, "cat1"));
            assert_eq!(again.status(), "lost");
            assert_eq!(lab.release("bob1").status(), "released");
            assert_eq!(lab.state().reads().len(), others);
        }
    }
}

#[test]
fn a_forged_ticket_is_refused() {
    for read in [false, true] {
        let mut lab = Lab::new();
        let request = if read { Request::read("ann1") } else { Request::write("ann1") };
        let (mode, other) = if read { ("r", "w") } else { ("w", "r") };
        let token = lab.request(&request).granted().token;
        for (from, mode, token) in [
            ("bob1", mode, token),
            ("ann1", other, token),
            ("ann1", mode, token - 1),
            ("ann1", mode, token + 1),
        ] {
            let answer = lab.unchanged(|lab| lab.take_up(from, mode, token, "eve1"));
            assert_eq!(answer.status(), "lost", "{from} {mode} {token}");
        }
        lab.take_up("ann1", mode, token, "eve1").granted();
    }
}

#[test]
fn a_late_ticket_is_refused() {
    for read in [false, true] {
        let mut lab = Lab::new();
        let request = if read { Request::read("ann1") } else { Request::write("ann1") };
        let mode = if read { "r" } else { "w" };
        let ann = lab.request(&request).granted();
        lab.pass(9_999);
        lab.wait_write("w1").queued();
        lab.pass(1);
        assert_eq!(lab.take_up("ann1", mode, ann.token, "eve1").status(), "lost");
        assert_eq!(lab.state().writes(), Some(id("w1")), "and lets the next one in");
    }
}

#[test]
fn a_ticket_that_was_taken_by_force_is_refused() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.wait_write("w1").queued();
    lab.force().status();
    assert_eq!(lab.take_up("ann1", "r", ann.token, "eve1").status(), "lost");
    assert_eq!(lab.state().writes(), Some(id("w1")));
}

/// The old acquisition could not extend the lease either. The next renewal returns the reason.
#[test]
fn a_revoked_lease_is_taken_up_and_keeps_its_deadline() {
    for read in [false, true] {
        let mut lab = Lab::new();
        let request = if read { Request::read("ann1") } else { Request::write("ann1") };
        let ann = lab.request(&request).granted();
        lab.revoke().status();
        lab.pass(100);
        let mode = if read { "r" } else { "w" };
        assert_eq!(twice(&mut lab, &args("ann1", mode, ann.token, "bob1")).granted(), ann);
        assert_eq!(lab.renew("bob1", 20_000).status(), "revoked");
    }
}

#[test]
fn a_lease_is_never_shortened() {
    let mut lab = Lab::new();
    let ann = lab.request(&Request::write("ann1").lease(50_000)).granted();
    assert_eq!(lab.take_up("ann1", "w", ann.token, "bob1").granted(), ann);
}

#[test]
fn transfer_leaves_the_queue_unchanged() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.wait_read("r1").queued();
    lab.wait_write("w1").queued();
    let before = lab.state().waiters();
    lab.take_up("ann1", "w", ann.token, "bob1").granted();
    assert_eq!(lab.state().waiters(), before);
    lab.release("bob1").status();
    assert_eq!(lab.state().reads().into_iter().collect::<Vec<_>>(), [id("r1")]);
}

#[test]
fn transfer_of_an_unclaimed_grant_claims_it() {
    for read in [false, true] {
        let mut lab = Lab::new();
        lab.write("bob1").granted();
        let waits = if read { Request::read("ann1") } else { Request::write("ann1") };
        lab.request(&waits.waiting()).queued();
        lab.release("bob1").unwrap();
        let (token, mode) = (lab.token_of("ann1"), if read { "r" } else { "w" });
        let taken = lab.take_up("ann1", mode, token, "cat1").granted();
        assert_eq!((taken.token, taken.deadline), (token, lab.now() + 10_000));
        let state = lab.state();
        let record = state.writer().or_else(|| state.reader(&id("cat1"))).unwrap();
        assert!(record.claimed);
    }
}

/// Its client has nothing more to do with the lock, and would not poll.
#[test]
fn a_wait_for_an_upgrade_ends() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.read("bob1").granted();
    lab.wait_upgrade("ann1", ann.token).queued();
    lab.wait_read("cat1").queued();
    twice(&mut lab, &args("ann1", "r", ann.token, "eve1")).granted();
    assert_eq!(lab.state().waiters().len(), 0);
    let reads: Vec<String> = lab.state().reads().into_iter().collect();
    assert_eq!(reads, ["bob1", "cat1", "eve1"].map(id));
    assert_eq!(lab.unchanged(|lab| lab.wait_upgrade("ann1", ann.token)).status(), "lost");
    lab.release("bob1").status();
    lab.release("cat1").status();
    lab.upgrade("eve1", ann.token).granted();
}

#[test]
fn a_cached_lease_is_not_handed_on() {
    for (cached, mode) in [(Request::write("ann1"), "w"), (Request::read("ann1"), "r")] {
        let mut lab = Lab::new();
        let token = lab.request(&cached.cached(1)).granted().token;
        let answer = lab.unchanged(|lab| lab.take_up("ann1", mode, token, "bob1"));
        assert_eq!(answer.status(), "lost");
        assert_eq!(lab.renew("ann1", 10_000).status(), "renewed"); // it is in use from here on
        let answer = lab.unchanged(|lab| lab.take_up("ann1", mode, token, "bob1"));
        assert_eq!(answer.status(), "lost");
    }
}

/// One acquisition never has two leases, nor a lease and a place in the queue.
#[test]
fn transfer_to_a_holding_or_queued_id_returns_lost() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.read("bob1").granted();
    let answer = lab.unchanged(|lab| lab.take_up("ann1", "r", ann.token, "bob1"));
    assert_eq!(answer.status(), "lost");
    lab.wait_write("cat1").queued();
    let answer = lab.unchanged(|lab| lab.take_up("ann1", "r", ann.token, "cat1"));
    assert_eq!(answer.status(), "lost");
    // If it takes up its own hold, it gets what it has.
    assert_eq!(lab.unchanged(|lab| lab.take_up("ann1", "r", ann.token, "ann1")).granted(), ann);

    let mut lab = Lab::new();
    lab.write("bob1").granted();
    lab.wait_write("ann1").queued();
    let answer = lab.unchanged(|lab| lab.take_up("ann1", "w", 1, "bob1"));
    assert_eq!(answer.status(), "lost");
}

/// Both for a replay and for a refusal: the script writes what it tells a holder, so that replicas
/// confirm it.
#[test]
fn transfer_of_a_lease_is_rewritten_when_repeated() {
    for (request, mode) in [(Request::read("ann1"), "r"), (Request::write("ann1"), "w")] {
        for others in [0, 3] {
            let server = super::lab::start("");
            let mut lab = Lab::on(&server);
            let token = lab.request(&request).granted().token;
            for other in 0..others {
                let other = format!("x{other}");
                let beside =
                    if mode == "r" { Request::read(&other) } else { Request::write(&other) };
                lab.request(&beside.waiting()).unwrap();
            }
            lab.watched = true;
            for _ in 0..2 {
                lab.take_up("ann1", mode, token, "bob1").granted();
                assert!(lab.moved, "{mode} beside {others}");
            }
            assert_eq!(lab.take_up("ann1", mode, token, "cat1").status(), "lost");
            assert!(!lab.moved, "{mode} beside {others}");
        }
    }
}

#[test]
fn the_reader_that_a_sweep_looks_at_next_may_be_taken_up() {
    let mut lab = Lab::new();
    let mut token = 0;
    for reader in 0..60 {
        let name = format!("x{reader}");
        let lease = if reader == 20 { 60_000 } else { 1_000 };
        let held = lab.request(&Request::read(&name).lease(lease)).granted();
        token = if reader == 20 { held.token } else { token };
    }
    lab.wait_write("w1").queued();
    lab.pass(1_000);
    let args: Vec<String> = args("x20", "r", token, "eve1");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    lab.send("take_up", &args).granted();
    lab.pump_dry();
    let reads: Vec<String> = lab.state().reads().into_iter().collect();
    assert_eq!(reads, [id("eve1")]);
    lab.send("pump", &[HERE, TAG]).unwrap();
    assert_eq!(lab.release("eve1").status(), "released");
    assert_eq!(lab.state().writes(), Some(id("w1")));
}
