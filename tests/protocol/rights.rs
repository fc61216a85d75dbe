//! A user who has lost the right to set: whatever would need it is refused, and the lock stays as
//! it was.

use redis::cmd;

use super::lab::{Answer, Lab, start};
use super::request::Request;

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
