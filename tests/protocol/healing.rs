//! A renewal says what is held and by which token. So it repeats a downgrade that a failover has
//! lost, never makes a lease stronger, and leaves a lease with another token alone.

use super::fixture::{Expect, HERE, Lab, id};
use super::request::Request;

/// With the fast paths, and without.
fn labs() -> [Lab; 2] {
    let mut slow_path = Lab::new();
    slow_path.slow_path = true;
    [Lab::new(), slow_path]
}

#[test]
fn renew_as_a_read_downgrades_the_write_with_that_token() {
    for waits in [false, true] {
        for mut lab in labs() {
            let ann = lab.write("ann1").granted();
            if waits {
                lab.wait_write("bob1").queued();
                lab.wait_read("cat1").queued();
            }
            lab.pass(100);
            let renewed = lab.renew_as("ann1", 20_000, "r", ann.token).unwrap();
            let until = lab.now() + 20_000;
            assert_eq!((renewed.status.as_str(), renewed.number(1)), ("renewed", until));
            let state = lab.state();
            assert_eq!(state.writes(), None);
            let reads = if waits { &["ann1", "cat1"][..] } else { &["ann1"] };
            assert!(state.reads().into_iter().eq(reads.iter().map(|name| id(name))));
            let again =
                lab.unchanged(|lab| lab.renew_as("ann1", 20_000, "r", ann.token)).unwrap().held();
            assert_eq!((again.token, again.deadline), (ann.token, until));
        }
    }
}

/// A renewal that was sent before the downgrade and comes after it.
#[test]
fn renew_as_a_write_leaves_a_downgraded_lease_a_read() {
    for mut lab in labs() {
        let ann = lab.write("ann1").granted();
        lab.downgrade("ann1", ann.token, 10_000).granted();
        for beside in [None, Some("bob1")] {
            if let Some(name) = beside {
                lab.read(name).granted();
            }
            assert_eq!(lab.renew_as("ann1", 20_000, "w", ann.token).status(), "renewed");
            assert_eq!(lab.state().writes(), None);
        }
    }
}

/// A renewal that was sent before the upgrade and comes after it.
#[test]
fn renew_by_the_token_of_the_read_leaves_its_upgrade_alone() {
    for mut lab in labs() {
        let read = lab.read("ann1").granted();
        let write = lab.upgrade("ann1", read.token).granted();
        for (mode, waits) in [("r", false), ("w", false), ("r", true), ("w", true)] {
            if waits {
                lab.wait_read("bob1").queued();
            }
            let late = |lab: &mut Lab| lab.renew_as("ann1", 60_000, mode, read.token);
            let other = lab.unchanged(late).unwrap();
            assert_eq!((other.status.as_str(), other.held()), ("other", write), "{mode}");
        }
        assert_eq!(lab.state().writes(), Some(id("ann1")));
    }
}

#[test]
fn renew_by_another_token_changes_nothing() {
    for mut lab in labs() {
        lab.read("bob1").granted();
        let ann = lab.read("ann1").granted();
        for token in [ann.token - 1, ann.token + 1] {
            let other = lab.unchanged(|lab| lab.renew_as("ann1", 60_000, "r", token)).unwrap();
            assert_eq!((other.status.as_str(), other.held()), ("other", ann));
        }
        lab.wait_write("cat1").queued();
        lab.release("bob1").status();
        let other = lab.unchanged(|lab| lab.renew_as("ann1", 60_000, "r", ann.token - 1)).unwrap();
        assert_eq!(other.held(), ann);
    }
}

/// The upgrade was granted by another call, and its holder has not heard of it.
#[test]
fn renew_by_the_token_of_the_read_does_not_claim_the_upgrade() {
    for mut lab in labs() {
        let read = lab.read("ann1").granted();
        lab.read("bob1").granted();
        lab.wait_upgrade("ann1", read.token).unwrap();
        lab.release("bob1").unwrap();
        let late = |lab: &mut Lab| lab.renew_as("ann1", 60_000, "r", read.token);
        assert_eq!(lab.unchanged(late).status(), "other");
        let writer = lab.state().writer.unwrap();
        assert!(!writer.is_claimed() && writer.token > read.token);
    }
}

#[test]
fn renew_as_a_read_of_a_revoked_write_downgrades_it_and_keeps_its_end() {
    let mut lab = Lab::new();
    let ann = lab.write("ann1").granted();
    lab.revoke().unwrap();
    let revoked = lab.renew_as("ann1", 60_000, "r", ann.token).unwrap();
    assert_eq!((revoked.status.as_str(), revoked.held()), ("revoked", ann));
    assert_eq!(lab.state().writes(), None);
    assert_eq!(lab.state().reads().len(), 1);
    assert_eq!(lab.state().record(&id("ann1")).unwrap().deadline, ann.deadline);
}

/// As a downgrade that stays cached does.
#[test]
fn renew_as_a_read_of_a_cached_write_keeps_it_cached() {
    for (waits, state, told) in [(false, 'k', "-"), (true, 'c', "w")] {
        let mut lab = Lab::new();
        let cached = Request::write("ann1").cached(1_024);
        let ann = lab.request(&cached).unwrap().held();
        if waits {
            lab.wait_write("bob1").queued();
        }
        let (token, lease) = (ann.token.to_string(), "20000");
        let args = [HERE, &id("ann1"), lease, "r", &token, "1024"];
        let renewed = lab.send("renew", &args).unwrap();
        assert_eq!((renewed.status.as_str(), renewed.text(3).as_str()), ("renewed", told));
        let reader = lab.state().record(&id("ann1")).cloned().unwrap();
        assert_eq!((reader.state, reader.token), (state, ann.token));
    }
}
