//! A key that is no lock of this version is left as it was.

use redis::cmd;

use super::lab::{Answer, Expect, HERE, Lab, id};
use super::request::Request;

/// A call of every script, by one who might hold, wait or want.
fn calls(lab: &Lab) -> Vec<(&'static str, Vec<String>)> {
    let _ = lab;
    let request = |request: Request| {
        let args = request.args().into_iter().map(String::from).collect();
        (request.script(), args)
    };
    let words =
        |script, words: &[&str]| (script, words.iter().map(|word| word.to_string()).collect());
    let ann = id("ann1");
    vec![
        request(Request::read("ann1")),
        request(Request::read("ann1").waiting()),
        request(Request::read("ann1").waiting().ticket(1)),
        request(Request::write("ann1")),
        request(Request::write("ann1").waiting()),
        request(Request::write("ann1").waiting().ticket(1)),
        request(Request::upgrade("ann1", 1)),
        request(Request::upgrade("ann1", 1).waiting()),
        words("release", &[HERE, "0", &ann, "all"]),
        words("release", &[HERE, "0", &ann, "wait"]),
        words("renew", &[HERE, "0", &ann, "1000"]),
        words("downgrade", &[HERE, "0", &ann, "1", "1000"]),
        words("pump", &[HERE, "0"]),
        words("revoke", &[HERE, "0", "1"]),
        words("force_release", &[HERE, "0", "1"]),
        words("inspect", &[HERE, "0", "0", "-", "-", "10"]),
        words("holds", &[HERE, "0", &ann]),
        words("raise_token", &[HERE, "0", &ann, "1"]),
    ]
}

/// Every script gives this error, and the key stays as it was.
fn all_refuse(lab: &mut Lab, code: &str) {
    lab.checked = false;
    let dump = |lab: &mut Lab| {
        let key = lab.key().to_string();
        (lab.command::<Vec<u8>>(cmd("DUMP").arg(&key)), lab.ends())
    };
    let before = dump(lab);
    for (script, args) in calls(lab) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer = lab.send(script, &args);
        let found = answer.as_ref().map_err(|refusal| refusal.code.as_str()).err();
        assert_eq!(found, Some(code), "{script} {args:?}: {answer:?}");
        assert!(dump(lab) == before, "{script} changed it");
    }
}

#[test]
fn a_key_of_another_type() {
    let mut lab = Lab::new();
    let key = lab.key().to_string();
    lab.command::<()>(cmd("SET").arg(&key).arg("mine"));
    all_refuse(&mut lab, "WRONGTYPE");

    let mut lab = Lab::new();
    let key = lab.key().to_string();
    lab.command::<()>(cmd("RPUSH").arg(&key).arg("mine"));
    all_refuse(&mut lab, "WRONGTYPE");
}

#[test]
fn a_hash_that_is_no_lock() {
    let mut lab = Lab::new();
    lab.checked = false;
    lab.set_field("read", "1785000000000");
    lab.set_field("write", "1785000000000");
    all_refuse(&mut lab, "LOCKFOREIGN");
}

#[test]
fn a_lock_of_another_version() {
    for version in ["2", "10", "", "1.0", "x\r\n+OK"] {
        let mut lab = Lab::new();
        lab.write("bob1").granted();
        lab.set_field("version", version);
        all_refuse(&mut lab, "LOCKVERSION");
    }
    let mut lab = Lab::new();
    lab.checked = false;
    lab.set_field("version", &"9".repeat(1000));
    let answer = lab.pump();
    assert!(answer.unwrap_err().detail.len() < 100, "it says no more than it must");
}

/// Calls that meet what is malformed say so; those that need not look at it may go on. None fails
/// in any other way.
fn typed(lab: &mut Lab, meet: &[&str]) {
    lab.checked = false;
    let snapshot = lab.snapshot();
    let restore = |lab: &mut Lab| {
        let key = lab.key().to_string();
        lab.delete();
        for (field, value) in &snapshot.1 {
            lab.set_field(field, value);
        }
        lab.command::<()>(cmd("PEXPIREAT").arg(key).arg(snapshot.2.unwrap()));
    };
    let mut met = Vec::new();
    for (script, args) in calls(lab) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer: Answer = lab.send(script, &args);
        match &answer {
            Ok(_) => restore(lab),
            Err(refusal) => {
                assert!(
                    refusal.code == "LOCKFOREIGN" || refusal.code == "LOCKARGS",
                    "{script} {args:?}: {refusal:?} in {:#?}",
                    snapshot.1
                );
                assert_eq!(lab.snapshot().1, snapshot.1, "{script} {args:?}");
                met.push(script);
            }
        }
    }
    for script in meet {
        assert!(met.contains(script), "{script} goes by {:#?}", snapshot.1);
    }
}

#[test]
fn a_malformed_holder() {
    for text in
        ["", "h", "nonsense", "h17850000000", "hxxxxxxxxxxxxxxxxxxxxxxxxxxxxxabcdefghijklmnop"]
    {
        let mut lab = Lab::new();
        lab.write("bob1").granted();
        lab.set_field("writer", text);
        typed(
            &mut lab,
            &["acquire_write", "acquire_read", "pump", "downgrade", "revoke", "force_release"],
        );

        let mut lab = Lab::new();
        lab.read("bob1").granted();
        lab.read("ann1").granted();
        lab.set_field(&format!("r:{}", id("ann1")), text);
        typed(&mut lab, &["acquire_read", "upgrade", "release", "renew"]);

        // Nobody's record is read as long as none can be dead.
        let mut lab = Lab::new();
        lab.read("bob1").granted();
        lab.read("cat1").granted();
        lab.read("ann1").granted();
        lab.set_field(&format!("r:{}", id("cat1")), text);
        lab.pass(10_000);
        typed(&mut lab, &["acquire_write", "pump"]);
    }
}

#[test]
fn a_hole_among_the_readers() {
    let mut lab = Lab::new();
    for name in ["ann1", "bob1", "cat1"] {
        lab.read(name).granted();
    }
    lab.checked = false;
    let key = lab.key().to_string();
    lab.command::<()>(cmd("HDEL").arg(&key).arg("i:2"));
    typed(&mut lab, &["release"]);
    lab.set_field("i:2", &id("dan1"));
    typed(&mut lab, &["release"]);
    lab.set_field("r:".to_string().as_str(), "x");
    lab.pass(10_000);
    typed(&mut lab, &["acquire_write", "pump"]);
}

#[test]
fn a_malformed_number() {
    for field in ["fence", "readers", "read_min", "until"] {
        for text in ["", "x", "nan", "1 2"] {
            let mut lab = Lab::new();
            lab.read("bob1").granted();
            lab.set_field(field, text);
            typed(&mut lab, &[]);
            lab.pass(10_000);
            typed(&mut lab, &[]);
        }
    }
    for field in ["waiters", "fair", "ticket", "phase", "lapsed", "sweep", "revoked", "forced"] {
        for text in ["", "x", "nan"] {
            let mut lab = Lab::new();
            lab.read("bob1").granted();
            lab.read("ann1").granted();
            lab.wait_write("cat1").queued();
            lab.wait_read("dan1").queued();
            lab.set_field(field, text);
            typed(&mut lab, &[]);
            lab.pass(10_000);
            typed(&mut lab, &[]);
        }
    }
}

#[test]
fn a_malformed_queue() {
    for text in ["", "w", "w - - 1 2 3", "w - - x 2 3 4 5 f - -"] {
        let mut lab = Lab::new();
        lab.write("bob1").granted();
        lab.wait_write("cat1").queued();
        lab.set_field(&format!("q:{}", id("cat1")), text);
        lab.pass(10_000);
        typed(&mut lab, &["acquire_write", "pump"]);
    }
    let mut lab = Lab::new();
    lab.write("bob1").granted();
    lab.wait_write("cat1").queued();
    lab.set_field("writers_head", &id("nobody1"));
    lab.pass(10_000);
    typed(&mut lab, &[]);
}

/// Lua's numbers are exact up to 2^53: what would be minted from there on is refused, for two would
/// get the same.
#[test]
fn tokens_end_before_they_repeat() {
    let mut lab = Lab::new();
    lab.write("ann1").granted();
    let last = (1_u64 << 53) - 1;
    lab.set_field("fence", &(last - 1).to_string());
    lab.command::<()>(cmd("PERSIST").arg(lab.key()));
    lab.checked = false;
    lab.release("ann1").unwrap();
    assert_eq!(lab.write("bob1").granted().token, last);
    assert_eq!(lab.wait_read("cat1").queued(), 1);
    let malformed = |answer: Answer| {
        answer.refused_with("LOCKFOREIGN");
        assert!(answer.unwrap_err().detail.contains("malformed fence"));
    };
    // Nobody can be granted it any more, by whichever call; and nothing is changed.
    let before = lab.state().fields;
    malformed(lab.release("bob1"));
    malformed(lab.force());
    assert_eq!(lab.state().fields, before);
    assert_eq!(lab.release("cat1").status(), "left");
    assert_eq!(lab.release("bob1").status(), "released");
    for fence in [last, last + 1, last + 2] {
        lab.set_field("fence", &fence.to_string());
        for _ in 0..2 {
            malformed(lab.write("dan1"));
            malformed(lab.read("dan1"));
            malformed(lab.wait_write("dan1"));
        }
    }
}
