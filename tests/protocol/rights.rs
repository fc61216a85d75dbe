//! A user without the right to a command: the server refuses every call that needs it, and the lock
//! does not change. No record claims an expiry that its key does not have.

use std::collections::BTreeMap;

use redis::cmd;

use super::fixture::{Answer, Expect, Lab, Refusal, start};
use super::state_line_shapes::{all, make, restart, status};

/// A lock's fields, and when its key's life ends.
type Lock = (BTreeMap<String, String>, Option<u64>);

/// Runs a call from a state, by a user without a right. Returns the lock before it, its answer, and
/// the lock after it.
fn called(
    lab: &mut Lab,
    us: u64,
    (from, call): (&str, &str),
    right: Option<&str>,
) -> (Lock, Answer, Lock) {
    restart(lab, us, from);
    let before = lab.look();
    if let Some(right) = right {
        lab.command::<()>(cmd("AUTH").arg(right).arg("secret"));
    }
    let answer = make(lab, call);
    if right.is_some() {
        lab.command::<()>(cmd("AUTH").arg("default").arg("any"));
    }
    (before, answer, lab.look())
}

fn life(lock: &Lock) -> Option<u64> {
    lock.0.get("s")?[2..15].parse().ok()
}

/// The fields, without the life in the line.
fn but_for_the_life(lock: &Lock) -> BTreeMap<String, String> {
    let mut fields = lock.0.clone();
    if let Some(line) = fields.get_mut("s") {
        line.replace_range(2..15, "");
    }
    fields
}

/// Each call from each shape, on the fast paths and without them, without each right.
fn whoever_lacks_a_right_does_all_or_nothing(rights: &[&str]) {
    let server = start("");
    let mut lab = Lab::on(&server);
    let us = lab.now_us();
    for right in rights {
        let mut all = vec!["on", ">secret", "~*", "&*", "+@all"];
        all.extend(right.split(','));
        lab.command::<()>(cmd("ACL").arg("SETUSER").arg(right).arg(&all));
    }
    let (mut refused, mut wrong) = (BTreeMap::new(), Vec::new());
    for (slow_path, at) in all() {
        lab.slow_path = slow_path;
        let (_, usual, expected) = called(&mut lab, us, at, None);
        for &right in rights {
            let (before, answer, after) = called(&mut lab, us, at, Some(right));
            // A key without an end stays.
            let lives = after.1.is_none() || life(&after) <= after.1;
            let is_right = if answer.is_ok() || status(&answer) == "LOCKARGS" {
                (&answer, &after) == (&usual, &expected)
            } else {
                *refused.entry(right).or_insert(0) += 1;
                // A call that could not set the life has done all the rest. But no call takes a
                // lock that had no holder, unless it cannot take the grant back.
                let was_nobodys = before.0.get("s").is_none_or(|line| line.starts_with("2F"));
                let is_all = right.starts_with("-pexpireat")
                    && (!was_nobodys || right.contains("-hdel"))
                    && but_for_the_life(&after) == but_for_the_life(&expected)
                    && life(&after) == life(&before).or(Some(0));
                is_the_servers(&answer) && (after == before || is_all)
            };
            if !lives || !is_right {
                wrong.push(format!(
                    "{at:?}, {right}, slow path {slow_path}: {answer:?}\n  {before:?}\n  {after:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        refused.len() == rights.len() && refused.values().all(|count| *count > 20),
        "{refused:?}"
    );
}

#[test]
fn acl_without_a_write_command_changes_all_or_nothing() {
    whoever_lacks_a_right_does_all_or_nothing(&[
        "-hset",
        "-hdel",
        "-pexpireat",
        "-pexpireat,-hdel",
    ]);
}

#[test]
fn acl_without_a_read_command_changes_all_or_nothing() {
    whoever_lacks_a_right_does_all_or_nothing(&["-exists", "-hget", "-hmget"]);
}

/// Whether an error has the server's text and a code, without a place in a script. 6.2 is an
/// exception: it has no code for a missing right within a script, and puts the place first.
fn is_the_servers(answer: &Answer) -> bool {
    let Err(Refusal { code, detail }) = answer else { return false };
    let is_6_2 = detail.starts_with("@user_script: ") && detail.contains(": The user executing");
    let has_place = detail.contains("user_script") || detail.contains("f_");
    let has_second_code = ["NOPERM ", "ERR "].iter().any(|code| detail.starts_with(code));
    matches!(code.as_str(), "NOPERM" | "ERR" | "") && (is_6_2 || !has_place) && !has_second_code
}

#[test]
fn acl_without_time_returns_the_error_of_the_server() {
    let server = start("");
    let mut lab = Lab::on_server_time(&server);
    let user = cmd("ACL").arg("SETUSER").arg("unable").arg("on").arg(">secret").clone();
    lab.command::<()>(user.clone().arg(&["~*", "&*", "+@all", "-time"]));
    lab.read("ann1").granted();
    lab.wait_write("bob1").queued();
    lab.checked = false;
    let calls: [fn(&mut Lab) -> Answer; 6] = [
        |lab| lab.read("cat1"),
        |lab| lab.write("cat1"),
        |lab| lab.renew_as("ann1", 20_000, "r", 1),
        |lab| lab.release("ann1"),
        |lab| lab.release("bob1"),
        |lab| lab.grant_waiters(),
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let before = lab.snapshot();
        lab.command::<()>(cmd("AUTH").arg("unable").arg("secret"));
        let answer = call(&mut lab);
        lab.command::<()>(cmd("AUTH").arg("default").arg("any"));
        assert!(is_the_servers(&answer), "call {number}: {answer:?}");
        assert_eq!(lab.snapshot(), before, "call {number}");
    }
}
