//! A release that names a time: a write stands until then.

use super::fixture::{Expect, GRACE, Lab, id};
use super::request::Request;

#[test]
fn release_until_a_time_sets_the_end_of_the_write_and_nothing_extends_it() {
    for ahead in [2_000, 60_000] {
        let mut lab = Lab::new();
        let ann = lab.write("ann1").granted();
        let until = lab.now() + ahead;
        let kept = lab.twice(|lab| lab.release_until("ann1", until)).unwrap();
        assert_eq!(kept.status, "kept");
        assert_eq!((kept.number(0), kept.number(1)), (ann.token, until));
        assert!(lab.ends().unwrap() >= until + GRACE);
        let late = lab.unchanged(|lab| lab.renew("ann1", 90_000)).unwrap();
        assert_eq!((late.status.as_str(), late.number(1)), ("revoked", until));
        lab.pass(ahead - 1);
        assert_eq!(lab.write("bob1").status(), "busy");
        lab.pass(1);
        let bob = lab.write("bob1").granted();
        assert!(bob.token > ann.token);
        assert_eq!(lab.renew("bob1", 60_000).status(), "renewed", "a later writer is not revoked");
    }
}

#[test]
fn release_until_a_time_grants_the_waiters_when_it_has_come() {
    let mut lab = Lab::after("write ann1, wait_write bob1");
    let until = lab.now() + 500;
    assert_eq!(lab.twice(|lab| lab.release_until("ann1", until)).status(), "kept");
    lab.run("pass 499, wait_write bob1, pass 1");
    lab.wait_write("bob1").granted();
}

#[test]
fn release_until_a_past_time_or_of_no_write_is_a_release() {
    let mut lab = Lab::after("write ann1");
    let now = lab.now();
    assert_eq!(lab.release_until("ann1", now).status(), "released");
    let until = lab.now() + 500;
    assert_eq!(lab.unchanged(|lab| lab.release_until("ann1", until)).status(), "not_found");
    lab.read("ann1").granted();
    assert_eq!(lab.release_until("ann1", until).status(), "released");
    lab.write("ann1").granted();
    lab.wait_write("bob1").queued();
    assert_eq!(lab.release_until("bob1", until).status(), "left_queue");
    lab.pass(10_000);
    let until = lab.now() + 500;
    assert_eq!(lab.release_until("ann1", until).status(), "released", "its lease is over");
    lab.write("bob1").granted();
}

#[test]
fn release_until_a_time_of_a_revoked_write_makes_it_no_longer() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.revoke().unwrap();
    assert_eq!(lab.release_until("ann1", ann.deadline + 1).unwrap().number(1), ann.deadline);
    let sooner = lab.now() + 500;
    assert_eq!(lab.release_until("ann1", sooner).unwrap().number(1), sooner);
}

#[test]
fn release_until_a_time_claims_a_grant_and_ends_the_caching() {
    let mut lab = Lab::after("write ann1, wait_write bob1, release ann1");
    let until = lab.now() + 500;
    assert_eq!(lab.release_until("bob1", until).status(), "kept");
    assert!(lab.state().writer.unwrap().is_claimed());
    lab.pass(500);
    lab.request(&Request::write("cat1").cached(1)).granted();
    let until = lab.now() + 500;
    assert_eq!(lab.release_until("cat1", until).status(), "kept");
    assert_eq!(lab.state().writer.map(|it| (it.id, it.state)), Some((id("cat1"), 'b')));
    assert_eq!(lab.write("dan1").status(), "busy", "it is not recalled");
}

#[test]
fn release_until_a_time_too_far_ahead_is_refused() {
    let mut lab = Lab::after("write ann1");
    let far = lab.now() + 1_000_000_000_001;
    lab.unchanged(|lab| lab.release_until("ann1", far)).refused_with("LOCKARGS");
}
