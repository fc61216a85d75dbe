//! The plain mutex, and what a quorum needs from a lock.

use redis::cmd;

use super::lab::{Answer, Expect, GRACE, HERE, Lab, id, start};

impl Lab {
    fn lock(&mut self, name: &str, lease: u64) -> Answer {
        self.send("mutex/acquire", &[HERE, "0", &id(name), &lease.to_string()])
    }

    fn extend(&mut self, name: &str, lease: u64) -> Answer {
        self.send("mutex/renew", &[HERE, &id(name), &lease.to_string()])
    }

    fn unlock(&mut self, name: &str) -> Answer {
        self.send("mutex/release", &[HERE, &id(name)])
    }

    fn value(&mut self) -> Option<String> {
        let key = self.key().to_string();
        self.command(cmd("GET").arg(key))
    }

    fn raise(&mut self, name: &str, token: u64) -> Answer {
        self.send("raise_token", &[HERE, &id(name), &token.to_string()])
    }

    fn holds(&mut self, name: &str) -> String {
        let name = id(name);
        self.unchanged(|lab| lab.send("holds", &[HERE, &name])).status().to_string()
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
    assert_eq!((refused.status.as_str(), refused.rest.len()), ("refused", 1));
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
    let key = lab.key().to_string();
    lab.command::<()>(cmd("PERSIST").arg(&key));
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
    assert_eq!(lab.unchanged(|lab| lab.extend("bob1", 9_000)).status(), "lost");
    assert_eq!(lab.unchanged(|lab| lab.unlock("bob1")).status(), "absent");
    lab.delete();
    assert_eq!(lab.extend("ann1", 9_000).status(), "lost");
    assert_eq!(lab.value(), None, "a renewal must not take it");
}

#[test]
fn a_mutex_without_an_end_is_told_as_such() {
    let mut lab = Lab::new();
    let key = lab.key().to_string();
    lab.command::<()>(cmd("SET").arg(&key).arg("anybody"));
    let refused = lab.unchanged(|lab| lab.lock("ann1", 1_000)).unwrap();
    assert_eq!((refused.status.as_str(), refused.number(0)), ("refused", 0));
    let held = lab.unchanged(|lab| lab.send("mutex/inspect", &[HERE])).unwrap();
    assert_eq!((held.text(0).as_str(), held.number(1)), ("anybody", 0));
    lab.delete();
    assert_eq!(lab.send("mutex/inspect", &[HERE]).status(), "absent");
}

#[test]
fn a_key_that_is_no_string_is_left_alone() {
    let mut lab = Lab::new();
    lab.write("ann1").granted();
    for (script, args) in [
        ("mutex/acquire", vec![HERE, "0", "ann________00001", "1000"]),
        ("mutex/renew", vec![HERE, "ann________00001", "1000"]),
        ("mutex/release", vec![HERE, "ann________00001"]),
        ("mutex/inspect", vec![HERE]),
    ] {
        lab.unchanged(|lab| lab.send(script, &args)).refused_with("WRONGTYPE");
    }
}

#[test]
fn holds_returns_reads_writes_or_absent() {
    let mut lab = Lab::new();
    assert_eq!(lab.holds("ann1"), "absent");
    lab.read("ann1").granted();
    lab.wait_write("bob1").queued();
    assert_eq!((lab.holds("ann1").as_str(), lab.holds("bob1").as_str()), ("reads", "absent"));
    lab.release("ann1").status();
    assert_eq!((lab.holds("ann1").as_str(), lab.holds("bob1").as_str()), ("absent", "writes"));
    lab.pass(60_000);
    assert_eq!(lab.holds("bob1"), "absent");
    lab.read("cat1").granted();
    lab.force().status();
    assert_eq!(lab.holds("cat1"), "absent");
}

#[test]
fn the_last_token_is_raised_by_a_holder_alone_and_never_falls() {
    let mut lab = Lab::new();
    let first = lab.read("ann1").granted().token;
    let far = first + 50_000_000;
    assert_eq!(lab.unchanged(|lab| lab.raise("bob1", far)).status(), "lost");
    assert_eq!(lab.raise("ann1", far).status(), "raised");
    assert_eq!(lab.unchanged(|lab| lab.raise("ann1", first)).status(), "raised");
    assert_eq!(lab.read("bob1").granted().token, far + 1);
    lab.release("ann1").status();
    lab.release("bob1").status();
    let writing = lab.write("cat1").granted();
    assert_eq!(writing.token, far + 2);
    assert_eq!(lab.raise("cat1", far + 9).status(), "raised");
    lab.release("cat1").status();
    lab.pass(GRACE / 2);
    assert_eq!(lab.write("dan1").granted().token, far + 10, "kept while the lock is idle");
    lab.pass(12_000);
    assert_eq!(lab.raise("dan1", far + 99).status(), "lost", "its lease has ended");
}
