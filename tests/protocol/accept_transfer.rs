//! Handing on a held lock: `accept_transfer`. The new acquisition replaces the old one and holds
//! what it held.

use super::fixture::{Expect, Lab, id, start};
use super::request::Request;

/// A try to acquire in each mode, with the name of the mode.
type Build = fn(&str) -> Request;
const TRIES: [(Build, &str); 2] = [(Request::read, "r"), (Request::write, "w")];

#[test]
fn a_write_is_taken_up_once() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.pass(100);
    let taken = lab.twice(|lab| lab.accept_transfer("ann1", "w", ann.token, "bob1")).granted();
    assert_eq!((taken.token, taken.deadline), (ann.token, lab.now() + 10_000));
    assert_eq!(lab.state().writes(), Some(id("bob1")));
    let again = lab.unchanged(|lab| lab.accept_transfer("ann1", "w", ann.token, "cat1"));
    assert_eq!(again.status(), "not_held");
    // Late calls of the old acquisition find nothing.
    assert_eq!(lab.unchanged(|lab| lab.renew("ann1", 90_000)).status(), "not_held");
    assert_eq!(lab.unchanged(|lab| lab.release("ann1")).status(), "not_found");
    assert_eq!(lab.unchanged(|lab| lab.downgrade("ann1", ann.token, 1_000)).status(), "not_held");
    assert_eq!(lab.renew("bob1", 20_000).status(), "renewed");
    // The lease can be handed on again.
    lab.accept_transfer("bob1", "w", ann.token, "cat1").granted();
    assert_eq!(lab.unchanged(|lab| lab.release("bob1")).status(), "not_found");
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
            let index = lab.state().record(&id("ann1")).unwrap().index;
            let taken =
                lab.twice(|lab| lab.accept_transfer("ann1", "r", ann.token, "bob1")).granted();
            assert_eq!(taken.token, ann.token);
            let state = lab.state();
            assert_eq!(state.record(&id("bob1")).unwrap().index, index);
            assert_eq!(state.record(&id("ann1")), None);
            assert_eq!(state.reads().len(), others + 1);
            let again = lab.unchanged(|lab| lab.accept_transfer("ann1", "r", ann.token, "cat1"));
            assert_eq!(again.status(), "not_held");
            assert_eq!(lab.release("bob1").status(), "released");
            assert_eq!(lab.state().reads().len(), others);
        }
    }
}

#[test]
fn a_forged_ticket_is_refused() {
    for (request, mode) in TRIES {
        let mut lab = Lab::new();
        let other = if mode == "r" { "w" } else { "r" };
        let token = lab.request(&request("ann1")).granted().token;
        for (from, mode, token) in [
            ("bob1", mode, token),
            ("ann1", other, token),
            ("ann1", mode, token - 1),
            ("ann1", mode, token + 1),
        ] {
            let answer = lab.unchanged(|lab| lab.accept_transfer(from, mode, token, "eve1"));
            assert_eq!(answer.status(), "not_held", "{from} {mode} {token}");
        }
        lab.accept_transfer("ann1", mode, token, "eve1").granted();
    }
}

#[test]
fn a_ticket_that_was_taken_by_force_is_refused() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.wait_write("w1").queued();
    lab.force().status();
    assert_eq!(lab.accept_transfer("ann1", "r", ann.token, "eve1").status(), "not_held");
    assert_eq!(lab.state().writes(), Some(id("w1")));
}

/// The old acquisition could not extend the lease either. The next renewal returns the reason.
#[test]
fn a_revoked_lease_is_taken_up_and_keeps_its_deadline() {
    for (request, mode) in TRIES {
        let mut lab = Lab::new();
        let ann = lab.request(&request("ann1")).granted();
        lab.revoke().status();
        lab.pass(100);
        assert_eq!(
            lab.twice(|lab| lab.accept_transfer("ann1", mode, ann.token, "bob1")).granted(),
            ann
        );
        assert_eq!(lab.renew("bob1", 20_000).status(), "revoked");
    }
}

#[test]
fn transfer_leaves_the_queue_unchanged() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.wait_read("r1").queued();
    lab.wait_write("w1").queued();
    let before = lab.state().waiters;
    lab.accept_transfer("ann1", "w", ann.token, "bob1").granted();
    assert_eq!(lab.state().waiters, before);
    lab.release("bob1").status();
    assert_eq!(lab.state().reads(), [id("r1")].into());
}

#[test]
fn transfer_of_an_unclaimed_grant_claims_it() {
    for (request, mode) in TRIES {
        let mut lab = Lab::after("write bob1");
        lab.request(&request("ann1").waiting()).queued();
        lab.release("bob1").unwrap();
        let token = lab.token_of("ann1");
        let taken = lab.accept_transfer("ann1", mode, token, "cat1").granted();
        assert_eq!((taken.token, taken.deadline), (token, lab.now() + 10_000));
        let state = lab.state();
        let record = state.record(&id("cat1")).unwrap();
        assert!(record.is_claimed());
    }
}

/// Its client has nothing more to do with the lock, and would not poll.
#[test]
fn a_wait_for_an_upgrade_ends() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.run("read bob1, wait_upgrade ann1, wait_read cat1");
    lab.twice(|lab| lab.accept_transfer("ann1", "r", ann.token, "eve1")).granted();
    assert_eq!(lab.state().waiters.len(), 0);
    assert_eq!(lab.state().reads(), ["bob1", "cat1", "eve1"].map(id).into());
    assert_eq!(lab.unchanged(|lab| lab.wait_upgrade("ann1", ann.token)).status(), "not_held");
    lab.release("bob1").status();
    lab.release("cat1").status();
    lab.upgrade("eve1", ann.token).granted();
}

/// One acquisition never has two leases, nor a lease and a place in the queue.
#[test]
fn transfer_to_a_holding_or_queued_id_returns_lost() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.read("bob1").granted();
    let answer = lab.unchanged(|lab| lab.accept_transfer("ann1", "r", ann.token, "bob1"));
    assert_eq!(answer.status(), "not_held");
    lab.wait_write("cat1").queued();
    let answer = lab.unchanged(|lab| lab.accept_transfer("ann1", "r", ann.token, "cat1"));
    assert_eq!(answer.status(), "not_held");
    // If it takes up its own hold, it gets what it has.
    assert_eq!(
        lab.unchanged(|lab| lab.accept_transfer("ann1", "r", ann.token, "ann1")).granted(),
        ann
    );

    let mut lab = Lab::after("write bob1, wait_write ann1");
    let answer = lab.unchanged(|lab| lab.accept_transfer("ann1", "w", 1, "bob1"));
    assert_eq!(answer.status(), "not_held");
}

/// Both for a replay and for a refusal: the script writes what it tells a holder, so that replicas
/// confirm it.
#[test]
fn transfer_of_a_lease_is_rewritten_when_repeated() {
    for (request, mode) in TRIES {
        for others in [0, 3] {
            let server = start("");
            let mut lab = Lab::on(&server);
            let token = lab.request(&request("ann1")).granted().token;
            for other in 0..others {
                lab.request(&request(&format!("x{other}")).waiting()).unwrap();
            }
            lab.watched = true;
            for _ in 0..2 {
                lab.accept_transfer("ann1", mode, token, "bob1").granted();
                assert!(lab.moved, "{mode} beside {others}");
            }
            assert_eq!(lab.accept_transfer("ann1", mode, token, "cat1").status(), "not_held");
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
    lab.accept_transfer("x20", "r", token, "eve1").granted();
    lab.grant_all();
    assert_eq!(lab.state().reads(), [id("eve1")].into());
    lab.grant_waiters().unwrap();
    assert_eq!(lab.release("eve1").status(), "released");
    assert_eq!(lab.state().writes(), Some(id("w1")));
}
