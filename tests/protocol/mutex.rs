//! The plain mutex.

use super::arguments;
use super::fixture::{Answer, Expect, HERE, Lab, id, start};

impl Lab {
    fn lock(&mut self, name: &str, lease: u64) -> Answer {
        self.send("set_nx/acquire", &[HERE, "0", &id(name), &lease.to_string()])
    }

    fn extend(&mut self, name: &str, lease: u64) -> Answer {
        self.send("set_nx/renew", &[HERE, &id(name), &lease.to_string()])
    }

    fn unlock(&mut self, name: &str) -> Answer {
        self.send("set_nx/release", &[HERE, &id(name)])
    }

    fn value(&mut self) -> Option<String> {
        self.at_key("GET", &[])
    }
}

#[test]
fn a_mutex_is_the_value_of_its_holder_until_the_lease_ends() {
    let mut lab = Lab::new();
    let granted = lab.lock("ann1", 5_000).granted();
    assert_eq!((granted.token, granted.deadline), (0, lab.now() + 5_000));
    assert_eq!(lab.value(), Some(id("ann1")));
    assert_eq!(lab.ends(), Some(granted.deadline));
    let refused = lab.unchanged(|lab| lab.lock("bob1", 9_000)).unwrap();
    assert_eq!((refused.status.as_str(), refused.rest.len()), ("busy", 1));
    assert_eq!(lab.unlock("ann1").status(), "released");
    assert_eq!(lab.value(), None);
    lab.lock("bob1", 9_000).granted();
}

#[test]
fn a_repeated_call_of_the_holder_changes_nothing() {
    let mut lab = Lab::new();
    lab.lock("ann1", 5_000).granted();
    let value = lab.value();
    let again = lab.lock("ann1", 9_000).granted();
    assert_eq!(again.token, 0);
    let ends = lab.ends().unwrap();
    assert!(ends <= lab.now() + 5_000, "a repeated call made it longer");
    assert_eq!(lab.value(), value);
}

#[test]
fn mutex_acquire_or_renewal_repeated_by_the_holder_is_rewritten() {
    let server = start("maxmemory-policy noeviction");
    let mut lab = Lab::on_server_time(&server);
    lab.lock("ann1", 50_000).granted();
    let written = lab.changes();
    lab.unchanged(|lab| lab.lock("ann1", 1_000)).granted();
    assert!(lab.changes() > written, "the acquire");
    let written = lab.changes();
    assert_eq!(lab.unchanged(|lab| lab.extend("ann1", 1_000)).status(), "granted");
    assert!(lab.changes() > written, "the renewal");
    lab.set_full(true);
    assert_eq!(lab.unchanged(|lab| lab.extend("ann1", 1_000)).status(), "granted");
    lab.unchanged(|lab| lab.lock("ann1", 1_000)).refused_with("OOM");
    lab.set_full(false);
    assert!(lab.ends().is_some(), "it still has its end");
    lab.at_key::<()>("PERSIST", &[]);
    lab.unchanged(|lab| lab.lock("ann1", 1_000)).granted();
    assert_eq!(lab.ends(), None, "who had none has none");
    let written = lab.changes();
    lab.unchanged(|lab| lab.lock("bob1", 1_000)).status();
    lab.unchanged(|lab| lab.extend("bob1", 1_000)).status();
    assert_eq!(lab.changes(), written, "whoever is refused writes nothing");
}

#[test]
fn a_lease_is_made_longer_and_never_shorter_and_by_its_holder_alone() {
    // The remaining life of a string is by the server's own clock.
    let server = start("");
    let mut lab = Lab::on_server_time(&server);
    let granted = lab.lock("ann1", 50_000).granted();
    let longer = lab.extend("ann1", 80_000).unwrap();
    assert_eq!((longer.status.as_str(), longer.number(0)), ("granted", 0));
    assert!(longer.number(1) >= granted.deadline + 30_000);
    assert_eq!(lab.ends(), Some(longer.number(1)));
    assert_eq!(lab.unchanged(|lab| lab.extend("ann1", 1_000)).status(), "granted");
    assert_eq!(lab.unchanged(|lab| lab.extend("bob1", 9_000)).status(), "not_held");
    assert_eq!(lab.unchanged(|lab| lab.unlock("bob1")).status(), "not_found");
    lab.delete();
    assert_eq!(lab.extend("ann1", 9_000).status(), "not_held");
    assert_eq!(lab.value(), None, "a renewal must not take it");
}

#[test]
fn a_mutex_without_an_end_is_told_as_such() {
    let mut lab = Lab::new();
    lab.at_key::<()>("SET", &["anybody"]);
    let refused = lab.unchanged(|lab| lab.lock("ann1", 1_000)).unwrap();
    assert_eq!((refused.status.as_str(), refused.number(0)), ("busy", 0));
    let held = lab.unchanged(|lab| lab.send("set_nx/inspect", &[HERE])).unwrap();
    assert_eq!((held.text(0).as_str(), held.number(1)), ("anybody", 0));
    lab.delete();
    assert_eq!(lab.send("set_nx/inspect", &[HERE]).status(), "not_found");
}

#[test]
fn a_key_that_is_no_string_is_left_alone() {
    let mut lab = Lab::after("write ann1");
    for (script, args) in arguments::calls(|script| script.starts_with("set_nx/")) {
        lab.unchanged(|lab| lab.send(script, &args)).refused_with("WRONGTYPE");
    }
}
