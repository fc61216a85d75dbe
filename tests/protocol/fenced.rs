//! Fenced values.

use redis::cmd;

use super::arguments;
use super::cost::commands;
use super::fixture::{Answer, Expect, HERE, Lab, id, start};

const LOCK: &str = "order {42}";
const DAY: u64 = 86_400_000;
const NEVER: u64 = 9_999_999_999_999;

/// A call of a writer: the writer, its token and its sequence.
type By = (&'static str, u64, u64);

/// The error that a call must return, and what makes the key.
type Foreign = (&'static str, fn(&mut Lab));

impl Lab {
    fn fenced() -> Lab {
        let mut lab = Lab::new();
        lab.checked = false; // the oracle judges locks
        lab
    }

    fn fenced_call(&mut self, script: &str, by: By, after: Option<&str>, rest: &[&str]) -> Answer {
        let (writer, token, sequence) = by;
        let (token, sequence) = (token.to_string(), sequence.to_string());
        let predecessor = after.map_or("-".into(), id);
        let day = DAY.to_string();
        let writer = id(writer);
        let head = [HERE, LOCK, &token, &writer, &sequence, &predecessor, &day];
        self.send(script, &[&head, rest].concat())
    }

    fn set(&mut self, by: By, value: &str) -> Answer {
        self.fenced_call("fenced/set", by, None, &["0", "any", value])
    }

    fn set_for(&mut self, by: By, ttl: u64, value: &str) -> Answer {
        self.fenced_call("fenced/set", by, None, &[&ttl.to_string(), "any", value])
    }

    fn set_after(&mut self, by: By, predecessor: &str, value: &str) -> Answer {
        self.fenced_call("fenced/set", by, Some(predecessor), &["0", "any", value])
    }

    fn replace(&mut self, by: By, value: &str) -> Answer {
        self.fenced_call("fenced/set", by, None, &["0", "existing", value])
    }

    fn delete_value(&mut self, by: By) -> Answer {
        self.fenced_call("fenced/delete", by, None, &[])
    }

    fn enter(&mut self, by: By) -> Answer {
        self.fenced_call("fenced/enter", by, None, &[])
    }

    /// The token and the value.
    fn stored_value(&mut self) -> (u64, Option<String>) {
        let reply = self.unchanged(|lab| lab.send("fenced/get", &[HERE, LOCK])).unwrap();
        match reply.status.as_str() {
            "value" => (reply.number(0), Some(reply.text(1))),
            "no_value" => (reply.number(0), None),
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    fn refuses_as_stale(&mut self, stored: u64, call: impl FnOnce(&mut Lab) -> Answer) {
        let reply = self.unchanged(call).unwrap();
        assert_eq!((reply.status.as_str(), reply.number(0)), ("stale", stored));
    }

    #[track_caller]
    fn is_taken_over(&mut self, by: &str, call: impl FnOnce(&mut Lab) -> Answer) {
        let reply = self.unchanged(call).unwrap();
        assert_eq!((reply.status.as_str(), reply.text(0)), ("taken_over", id(by)));
    }
}

#[test]
fn fenced_line_has_the_fields_of_the_page() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set_for(("ann1", 7, 3), 5_000, "a").status(), "written");
    let (fields, ends) = lab.look();
    let (deadline, expiry) = (lab.now() + 5_000, lab.now() + 5_000 + DAY);
    let line = format!("2V{expiry:013}{:016}{deadline:013}3 {}", 7, id("ann1"));
    assert_eq!(fields["s"], line);
    assert_eq!((fields["lock"].as_str(), fields["value"].as_str()), (LOCK, "a"));
    assert_eq!((fields.len(), ends), (3, Some(expiry)));
    assert_eq!(lab.set(("ann1", 7, 4), "b").status(), "written");
    let line = format!("2V{NEVER}{:016}{NEVER}4 {}", 7, id("ann1"));
    assert_eq!((lab.look().0["s"].as_str(), lab.ends()), (line.as_str(), Some(NEVER)));
}

#[test]
fn fenced_value_without_a_ttl_has_no_expiry() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    assert_eq!(lab.ends(), None);
}

#[test]
fn fenced_call_with_an_older_token_is_stale_and_changes_nothing() {
    // The second pair differs from the first digit on, the last one in the last digit of 2^53.
    for (old, new) in [(7, 8), (9, 10), (99_999, 1_000_000), ((1 << 53) - 1, 1 << 53)] {
        let mut lab = Lab::fenced();
        assert_eq!(lab.set(("ann1", old, 1), "old").status(), "written");
        assert_eq!(lab.set(("bob1", new, 1), "new").status(), "written");
        lab.refuses_as_stale(new, |lab| lab.set(("ann1", old, 2), "stale"));
        lab.refuses_as_stale(new, |lab| lab.replace(("ann1", old, 3), "stale"));
        lab.refuses_as_stale(new, |lab| lab.delete_value(("ann1", old, 4)));
        lab.refuses_as_stale(new, |lab| lab.enter(("ann1", old, 5)));
        lab.refuses_as_stale(new, |lab| lab.set_after(("ann1", old, 6), "bob1", "stale"));
        assert_eq!(lab.stored_value(), (new, Some("new".into())));
    }
}

#[test]
fn fenced_enter_refuses_older_writers_and_keeps_the_value() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.enter(("ann1", 7, 1)).status(), "no_value");
    assert_eq!(lab.ends(), Some(lab.now() + DAY), "a token without a value ends");
    assert_eq!(lab.set(("ann1", 7, 2), "a").status(), "written");
    let entered = lab.enter(("bob1", 8, 1)).unwrap();
    let found = (entered.status.as_str(), entered.number(0), entered.text(1));
    assert_eq!(found, ("value", 8, "a".into()));
    lab.refuses_as_stale(8, |lab| lab.set(("ann1", 7, 3), "stale"));
    assert_eq!(lab.stored_value(), (8, Some("a".into())));
    assert_eq!(lab.ends(), Some(NEVER), "the value has no end");
}

#[test]
fn fenced_delete_keeps_the_token() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    assert_eq!(lab.delete_value(("bob1", 8, 1)).status(), "written");
    assert_eq!(lab.stored_value(), (8, None));
    assert!(!lab.look().0.contains_key("value"));
    assert_eq!(lab.ends(), Some(lab.now() + DAY));
    lab.refuses_as_stale(8, |lab| lab.set(("ann1", 7, 2), "stale"));
    lab.pass(DAY - 1);
    lab.refuses_as_stale(8, |lab| lab.set(("ann1", 7, 2), "stale"));
    lab.pass(1);
    assert_eq!(lab.set(("ann1", 7, 2), "stale").status(), "written", "the key is gone");
}

#[test]
fn fenced_delete_of_a_missing_key_keeps_the_token() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.delete_value(("bob1", 8, 1)).status(), "written");
    lab.refuses_as_stale(8, |lab| lab.set(("ann1", 7, 1), "stale"));
}

#[test]
fn fenced_value_past_its_ttl_is_gone_and_its_token_is_kept() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set_for(("ann1", 8, 1), 100, "a").status(), "written");
    lab.pass(99);
    assert_eq!(lab.stored_value(), (8, Some("a".into())));
    lab.pass(1);
    assert_eq!(lab.stored_value(), (8, None));
    assert_eq!(lab.enter(("ann1", 8, 2)).status(), "no_value");
    assert_eq!(lab.ends(), Some(lab.now() + DAY), "the token counts from the last writer");
    assert_eq!(lab.replace(("ann1", 8, 3), "b").status(), "not_found");
    lab.refuses_as_stale(8, |lab| lab.set(("bob1", 7, 1), "stale"));
}

#[test]
fn fenced_set_that_comes_late_does_not_undo_a_later_call_of_its_writer() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 1), "first").status(), "written");
    assert_eq!(lab.set(("ann1", 7, 2), "second").status(), "written");
    assert_eq!(lab.unchanged(|lab| lab.set(("ann1", 7, 1), "first")).status(), "written");
    assert_eq!(lab.unchanged(|lab| lab.delete_value(("ann1", 7, 1))).status(), "written");
    let entered = lab.unchanged(|lab| lab.enter(("ann1", 7, 1))).unwrap();
    assert_eq!((entered.status.as_str(), entered.text(1)), ("value", "second".into()));
    assert_eq!(lab.delete_value(("ann1", 7, 3)).status(), "written");
    assert_eq!(lab.unchanged(|lab| lab.set(("ann1", 7, 2), "second")).status(), "written");
    assert_eq!(lab.stored_value(), (7, None));
}

#[test]
fn fenced_set_that_is_repeated_is_written_again() {
    let server = start("");
    let mut lab = Lab::on_server_time(&server); // a given clock is a key that changes
    lab.checked = false;
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    let written = lab.changes();
    assert_eq!(lab.unchanged(|lab| lab.set(("ann1", 7, 1), "a")).status(), "written");
    assert!(lab.changes() > written, "so that replicas can confirm it");
    let written = lab.changes();
    assert_eq!(lab.unchanged(|lab| lab.enter(("ann1", 7, 1))).status(), "value");
    assert!(lab.changes() > written, "so that replicas can confirm it");
    // Also if a later call has overtaken it.
    assert_eq!(lab.set(("ann1", 7, 2), "b").status(), "written");
    let overtaken: [fn(&mut Lab) -> Answer; 4] = [
        |lab| lab.set(("ann1", 7, 1), "a"),
        |lab| lab.replace(("ann1", 7, 1), "a"),
        |lab| lab.enter(("ann1", 7, 1)),
        |lab| lab.delete_value(("ann1", 7, 1)),
    ];
    for call in overtaken {
        let written = lab.changes();
        lab.unchanged(call).unwrap();
        assert!(lab.changes() > written, "so that replicas can confirm it");
    }
}

#[test]
fn fenced_writer_takes_over_only_from_the_writer_that_it_names() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 5), "a").status(), "written");
    lab.is_taken_over("ann1", |lab| lab.set(("bob1", 7, 1), "b"));
    lab.is_taken_over("ann1", |lab| lab.enter(("bob1", 7, 1)));
    lab.is_taken_over("ann1", |lab| lab.set_after(("bob1", 7, 1), "cat1", "b"));
    assert_eq!(lab.set_after(("bob1", 7, 1), "ann1", "b").status(), "written");
    // What the first writer sent before comes too late, whatever its number.
    lab.is_taken_over("bob1", |lab| lab.set(("ann1", 7, 6), "a"));
    lab.is_taken_over("bob1", |lab| lab.delete_value(("ann1", 7, 7)));
    assert_eq!(lab.set_after(("cat1", 7, 1), "bob1", "c").status(), "written");
    // A duplicate of a takeover does not take over again.
    lab.is_taken_over("cat1", |lab| lab.set_after(("bob1", 7, 1), "ann1", "b"));
    assert_eq!(lab.stored_value(), (7, Some("c".into())));
}

#[test]
fn fenced_replace_without_a_value_writes_nothing() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.unchanged(|lab| lab.replace(("ann1", 7, 1), "a")).status(), "not_found");
    assert_eq!(lab.enter(("ann1", 7, 2)).status(), "no_value");
    assert_eq!(lab.unchanged(|lab| lab.replace(("ann1", 7, 3), "a")).status(), "not_found");
    assert_eq!(lab.set(("ann1", 7, 4), "a").status(), "written");
    assert_eq!(lab.replace(("bob1", 8, 1), "b").status(), "written");
    assert_eq!(lab.stored_value(), (8, Some("b".into())));
}

#[test]
fn fenced_replace_that_is_repeated_is_written() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 2), "a").status(), "written");
    assert_eq!(lab.replace(("ann1", 7, 4), "b").status(), "written");
    assert_eq!(lab.delete_value(("ann1", 7, 6)).status(), "written");
    assert_eq!(lab.unchanged(|lab| lab.replace(("ann1", 7, 4), "b")).status(), "written");
    assert_eq!(lab.stored_value(), (7, None));
    // Its value has expired before the repetition.
    assert_eq!(lab.set(("ann1", 7, 8), "a").status(), "written");
    let by = ("ann1", 7, 10);
    let replace =
        |lab: &mut Lab| lab.fenced_call("fenced/set", by, None, &["100", "existing", "b"]);
    assert_eq!(replace(&mut lab).status(), "written");
    lab.pass(100);
    assert_eq!(lab.stored_value(), (7, None));
    assert_eq!(replace(&mut lab).status(), "written");
    assert_eq!(lab.stored_value(), (7, Some("b".into())));
}

#[test]
fn fenced_replace_below_which_its_writer_has_entered_is_not_found() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.enter(("ann1", 7, 1)).status(), "no_value");
    assert_eq!(lab.unchanged(|lab| lab.replace(("ann1", 7, 2), "a")).status(), "not_found");
}

#[test]
fn fenced_value_of_another_lock_is_left_alone() {
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    for (script, mut args) in arguments::calls(|script| script.starts_with("fenced/")) {
        args[1] = "other".into();
        let reply = lab.unchanged(|lab| lab.send(script, &args)).unwrap();
        assert_eq!((reply.status.as_str(), reply.text(0)), ("other_lock", LOCK.into()), "{script}");
    }
}

#[test]
fn fenced_call_with_a_bad_lock_or_predecessor_is_rejected() {
    let mut lab = Lab::fenced();
    for (script, args) in arguments::calls(|script| script.starts_with("fenced/")) {
        let mut bad = vec![(1, String::new()), (1, "a".repeat(513))];
        if script != "fenced/get" {
            bad.extend([(5, String::new()), (5, "short".into())]);
        }
        for (at, bad) in bad {
            let mut args = args.clone();
            args[at] = bad;
            lab.unchanged(|lab| lab.send(script, &args)).refused_with("LOCKARGS");
        }
    }
}

#[test]
fn fenced_key_of_another_kind_is_left_alone() {
    let foreign: [Foreign; 6] = [
        ("WRONGTYPE", |lab| lab.at_key("SET", &["mine"])),
        ("LOCKTYPE", |lab| lab.set_field("balance", "100")),
        ("LOCKTYPE", |lab| _ = lab.write("ann1").granted()),
        ("LOCKTYPE", |lab| lab.set_field("s", "2V12 ")),
        ("LOCKTYPE", |lab| lab.set_field("s", "")),
        ("LOCKVERSION", |lab| lab.set_field("s", "3V12 ")),
    ];
    for (code, make) in foreign {
        let mut lab = Lab::fenced();
        make(&mut lab);
        for (script, args) in arguments::calls(|script| script.starts_with("fenced/")) {
            let before: Vec<u8> = lab.at_key("DUMP", &[]);
            lab.send(script, &args).refused_with(code);
            assert!(lab.at_key::<Vec<u8>>("DUMP", &[]) == before, "{script}");
        }
    }
    // Nor does a lock take a value for a lock.
    let mut lab = Lab::fenced();
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    let kinds = |script: &str| {
        !["fenced/", "set_nx/", "client_record/"].iter().any(|kind| script.starts_with(kind))
    };
    for (script, args) in arguments::calls(kinds) {
        lab.unchanged(|lab| lab.send(script, &args)).refused_with("LOCKTYPE");
    }
    assert_eq!(lab.grant_waiters().unwrap_err().detail, "shape V", "it says what the key is");
}

#[test]
fn fenced_delete_is_not_stopped_by_a_full_memory() {
    let server = start("maxmemory-policy noeviction");
    let mut lab = Lab::on(&server);
    lab.checked = false;
    assert_eq!(lab.set(("ann1", 7, 1), "a").status(), "written");
    lab.set_full(true);
    lab.unchanged(|lab| lab.set(("ann1", 7, 2), "b")).refused_with("OOM");
    lab.unchanged(|lab| lab.enter(("ann1", 7, 2))).refused_with("OOM");
    assert_eq!(lab.delete_value(("ann1", 7, 2)).status(), "written");
    lab.set_full(false);
    assert_eq!(lab.stored_value(), (7, None));
}

#[test]
fn fenced_calls_need_no_more_than_the_least_rights() {
    let server = start("");
    let mut lab = Lab::on_server_time(&server);
    lab.checked = false;
    let rights = "on >secret resetchannels -@all ~rwlease:* +evalsha +time +exists +hmget +hset \
                  +hdel +pexpireat";
    let user: Vec<&str> = rights.split_whitespace().collect();
    lab.command::<()>(cmd("ACL").arg("SETUSER").arg("least").arg(user));
    lab.command::<()>(cmd("AUTH").arg("least").arg("secret"));
    assert_eq!(lab.send("fenced/get", &[HERE, LOCK]).status(), "not_found");
    assert_eq!(lab.set_for(("ann1", 7, 1), 60_000, "a").status(), "written");
    assert_eq!(lab.enter(("ann1", 7, 2)).status(), "value");
    assert_eq!(lab.delete_value(("ann1", 7, 3)).status(), "written");
    assert_eq!(lab.send("fenced/get", &[HERE, LOCK]).status(), "no_value");
}

#[test]
fn fenced_calls_run_the_commands_of_their_heads() {
    type Row = (fn(&mut Lab) -> Answer, &'static str);
    let rows: [Row; 8] = [
        (|lab| lab.send("fenced/get", &[HERE, LOCK]), "exists, hmget, time"),
        (|lab| lab.set(("ann1", 7, 1), "a"), "exists, hmget, hset, time"),
        (|lab| lab.set(("ann1", 7, 2), "b"), "hmget, hset, time"),
        (|lab| lab.enter(("bob1", 8, 1)), "hmget, hset, time"),
        (|lab| lab.set(("ann1", 7, 3), "stale"), "hmget, time"),
        (|lab| lab.set_for(("bob1", 8, 2), 60_000, "c"), "hmget, hset, pexpireat, time"),
        (|lab| lab.send("fenced/get", &[HERE, LOCK]), "hmget, time"),
        (|lab| lab.delete_value(("bob1", 8, 3)), "hdel 2, hmget, hset, pexpireat, time"),
    ];
    let server = start("");
    let mut lab = Lab::on(&server);
    lab.checked = false;
    for (number, (call, expected)) in rows.into_iter().enumerate() {
        lab.command::<()>(cmd("CONFIG").arg("RESETSTAT"));
        call(&mut lab).unwrap();
        assert_eq!(commands(&mut lab), expected, "call {number}");
    }
}
