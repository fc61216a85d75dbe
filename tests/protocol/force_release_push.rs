//! What a forced release publishes to the clients whose leases it ends.

use redis::cmd;

use super::fixture::{Expect, HERE, Lab, alone, id, start};
use super::request::Request;
use super::state_line_shapes::follow;

/// The number of readers that one call sweeps.
const LOOKS: usize = 16;

/// The message that this lease has ended.
fn end(lab: &Lab, name: &str, token: u64) -> String {
    format!("{} f {} {token}", lab.now(), id(name))
}

/// Holders that are plain, cached, in use, granted but not claimed, or downgraded; alone and beside
/// a queue.
#[test]
fn a_holder_is_told_of_its_end_by_its_own_token() {
    let starts = [
        "write ann",
        "read ann",
        "cached_write ann",
        "cached_read ann",
        "cached_write ann, renew ann",
        "write cat, wait_write ann, release cat",
        "write ann, downgrade ann",
    ];
    for start in starts {
        for waits in [false, true] {
            let (_server, mut lab) = alone();
            follow(&mut lab, start);
            if waits {
                lab.wait_write("bob1").queued();
            }
            let token = lab.token_of("ann");
            let ann = lab.listen_as("ann");
            assert_eq!(lab.force().status(), "forced", "{start}");
            let told = end(&lab, "ann", token);
            ann.hears(&mut lab, vec![told]);
            assert_eq!(lab.state().writes().is_some(), waits);
        }
    }
}

#[test]
fn force_release_does_not_notify_later_or_expired_holders() {
    let (_server, mut lab) = alone();
    let first = lab.write("bob1").granted().token;
    lab.release("bob1").unwrap();
    lab.write("ann1").granted();
    let ann = lab.listen_as("ann");
    assert_eq!(lab.force_up_to(first).status(), "not_locked", "she has a newer token");
    lab.release("ann1").unwrap();
    // A holder whose lease has ended.
    lab.request(&Request::write("ann2").lease(100)).granted();
    lab.pass(100);
    assert_eq!(lab.force().status(), "not_locked");
    lab.run("read/100 ann3, read bob2, pass 100");
    assert_eq!(lab.force().status(), "forced");
    ann.hears(&mut lab, vec![]);
}

/// Each reader gets one message, whatever the number of calls. A repeated call sends none.
#[test]
fn force_release_of_many_readers_notifies_each_once() {
    let (_server, mut lab) = alone();
    let tokens: Vec<u64> =
        (0..40).map(|reader| lab.read(&format!("ann{reader}")).granted().token).collect();
    let ends = |lab: &Lab, readers: std::ops::Range<usize>| {
        readers.rev().map(|at| end(lab, &format!("ann{at}"), tokens[at])).collect()
    };
    for (call, readers) in
        [40 - LOOKS..40, 40 - 2 * LOOKS..40 - LOOKS, 0..40 - 2 * LOOKS].into_iter().enumerate()
    {
        let ann = lab.listen_as("ann");
        let more = match call {
            0 => lab.force_up_to(tokens[39]).unwrap().more,
            _ => lab.grant_waiters().unwrap().more,
        };
        assert_eq!(more, call < 2);
        let expected = ends(&lab, readers);
        ann.hears(&mut lab, expected);
    }
    let ann = lab.listen_as("ann");
    assert_eq!(lab.force_up_to(tokens[39]).status(), "not_locked");
    lab.grant_waiters().unwrap();
    ann.hears(&mut lab, vec![]);
    assert_eq!(lab.shape().0, "F");
}

/// A release that sweeps readers has no tag, and so sends no messages.
#[test]
fn a_call_without_a_tag_tells_nobody() {
    let (_server, mut lab) = alone();
    for reader in 0..20 {
        lab.read(&format!("ann{reader}")).granted();
    }
    lab.force().unwrap();
    let ann = lab.listen_as("ann");
    assert_eq!(lab.release("ann0").status(), "force_released");
    lab.grant_all();
    ann.hears(&mut lab, vec![]);
    assert_eq!(lab.shape().0, "F");
}

#[test]
fn a_full_memory_does_not_keep_it_from_them() {
    for waits in [false, true] {
        let (_server, mut lab) = alone();
        let token = lab.write("ann1").granted().token;
        if waits {
            lab.wait_write("bob1").queued();
        }
        let ann = lab.listen_as("ann");
        lab.set_full(true);
        assert_eq!(lab.force().status(), "forced");
        lab.set_full(false);
        let told = end(&lab, "ann1", token);
        ann.hears(&mut lab, vec![told]);
    }
}

/// The reply and the lock are the same, with and without a message.
#[test]
fn force_release_without_the_publish_right_succeeds() {
    let server = start("");
    let mut lab = Lab::on(&server);
    let mut rights = vec!["on", ">secret", "~*", "&*", "+@all"];
    rights.extend(lab.has_push().then_some("-spublish")); // 6.2 has no such right
    lab.command::<()>(cmd("ACL").arg("SETUSER").arg("mute").arg(&rights));
    for readers in [0, 1, 20] {
        if readers == 0 {
            lab.write("ann1").granted();
        }
        for reader in 0..readers {
            lab.read(&format!("ann{reader}")).granted();
        }
        lab.wait_write("bob1").queued();
        let (token, ann) = (lab.last_token().to_string(), lab.listen_as("ann"));
        lab.command::<()>(cmd("AUTH").arg("mute").arg("secret"));
        let forced = lab.send("force_release", &[HERE, &token, "0"]);
        lab.command::<()>(cmd("AUTH").arg("default").arg("any"));
        assert_eq!(forced.status(), "forced");
        assert_eq!(ann.heard(), [""; 0]);
        lab.grant_all();
        assert_eq!(lab.state().writes(), Some(id("bob1")));
        lab.release("bob1").unwrap();
    }
}
