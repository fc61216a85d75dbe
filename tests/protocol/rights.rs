//! A user who has lost the right to a command: whatever would need it is refused, and the lock stays
//! as it was; and no line tells of a life that its key does not have.

use std::collections::BTreeMap;

use redis::cmd;

use super::lab::{Answer, Lab, start};
use super::request::Request;
use super::shapes::{all, follow, make, status};

/// A lock as it stands, and when its key's life ends.
type Lock = (BTreeMap<String, String>, Option<u64>);

/// A call from a start, by a user without a right: the lock before and after it.
fn called(
    lab: &mut Lab,
    us: u64,
    (from, call): (&str, &str),
    right: Option<&str>,
) -> (Lock, Answer, Lock) {
    let machinery = std::mem::take(&mut lab.machinery);
    lab.delete();
    lab.set_clock(us);
    lab.checked = false; // it is checked with the shapes
    follow(lab, from);
    lab.machinery = machinery;
    let before = lab.look();
    if let Some(right) = right {
        let user = cmd("ACL").arg("SETUSER").arg("unable").arg(right).clone();
        lab.command::<()>(&user);
        lab.command::<()>(cmd("AUTH").arg("unable").arg("secret"));
    }
    let answer = make(lab, call);
    if let Some(right) = right {
        lab.command::<()>(cmd("AUTH").arg("default").arg("any"));
        let user = cmd("ACL").arg("SETUSER").arg("unable").arg(right.replace('-', "+")).clone();
        lab.command::<()>(&user);
    }
    (before, answer, lab.look())
}

fn life(lock: &Lock) -> Option<u64> {
    lock.0.get("s")?[2..15].parse().ok()
}

/// What a line says, but for the life.
fn but_for_the_life(lock: &Lock) -> BTreeMap<String, String> {
    let mut fields = lock.0.clone();
    if let Some(line) = fields.get_mut("s") {
        line.replace_range(2..15, "");
    }
    fields
}

/// From each shape, by each call, by the usual paths and without them, without each right.
#[test]
fn whoever_lacks_a_right_does_all_or_nothing() {
    let server = start("");
    let mut lab = Lab::on(&server);
    let us = lab.now_us();
    let rights = ["on", ">secret", "~*", "&*", "+@all"];
    lab.command::<()>(cmd("ACL").arg("SETUSER").arg("unable").arg(&rights));
    let (mut refused, mut wrong) = (BTreeMap::new(), Vec::new());
    for (machinery, at) in all() {
        lab.machinery = machinery;
        let (_, usual, expected) = called(&mut lab, us, at, None);
        for right in ["-hset", "-hdel", "-pexpireat"] {
            let (before, answer, after) = called(&mut lab, us, at, Some(right));
            // A key that has no end lives on.
            let lives = after.1.is_none() || life(&after) <= after.1;
            let is_right = if answer.is_ok() || status(&answer) == "LOCKARGS" {
                (&answer, &after) == (&usual, &expected)
            } else {
                *refused.entry(right).or_insert(0) += 1;
                // A life that could not be set is the end of a call that has done the rest.
                let is_all = right == "-pexpireat"
                    && but_for_the_life(&after) == but_for_the_life(&expected)
                    && life(&after) == life(&before).or(Some(0));
                after == before || is_all
            };
            if !lives || !is_right {
                wrong.push(format!(
                    "{at:?}, {right}, machinery {machinery}: {answer:?}\n  {before:?}\n  {after:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused.len() == 3 && refused.values().all(|count| *count > 50), "{refused:?}");
}

/// What ann calls, with her token.
type Call = fn(&mut Lab, u64) -> Answer;

#[test]
fn who_may_not_set_changes_nothing() {
    let server = start("");
    let rights = ["on", ">secret", "~*", "&*", "+@all", "-hset"];
    // Readers of whom one in the middle goes, and the last; one writer after another; readers after
    // a writer; a lease that is made longer; a downgrade; an upgrade; what is granted already.
    let cases: [(&[Request], Call); 8] = [
        (&[Request::read("ann1"), Request::read("bob1"), Request::read("cat1")], |lab, _| {
            lab.release("ann1")
        }),
        (&[Request::read("bob1"), Request::read("ann1")], |lab, _| lab.release("ann1")),
        (&[Request::write("ann1"), Request::write("bob1").waiting()], |lab, _| lab.release("ann1")),
        (
            &[
                Request::write("ann1"),
                Request::read("bob1").waiting(),
                Request::write("cat1").waiting(),
            ],
            |lab, _| lab.release("ann1"),
        ),
        (&[Request::write("ann1")], |lab, _| lab.renew("ann1", 60_000)),
        (&[Request::write("ann1"), Request::read("bob1").waiting()], |lab, token| {
            lab.downgrade("ann1", token, 10_000)
        }),
        (&[Request::read("ann1")], |lab, token| lab.upgrade("ann1", token)),
        (&[Request::write("ann1")], |lab, _| lab.write("ann1")),
    ];
    for (number, (requests, call)) in cases.into_iter().enumerate() {
        let mut lab = Lab::on(&server);
        lab.checked = false;
        lab.command::<()>(cmd("ACL").arg("SETUSER").arg("unable").arg(&rights));
        let mut token = 0;
        for request in requests {
            let answer = lab.request(request).unwrap();
            if answer.status == "granted" && token == 0 {
                token = answer.held().token;
            }
        }
        lab.command::<()>(cmd("AUTH").arg("unable").arg("secret"));
        let answer = lab.unchanged(|lab| call(lab, token));
        assert!(answer.is_err(), "case {number}: {answer:?}");
        lab.command::<()>(cmd("AUTH").arg("default").arg("any"));
        assert!(call(&mut lab, token).is_ok(), "case {number}");
    }
}
