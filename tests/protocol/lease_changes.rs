//! Changing a lease: downgrade, upgrade, revoke, `force_release`. None of them may undo a later
//! one.

use super::fixture::{Answer, Expect, GRACE, Lab, id};
use super::request::Request;

/// How far a raised token may be ahead of the server's clock.
const AHEAD_US: u64 = 60_000_000;

#[test]
fn a_downgrade_keeps_the_token_and_lets_readers_in() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.run("wait_write w1, wait_read r1, pass 100");
    let read = lab.twice(|lab| lab.downgrade("ann1", ann.token, 10_000)).granted();
    assert_eq!((read.token, read.deadline), (ann.token, lab.now() + 10_000));
    assert_eq!(lab.state().reads(), ["ann1", "r1"].map(id).into());
    lab.release("r1").status();
    assert_eq!(lab.state().writes(), None);
    lab.release("ann1").status();
    assert_eq!(lab.state().writes(), Some(id("w1")));
}

/// The mode that it changes, and the change of a holder with a token.
type Change = (fn(&str) -> Request, fn(&mut Lab, &str, u64) -> Answer);

#[test]
fn only_the_holder_of_that_token_downgrades_or_upgrades() {
    let changes: [Change; 3] = [
        (Request::write, |lab, name, token| lab.downgrade(name, token, 1_000)),
        (Request::read, Lab::upgrade),
        (Request::read, Lab::wait_upgrade),
    ];
    for (request, change) in changes {
        let mut lab = Lab::new();
        let held = lab.request(&request("ann1")).granted().token;
        for (name, token) in [("bob1", held), ("ann1", held - 1), ("ann1", held + 1)] {
            assert_eq!(lab.unchanged(|lab| change(lab, name, token)).status(), "not_held");
        }
        lab.pass(10_000);
        assert_eq!(change(&mut lab, "ann1", held).status(), "not_held");
        assert_eq!((lab.state().reads().len(), lab.state().waiters.len()), (0, 0));
    }
}

/// The downgrade names the token of the grant, and so claims the grant.
#[test]
fn a_downgrade_claims_a_readers_grant() {
    let mut lab = Lab::after("write bob1, wait_read ann1, release bob1");
    let token = lab.token_of("ann1");
    assert!(!lab.state().record(&id("ann1")).unwrap().is_claimed());
    let read = lab.downgrade("ann1", token, 30_000).granted();
    assert_eq!((read.token, read.deadline), (token, lab.now() + 30_000));
    assert!(lab.state().record(&id("ann1")).unwrap().is_claimed());
}

/// The server lacks the downgrade that the holder knows of, because a replica that lagged was
/// promoted.
#[test]
fn an_upgrade_whose_downgrade_was_lost_has_a_token_of_its_own() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.pass(100);
    let again = lab.wait_upgrade("ann1", ann.token).granted();
    assert!(again.token > ann.token, "{} after {}", again.token, ann.token);
    assert_eq!(again.deadline, ann.deadline);
    assert_eq!(lab.state().writes(), Some(id("ann1")));
    assert_eq!(lab.unchanged(|lab| lab.wait_upgrade("ann1", ann.token)).granted(), again);
    assert_eq!(lab.downgrade("ann1", ann.token, 10_000).status(), "not_held", "it comes late");
}

#[test]
fn an_upgrade_whose_downgrade_was_lost_is_not_granted_after_a_revocation() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.revoke().status();
    assert_eq!(lab.unchanged(|lab| lab.wait_upgrade("ann1", ann.token)).status(), "revoked");
}

#[test]
fn the_upgrader_goes_before_the_writers_and_lets_no_reader_in() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.read("bob1").granted();
    lab.wait_write("w1").queued();
    let refused = lab.unchanged(|lab| lab.upgrade("ann1", ann.token)).unwrap();
    assert_eq!((refused.status.as_str(), refused.number(0), refused.number(1)), ("busy", 0, 1));
    let queued = lab.wait_upgrade("ann1", ann.token).unwrap();
    assert_eq!((queued.status.as_str(), queued.number(1)), ("queued", 1));
    lab.twice(|lab| lab.wait_upgrade("ann1", ann.token)).queued();
    assert_eq!(lab.read("cat1").status(), "busy");
    assert_eq!(lab.request(&Request::read("cat1").readers_first()).status(), "busy");
    lab.wait_read("cat1").queued();
    assert_eq!(lab.release("w1").status(), "left_queue");
    assert_eq!(
        lab.state().reads().len(),
        2,
        "the upgrader keeps readers out when no writer waits either"
    );
    lab.wait_write("w2").queued();

    lab.pass(200);
    lab.release("bob1").status();
    let granted = lab.state().writer.unwrap();
    assert_eq!((granted.id.clone(), granted.is_claimed()), (id("ann1"), false));
    assert!(granted.token > ann.token);
    assert!(granted.deadline >= ann.deadline, "never shorter than the read was");
    let claimed = lab.twice(|lab| lab.wait_upgrade("ann1", ann.token)).granted();
    assert_eq!((claimed.token, claimed.deadline), (granted.token, lab.now() + 10_000));
    lab.release("ann1").status();
    assert_eq!(lab.state().reads(), [id("cat1")].into());
}

#[test]
fn a_second_upgrader_is_told_of_the_conflict() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    let bob = lab.read("bob1").granted();
    lab.wait_upgrade("ann1", ann.token).queued();
    for upgrade in [Lab::wait_upgrade, Lab::upgrade] {
        let answer = lab.unchanged(|lab| upgrade(lab, "bob1", bob.token)).unwrap();
        assert_eq!((answer.status.as_str(), answer.rest.len()), ("conflict", 0));
    }
    assert_eq!(lab.release("bob1").status(), "released");
    assert_eq!(lab.state().writes(), Some(id("ann1")));
}

/// No call removes the other reader, so nobody grants the upgrade before its poll.
#[test]
fn an_upgrader_that_finds_the_last_reader_dead_waits_no_more() {
    let mut lab = Lab::new();
    let ann = lab.request(&Request::read("ann1").lease(50_000)).granted();
    lab.run("read bob1, wait_upgrade ann1, pass 10000");
    lab.wait_upgrade("ann1", ann.token).granted();
    assert_eq!(lab.state().number("waiters"), 0, "{:?}", lab.state().stored);
}

#[test]
fn the_wait_for_an_upgrade_ends_alone() {
    let mut lab = Lab::after("read ann1, read bob1, wait_upgrade ann1, wait_read cat1");
    assert_eq!(lab.leave_upgrade("ann1").status(), "left_queue");
    assert_eq!(lab.state().reads().len(), 3, "ann still reads, and cat is let in");
    assert_eq!(lab.unchanged(|lab| lab.leave_upgrade("ann1")).status(), "not_found");

    // Too late: the upgrade was granted meanwhile.
    lab.run("wait_upgrade ann1, release cat1, release bob1");
    let writing = lab.unchanged(|lab| lab.leave_upgrade("ann1")).unwrap();
    assert_eq!(writing.status, "upgrade_granted");
    assert_eq!(writing.held().token, lab.state().writer.unwrap().token);
    assert_eq!(lab.release("ann1").status(), "released");
}

#[test]
fn an_upgrader_that_is_gone_stops_nobody() {
    for lease in [3_000, 60_000] {
        let mut lab = Lab::new();
        let ann = lab.request(&Request::read("ann1").lease(lease)).granted();
        lab.run(
            "read/60000 bob1, wait_upgrade ann1, wait_read/60000 cat1, pass 5000, grant_waiters",
        );
        assert_eq!(lab.state().fields.get("upgrader"), None);
        assert!(lab.state().reads().contains(&id("cat1")));
        let expected = if lease > 5_000 { "queued" } else { "not_held" };
        assert_eq!(lab.wait_upgrade("ann1", ann.token).status(), expected);
    }
}

#[test]
fn dead_readers_do_not_stop_an_upgrade() {
    let mut lab = Lab::new();
    let ann = lab.request(&Request::read("ann1").lease(60_000)).granted();
    for reader in 0..50 {
        lab.request(&Request::read(&format!("x{reader}")).lease(1_000)).granted();
    }
    let upgrade = Request::upgrade("ann1", ann.token).waiting().ttl(60_000);
    lab.request(&upgrade).queued();
    lab.pass(1_000);
    lab.grant_all();
    assert_eq!(lab.state().writes(), Some(id("ann1")));
}

#[test]
fn late_duplicate_of_upgrade_or_downgrade_changes_nothing() {
    let mut lab = Lab::new();
    let first = lab.read("ann1").granted();
    let upgrade = |token| Request::upgrade("ann1", token);
    let second = lab.request(&upgrade(first.token)).granted();
    assert_eq!(lab.unchanged(|lab| lab.request(&upgrade(first.token))).granted(), second);
    let read = lab.downgrade("ann1", second.token, 10_000).granted();
    assert_eq!(read.token, second.token);
    assert_eq!(lab.unchanged(|lab| lab.request(&upgrade(first.token))).status(), "not_held");
    assert_eq!(
        lab.unchanged(|lab| lab.request(&upgrade(first.token).waiting())).status(),
        "not_held"
    );
    let third = lab.request(&upgrade(second.token)).granted();
    assert!(third.token > second.token);
    assert_eq!(
        lab.unchanged(|lab| lab.downgrade("ann1", second.token, 10_000)).status(),
        "not_held"
    );
    assert_eq!(lab.state().writes(), Some(id("ann1")));
    assert_eq!(lab.unchanged(|lab| lab.request(&upgrade(second.token))).granted(), third);
    lab.release("ann1").status();
    assert_eq!(
        lab.unchanged(|lab| lab.downgrade("ann1", third.token, 10_000)).status(),
        "not_held"
    );
    assert_eq!(lab.unchanged(|lab| lab.request(&upgrade(third.token))).status(), "not_held");
}

#[test]
fn a_revoked_lease_ends_at_its_deadline() {
    let mut lab = Lab::new();
    assert_eq!(lab.unchanged(|lab| lab.revoke()).status(), "not_locked");
    let ann = lab.write("ann1").granted();
    let revoked = lab.revoke().unwrap();
    assert_eq!(revoked.status, "revoked");
    assert_eq!(
        (revoked.number(0), revoked.number(1), revoked.number(2)),
        (ann.token, 0, ann.deadline)
    );
    lab.pass(100);
    let renewed = lab.unchanged(|lab| lab.renew("ann1", 60_000)).unwrap();
    assert_eq!((renewed.status.as_str(), renewed.held()), ("revoked", ann));
    let read = lab.downgrade("ann1", ann.token, 60_000).granted();
    assert_eq!(read.deadline, ann.deadline, "nor is it made longer that way");
    assert_eq!(lab.upgrade("ann1", ann.token).status(), "revoked");
    let bob = lab.read("bob1").granted();
    assert_eq!(lab.renew("bob1", 60_000).status(), "renewed", "a later holder is not affected");
    assert_eq!(lab.revoke().unwrap().number(0), bob.token);
    assert_eq!(lab.renew("bob1", 90_000).status(), "revoked");
    lab.pass(60_000);
    assert_eq!(lab.write("cat1").status(), "granted");
    assert_eq!(lab.renew("cat1", 60_000).status(), "renewed");
}

/// A renewal finds that a waiting writer is dead, and grants the readers behind it, whatever the
/// renewal's own answer is.
#[test]
fn a_renewal_lets_in_whoever_can_go() {
    for revoked in [false, true] {
        let mut lab = Lab::after("read/60000 ann1, wait_write/1000 cat1, wait_read/60000 dan1");
        if revoked {
            lab.revoke().unwrap();
        }
        lab.pass(1_000);
        lab.renew("ann1", 60_000).unwrap();
        assert!(lab.state().reads().contains(&id("dan1")), "revoked: {revoked}");
    }
}

#[test]
fn a_revoked_grant_is_claimed_but_not_made_longer() {
    for by_renewal in [false, true] {
        let mut lab =
            Lab::after("write ann1, wait_write bob1, wait_write/60000 bob2, release ann1");
        let granted = lab.state().writer.unwrap();
        assert_eq!(lab.revoke().status(), "revoked");
        if by_renewal {
            assert_eq!(lab.renew("bob1", 60_000).status(), "revoked");
        } else {
            assert_eq!(lab.wait_write("bob1").granted().deadline, granted.deadline);
        }
        let claimed = lab.state().writer.unwrap();
        assert_eq!((claimed.is_claimed(), claimed.deadline), (true, granted.deadline));
        lab.pass(1_000);
        lab.grant_waiters().unwrap();
        assert_eq!(lab.state().writes(), Some(id("bob2")), "it is no lapse");
    }
}

#[test]
fn a_revoked_reader_waits_for_no_upgrade() {
    let mut lab = Lab::new();
    let ann = lab.read("ann1").granted();
    lab.run("read bob1, wait_upgrade ann1, wait_read cat1");
    assert_eq!(lab.revoke().status(), "revoked");
    assert!(lab.state().reads().contains(&id("cat1")), "its wait has ended");
    assert_eq!(lab.wait_upgrade("ann1", ann.token).status(), "revoked");
    assert_eq!(lab.state().waiters.len(), 0);
    lab.release("bob1").unwrap();
    lab.release("cat1").unwrap();
    assert_eq!(lab.state().writes(), None);
    assert_eq!(lab.wait_upgrade("ann1", ann.token).status(), "revoked");
}

#[test]
fn a_forced_release_frees_at_once_under_a_new_token() {
    let mut lab = Lab::new();
    assert_eq!(lab.unchanged(|lab| lab.force()).status(), "not_locked");
    let ann = lab.write("ann1").granted();
    lab.wait_write("bob1").queued();
    let forced = lab.force().unwrap();
    assert_eq!(forced.status, "forced");
    assert!(forced.number(0) > ann.token);
    assert_eq!((forced.text(1), forced.number(2)), (id("ann1"), 0));
    assert_eq!(lab.state().writes(), Some(id("bob1")));
    assert!(lab.state().writer.unwrap().token > forced.number(0));
    assert_eq!(lab.renew("ann1", 1_000).status(), "not_held");
    assert_eq!(lab.release("ann1").status(), "not_found");
}

#[test]
fn a_forced_release_of_many_readers() {
    let mut lab = Lab::new();
    let mut last = 0;
    for reader in 0..100 {
        last = lab.read(&format!("x{reader}")).granted().token;
    }
    lab.wait_write("w1").queued();
    let token = lab.state().record(&id("x7")).unwrap().token;
    lab.wait_upgrade("x7", token).queued();
    let forced = lab.force().unwrap();
    assert!(forced.more);
    assert_eq!((forced.text(1), forced.number(2)), ("-".into(), 100));
    assert!(forced.number(0) > last);
    assert_eq!(lab.state().reads().len(), 0, "all at once");
    for reader in [0, 50, 99] {
        let name = format!("x{reader}");
        assert_eq!(lab.renew(&name, 1_000).status(), "not_held");
        assert_eq!(lab.upgrade(&name, last).status(), "not_held");
        assert!(lab.inspect().unwrap().list(6).is_empty());
        assert_ne!(lab.release(&name).status(), "released");
    }
    lab.grant_all();
    assert_eq!(lab.state().writes(), Some(id("w1")));
    lab.release("w1").status();
    let again = lab.read("x0").granted();
    assert!(again.token > forced.number(0));
}

#[test]
fn force_release_and_revoke_up_to_a_token_spare_later_leases() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.force().unwrap();
    let bob = lab.write("bob1").granted();
    assert_eq!(lab.unchanged(|lab| lab.force_up_to(ann.token)).status(), "not_locked");
    assert_eq!(lab.unchanged(|lab| lab.revoke_up_to(ann.token)).status(), "not_locked");
    assert_eq!(lab.renew("bob1", 60_000).status(), "renewed");
    let read = lab.downgrade("bob1", bob.token, 60_000).granted();
    lab.read("cat1").granted();
    let forced = lab.force_up_to(read.token).unwrap();
    assert_eq!((forced.status.as_str(), forced.number(2)), ("forced", 2));
    assert_eq!(lab.state().reads(), [id("cat1")].into(), "she has a newer token");
    lab.revoke_up_to(read.token).unwrap();
    assert_eq!(lab.renew("cat1", 60_000).status(), "renewed");
    assert_eq!(lab.force_up_to(read.token).status(), "not_locked");
    // A token from the future does not affect later holders.
    lab.revoke_up_to(u64::pow(2, 53)).unwrap();
    assert_eq!(lab.renew("cat1", 60_000).status(), "revoked");
    // A call that comes late lowers no bound.
    lab.revoke_up_to(read.token).unwrap();
    assert_eq!(lab.renew("cat1", 60_000).status(), "revoked");
    let dan = lab.read("dan1").granted();
    assert_eq!(lab.renew("dan1", 60_000).status(), "renewed");
    assert!(dan.token > read.token);
}

/// A sweep that has begun has passed some of them as living readers, and does not check them again.
#[test]
fn a_forced_release_in_the_middle_of_a_sweep_overlooks_nobody() {
    let mut lab = Lab::new();
    for reader in 0..40 {
        let lease = if reader == 0 { 100 } else { 60_000 };
        lab.request(&Request::read(&format!("x{reader}")).lease(lease)).granted();
    }
    lab.pass(100);
    lab.write("ann1").unwrap();
    assert!(lab.state().fields.contains_key("sweep"), "a sweep is under way");
    assert_eq!(lab.force().status(), "forced");
    lab.grant_all();
    assert_eq!(lab.state().readers.len(), 0);
    lab.write("ann1").granted();
}

#[test]
fn readers_that_come_after_a_forced_release_stay() {
    let mut lab = Lab::new();
    for reader in 0..40 {
        lab.read(&format!("x{reader}")).granted();
    }
    // A token from the future does not affect later holders.
    assert!(lab.force_up_to(u64::pow(2, 53)).unwrap().more);
    lab.read("ann1").granted();
    lab.wait_write("w1").queued();
    lab.grant_all();
    assert_eq!(lab.state().readers.into_keys().collect::<Vec<_>>(), [id("ann1")]);
    assert_eq!(
        lab.state().fields.get("forced_up_to"),
        None,
        "all holders that it affects are gone"
    );
    assert_eq!(lab.renew("ann1", 20_000).status(), "renewed");
    lab.release("ann1").status();
    assert_eq!(lab.state().writes(), Some(id("w1")));
}

#[test]
fn an_owner_is_told_whether_it_holds() {
    let mut lab = Lab::new();
    let holds = |lab: &mut Lab, name: &str| {
        let answer = lab.unchanged(|lab| lab.holds(name)).unwrap();
        assert!(!answer.more);
        answer
    };
    assert_eq!(holds(&mut lab, "ann1").status, "not_held");
    let ann = lab.write("ann1").granted();
    let held = holds(&mut lab, "ann1");
    assert_eq!((held.status.as_str(), held.more, held.held()), ("writes", false, ann));
    lab.wait_read("bob1").queued();
    assert_eq!(holds(&mut lab, "bob1").status, "not_held");
    lab.release("ann1").unwrap();
    assert_eq!(holds(&mut lab, "ann1").status, "not_held");
    assert_eq!(holds(&mut lab, "bob1").status, "reads");
    lab.pass(1_000);
    assert_eq!(holds(&mut lab, "bob1").status, "not_held");
    lab.request(&Request::write("cat1").lease(1_000)).granted();
    lab.pass(1_000);
    assert_eq!(holds(&mut lab, "cat1").status, "not_held");
    for reader in 0..20 {
        lab.read(&format!("x{reader}")).granted();
    }
    lab.release("x0").unwrap();
    // The newest reader is now where the sweep comes last.
    lab.force().unwrap();
    for reader in ["x1", "x19"] {
        assert!(lab.state().readers.contains_key(&id(reader)), "it is not swept");
        assert_eq!(holds(&mut lab, reader).status, "not_held");
    }
}

#[test]
fn a_raised_token_is_not_forgotten() {
    for readers in [0, 1, 3] {
        let mut lab = Lab::new();
        if readers == 0 {
            lab.write("x0").granted();
        }
        for reader in 0..readers {
            lab.read(&format!("x{reader}")).granted();
        }
        let ahead = lab.now_us() + 30_000_000;
        assert_eq!(lab.twice(|lab| lab.raise_token("x0", ahead)).status(), "raised");
        assert_eq!(lab.state().number("fence"), ahead);
        assert_eq!(lab.twice(|lab| lab.raise_token("x0", ahead - 5)).status(), "raised");
        assert_eq!(lab.state().number("fence"), ahead, "it never falls");
        assert_eq!(lab.twice(|lab| lab.raise_token("ann1", ahead + 5)).status(), "not_held");
        for reader in 0..readers.max(1) {
            assert_eq!(lab.release(&format!("x{reader}")).status(), "released");
        }
        assert!(lab.ends().unwrap() >= ahead / 1000 + GRACE, "until the clock is there");
        lab.pass(GRACE + 1_000);
        assert!(lab.write("bob1").granted().token > ahead);
    }
}

/// A quorum member with a wrong clock does not pin another member's key.
#[test]
fn a_token_far_ahead_of_the_clock_is_not_raised() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    let raise = |lab: &mut Lab, token| lab.unchanged(|lab| lab.raise_token("ann1", token)).unwrap();
    let life = lab.ends();
    for ahead in [lab.now_us() + AHEAD_US + 100, 4_102_444_800_000_000, 1 << 53] {
        let refused = raise(&mut lab, ahead);
        assert_eq!((refused.status.as_str(), refused.rest.len()), ("ahead", 0));
        assert_eq!((refused.now, refused.more), (lab.now(), false));
        let other = lab.twice(|lab| lab.raise_token("bob1", ahead));
        assert_eq!(other.status(), "not_held", "it does not hold, and learns no more");
    }
    assert_eq!((lab.state().number("fence"), lab.ends()), (ann.token, life));

    // Each call comes a microsecond after the previous one.
    let just = lab.now_us() + 1 + AHEAD_US + 1;
    assert_eq!(raise(&mut lab, just).status, "ahead");
    assert_eq!(lab.twice(|lab| lab.raise_token("ann1", just)).status(), "raised");
    assert_eq!(lab.state().number("fence"), just);
    // The clock goes back: a token that was raised before is still reported as raised.
    lab.set_clock(lab.now_us() - 30_000_000);
    assert_eq!(raise(&mut lab, just).status, "raised");
    assert_eq!(raise(&mut lab, just + 1).status, "ahead");
}
