//! A key that is not a lock of this version stays unchanged.

use super::arguments;
use super::fixture::{Answer, Expect, GRACE, Lab, id};
use super::request::Request;

/// Calls of each script of a lock, by an acquisition that might hold, wait or request.
fn calls() -> Vec<(&'static str, Vec<String>)> {
    arguments::calls(|script| !script.contains('/'))
}

/// Every script returns this error, and the key stays unchanged.
fn all_refuse(lab: &mut Lab, code: &str) {
    refuse_but(lab, code, |_| false);
}

/// The same, but some calls may be refused the lock, because they need not read what is malformed.
fn refuse_but(lab: &mut Lab, code: &str, may_be_refused: fn(&str) -> bool) {
    lab.checked = false;
    let dump = |lab: &mut Lab| (lab.at_key::<Vec<u8>>("DUMP", &[]), lab.ends());
    let (before, line) = (dump(lab), lab.state().stored.get("s").cloned());
    for (script, args) in calls() {
        let answer = lab.send(script, &args);
        let found = match &answer {
            Ok(reply) if reply.status == "busy" && may_be_refused(script) => Some(code),
            Ok(_) => None,
            Err(refusal) => Some(refusal.code.as_str()),
        };
        assert_eq!(found, Some(code), "{script} {args:?}: {answer:?}, beside {line:?}");
    }
    assert!(dump(lab) == before, "a call has changed what stands beside {line:?}");
}

#[test]
fn a_key_of_another_type() {
    for command in ["SET", "RPUSH"] {
        let mut lab = Lab::new();
        lab.at_key::<()>(command, &["mine"]);
        all_refuse(&mut lab, "WRONGTYPE");
    }
}

#[test]
fn a_hash_that_is_no_lock() {
    let mut lab = Lab::new();
    lab.checked = false;
    lab.set_field("read", "1785000000000");
    lab.set_field("write", "1785000000000");
    all_refuse(&mut lab, "LOCKTYPE");
}

/// A hash of a version before the state line, and one whose line is gone.
#[test]
fn a_lock_without_a_line() {
    let mut lab = Lab::new();
    lab.checked = false;
    for (field, value) in [("version", "1"), ("fence", "1785000000000000"), ("waiters", "1")] {
        lab.set_field(field, value);
    }
    all_refuse(&mut lab, "LOCKTYPE");
    let mut lab = Lab::after("read ann1, read bob1");
    lab.at_key::<()>("HDEL", &["s"]);
    all_refuse(&mut lab, "LOCKTYPE");
}

#[test]
fn a_lock_of_another_version() {
    for version in ["1", "3", "9", "0", "x", "F"] {
        for request in [Request::write("bob1"), Request::read("bob1"), Request::read("ann1")] {
            let mut lab = Lab::new();
            lab.request(&request).granted();
            lab.set_line(|line| format!("{version}{}", &line[1..]));
            all_refuse(&mut lab, "LOCKVERSION");
        }
        for line in [version.to_owned(), format!("{version}{}", "0".repeat(1_000))] {
            let mut lab = Lab::new();
            lab.set_field("s", &line);
            all_refuse(&mut lab, "LOCKVERSION");
            let said = lab.grant_waiters().unwrap_err().detail;
            assert_eq!(said, version, "it says no more than it must");
        }
    }
    for line in ["", " ", "-", "_2F", "\n", "\r\n+OK", "\0", "é"] {
        let mut lab = Lab::new();
        lab.set_field("s", line);
        all_refuse(&mut lab, "LOCKTYPE");
        assert_eq!(lab.grant_waiters().unwrap_err().detail, "malformed s");
    }
}

/// Malformed lines of a lock whose key lives until `life`, with holders until `ends`.
fn malformed_lines(life: u64, ends: u64, token: u64) -> Vec<String> {
    let head = format!("{life:013}{token:016}");
    let (bob, short, long) = (id("bob1"), "a".repeat(11), "a".repeat(41));
    let mut lines: Vec<String> =
        ["", "F", "Q", "W", "R", "S", "FWRSQ"].map(|text| format!("2{text}")).into();
    for shape in ["F", "Q", "W", "R", "S", "X", "f", "2", "_", " ", ""] {
        lines.push(format!("2{shape}{}", &head[..12]));
        lines.push(format!("2{shape}{}", &head[..28]));
        let is_whole = matches!(shape, "F" | "Q");
        lines.extend((!is_whole).then(|| format!("2{shape}{head}")));
        lines.push(format!("2{shape}{head}0"));
        lines.push(format!("2{shape}{head} "));
        lines.push(format!("2{shape}{head}\n"));
        // Letters among the digits; and an invalid token.
        for at in [0, 12, 13, 28] {
            for letter in ["x", "-", " ", "."] {
                let mut odd = head.clone();
                odd.replace_range(at..=at, letter);
                lines.push(format!("2{shape}{odd}"));
                lines.push(format!("2{shape}{odd}{ends:013}0{bob}"));
                lines.push(format!("2{shape}{odd}{ends:013}01"));
            }
        }
        for most in [1_u64 << 53, (1 << 53) + 1, 9_999_999_999_999_999] {
            lines.push(format!("2{shape}{life:013}{most:016}"));
            lines.push(format!("2{shape}{life:013}{most:016}{ends:013}0{bob}"));
            lines.push(format!("2{shape}{life:013}{most:016}{ends:013}01"));
        }
    }
    let tails = ["4", "5", "6", "7", "8", "9", "x", " ", "-"];
    for shape in ["W", "R"] {
        lines.extend(tails.map(|flags| format!("2{shape}{head}{ends:013}{flags}{bob}")));
        for no_id in [
            "",
            "-",
            "1",
            &short,
            &long,
            "bob:_________001",
            "bob _________001",
            "bob\n12345678901",
        ] {
            lines.push(format!("2{shape}{head}{ends:013}0{no_id}"));
        }
        lines.push(format!("2{shape}{head}{:012}0{bob}", ends / 10));
        lines.push(format!("2{shape}{head}{:012}x0{bob}", ends / 10));
    }
    lines.extend(tails.map(|flags| format!("2S{head}{ends:013}{flags}2")));
    for count in
        ["", "0", "00", "01", "-1", "x", "1x", "2 ", " 2", "1.5", "0x2", "1e1", "2\n", &bob]
    {
        lines.push(format!("2S{head}{ends:013}0{count}"));
    }
    lines.push(format!("2S{head}{:012}x02", ends / 10));
    lines
}

/// A refused try need not read more than the holder's deadline.
#[test]
fn lock_with_a_malformed_line_is_refused_as_foreign() {
    for lives in [false, true] {
        let mut lab = Lab::new();
        let now = lab.now();
        let ends = if lives { now + 10_000 } else { now - 1 };
        for line in malformed_lines(now + 10_000 + GRACE, ends, now * 1000 - 5) {
            lab.delete();
            lab.set_field("s", &line);
            let may_be_refused: fn(&str) -> bool =
                if lives { |script| script.starts_with("acquire") } else { |_| false };
            refuse_but(&mut lab, "LOCKTYPE", may_be_refused);
        }
    }
}

/// The usual calls of a holder need not check whether a token is out of range. All others do.
#[test]
fn a_malformed_line_of_the_caller() {
    let mut lab = Lab::new();
    let now = lab.now();
    for line in malformed_lines(now + 10_000 + GRACE, now + 10_000, now * 1000 - 5) {
        lab.delete();
        lab.read("bob1").granted();
        let reader_token = lab.read("ann1").granted().token;
        lab.set_field("s", &line.replace(&id("bob1"), &id("ann1")));
        let mut meet = vec![
            "grant_waiters",
            "inspect",
            "revoke",
            "force_release",
            "downgrade",
            "accept_transfer",
        ];
        let line_token = line.get(15..31).and_then(|token| token.parse::<u64>().ok());
        let is_token_checked = line_token < Some(1 << 53);
        if is_token_checked {
            meet.extend(["release", "renew", "upgrade"]);
        }
        typed(&mut lab, &meet);
        // The renewals above name another token than the line and the record have.
        for token in line_token.into_iter().chain([reader_token]).filter(|_| is_token_checked) {
            for mode in ["r", "w"] {
                let answer = lab.renew_as("ann1", 60_000, mode, token);
                let code = answer.map_err(|refusal| refusal.code);
                assert_eq!(code.unwrap_err(), "LOCKTYPE", "{line:?}");
            }
        }
        lab.checked = true;
    }
}

/// Calls that read what is malformed return an error. The others may go on. None fails in any other
/// way.
fn typed(lab: &mut Lab, meet: &[&str]) {
    lab.checked = false;
    let snapshot = lab.snapshot();
    let restore = |lab: &mut Lab| {
        lab.delete();
        for (field, value) in &snapshot.1 {
            lab.set_field(field, value);
        }
        lab.at_key::<()>("PEXPIREAT", &[&snapshot.2.unwrap().to_string()]);
    };
    let (mut met, mut went) = (Vec::new(), Vec::new());
    for (script, args) in calls() {
        // This call takes the slow path, whatever the other release does.
        let waits = args.iter().any(|word| word == "wait");
        let name = if waits { "release wait" } else { script };
        let answer: Answer = lab.send(script, &args);
        match &answer {
            Ok(_) => {
                went.push(name);
                restore(lab);
            }
            Err(refusal) => {
                assert!(
                    refusal.code == "LOCKTYPE" || refusal.code == "LOCKARGS",
                    "{script} {args:?}: {refusal:?} in {:#?}",
                    snapshot.1
                );
                assert_eq!(lab.snapshot().1, snapshot.1, "{script} {args:?}");
                met.push(name);
            }
        }
    }
    for script in meet {
        let all = met.contains(script) && !went.contains(script);
        assert!(all, "{script} goes by {:#?}", snapshot.1);
    }
}

#[test]
fn a_malformed_holder() {
    for text in
        ["", "h", "nonsense", "h17850000000", "hxxxxxxxxxxxxxxxxxxxxxxxxxxxxxabcdefghijklmnop"]
    {
        let mut lab = Lab::after("write bob1, wait_write cat1");
        lab.set_field("writer", text);
        typed(
            &mut lab,
            &[
                "acquire_write",
                "acquire_read",
                "grant_waiters",
                "downgrade",
                "revoke",
                "force_release",
            ],
        );

        let mut lab = Lab::after("read bob1, read ann1");
        lab.set_field(&format!("r:{}", id("ann1")), text);
        typed(&mut lab, &["acquire_read", "upgrade"]);

        // No record is read while no holder can be dead.
        let mut lab = Lab::after("read bob1, read cat1, read ann1");
        lab.set_field(&format!("r:{}", id("cat1")), text);
        lab.pass(10_000);
        typed(&mut lab, &["acquire_write", "grant_waiters"]);
    }
}

#[test]
fn a_hole_among_the_readers() {
    let mut lab = Lab::new();
    for name in ["ann1", "bob1", "cat1"] {
        lab.read(name).granted();
    }
    lab.checked = false;
    lab.at_key::<()>("HDEL", &["i:2"]);
    typed(&mut lab, &["release"]);
    lab.set_field("i:2", &id("dan1"));
    typed(&mut lab, &["release"]);
    lab.set_field("r:".to_string().as_str(), "x");
    lab.pass(10_000);
    typed(&mut lab, &["acquire_write", "grant_waiters"]);
}

const BAD_NUMBERS: [&str; 7] = ["", "x", "nan", "1 2", "inf", "-1", "0.5"];

#[test]
fn lock_with_a_malformed_number_returns_typed_errors_only() {
    let fields = [
        "readers",
        "read_min",
        "waiters",
        "fair_writers",
        "ticket",
        "reader_phase",
        "lapsed_clients",
        "sweep",
        "revoked_up_to",
        "forced_up_to",
    ];
    for field in fields {
        for text in BAD_NUMBERS {
            let mut lab = Lab::after("read bob1, read ann1, wait_write cat1, wait_read dan1");
            lab.set_field(field, text);
            typed(&mut lab, &[]);
            lab.pass(10_000);
            typed(&mut lab, &[]);
        }
    }
    for field in ["readers", "cached_readers", "recall_cursor"] {
        for text in BAD_NUMBERS {
            let mut lab = Lab::after("cached_read ann1, cached_read bob1, wait_write cat1");
            lab.set_field(field, text);
            typed(&mut lab, &[]);
        }
    }
    for field in ["ticket", "reader_phase", "lapsed_clients"] {
        for text in BAD_NUMBERS {
            let mut lab = Lab::after("read bob1, read ann1, wait_write cat1, release cat1");
            assert_eq!(lab.shape().0, "S2");
            lab.set_field(field, text);
            typed(&mut lab, &[]);
        }
    }
}

#[test]
fn a_malformed_queue() {
    for text in ["", "w", "w - - 1 2 3", "w - - x 2 3 4 5 f - -"] {
        let mut lab = Lab::after("write bob1, wait_write cat1");
        lab.set_field(&format!("q:{}", id("cat1")), text);
        lab.pass(10_000);
        typed(&mut lab, &["acquire_write", "grant_waiters"]);
    }
    let mut lab = Lab::after("write bob1, wait_write cat1");
    lab.set_field("writers_head", &id("nobody1"));
    lab.pass(10_000);
    typed(&mut lab, &[]);
}

/// Lua's numbers are exact up to 2^53. From there on scripts mint no token, because two
/// acquisitions would get the same one.
#[test]
fn tokens_end_before_they_repeat() {
    let mut lab = Lab::after("write ann1");
    let last = (1_u64 << 53) - 1;
    let set_token = |lab: &mut Lab, token: u64| {
        lab.set_line(|line| format!("{}{token:016}{}", &line[..15], &line[31..]));
    };
    set_token(&mut lab, last - 1);
    lab.checked = false;
    lab.release("ann1").unwrap();
    assert_eq!(lab.write("bob1").granted().token, last);
    assert_eq!(lab.wait_read("cat1").queued(), 1);
    let malformed = |answer: Answer, what: &str| {
        answer.refused_with("LOCKTYPE");
        assert_eq!(answer.unwrap_err().detail, format!("malformed {what}"));
    };
    // No call can grant it any more, and none changes anything.
    let before = lab.state().stored;
    malformed(lab.release("bob1"), "fence");
    malformed(lab.force(), "fence");
    assert_eq!(lab.state().stored, before);
    assert_eq!(lab.release("cat1").status(), "left_queue");
    assert_eq!(lab.release("bob1").status(), "released");
    for (token, what) in [(last, "fence"), (last + 1, "s"), (last + 2, "s")] {
        set_token(&mut lab, token);
        for _ in 0..2 {
            malformed(lab.write("dan1"), what);
            malformed(lab.read("dan1"), what);
            malformed(lab.wait_write("dan1"), what);
        }
    }
}
