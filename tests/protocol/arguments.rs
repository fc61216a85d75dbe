//! Arguments are checked before anything is written, whatever state the lock is in.

use super::lab::{Expect, HERE, Lab, id};

const NO_NUMBER: [&str; 11] =
    ["", "x", "-1", "1.5", "nan", "-nan", "inf", "-inf", "1e300", "99999999999999999999", "1 2"];
const NO_ID: [&str; 8] = [
    "",
    "-",
    "tooshort123",
    "a41characterslongownerthatisjusttoolong11",
    "with space1234",
    "colon:12345678",
    "brace{12345678",
    "nul\0l12345678",
];
const NO_WORD: [&str; 5] = ["", "a b", "a:b", "{a}", "\n"];

/// A valid value, and the kind of value it is.
#[derive(Clone, Copy)]
enum Kind {
    /// Not judged: the server's name, and `not_after` where it means nothing.
    Any(&'static str),
    NotAfter,
    Id(&'static str),
    /// From 1.
    Span(&'static str),
    /// From 0.
    Count(&'static str),
    Token,
    Word(&'static str, usize),
    OneOf(&'static str),
}

use Kind::{Any, Count, Id, NotAfter, OneOf, Span, Token, Word};

const ACQUIRE: [Kind; 5] = [Any(HERE), NotAfter, Id("new1"), Span("1000"), OneOf("f")];
const WAITING: [Kind; 6] =
    [Span("100"), Span("1000"), Count("0"), Count("10"), Word("-", 40), Word("-", 8)];
const UPGRADE: [Kind; 5] = [Any(HERE), NotAfter, Id("new1"), Span("1000"), Token];
const PLAIN: [Kind; 2] = [Any(HERE), Any("0")];
const RELEASE: [Kind; 4] = [Any(HERE), Any("0"), Id("new1"), OneOf("all")];
const RENEW: [Kind; 4] = [Any(HERE), Any("0"), Id("new1"), Span("1000")];
const DOWNGRADE: [Kind; 5] = [Any(HERE), Any("0"), Id("new1"), Token, Span("1000")];
const SEIZE: [Kind; 3] = [Any(HERE), Any("0"), Token];
const HOLDS: [Kind; 3] = [Any(HERE), Any("0"), Id("new1")];
const RAISE_TOKEN: [Kind; 4] = [Any(HERE), Any("0"), Id("new1"), Token];
const MUTEX_ACQUIRE: [Kind; 4] = [Any(HERE), NotAfter, Id("new1"), Span("1000")];
const INSPECT: [Kind; 6] =
    [Any(HERE), Any("0"), Count("0"), Word("-", 40), Word("-", 40), Span("10")];

fn scripts() -> Vec<(&'static str, Vec<Kind>)> {
    let waiting = |kinds: [Kind; 5]| kinds.into_iter().chain(WAITING).collect::<Vec<_>>();
    vec![
        ("acquire_read", ACQUIRE.into()),
        ("acquire_write", ACQUIRE.into()),
        ("acquire_read", waiting(ACQUIRE)),
        ("acquire_write", waiting(ACQUIRE)),
        ("upgrade", UPGRADE.into()),
        ("upgrade", waiting(UPGRADE)),
        ("release", RELEASE.into()),
        ("renew", RENEW.into()),
        ("downgrade", DOWNGRADE.into()),
        ("pump", PLAIN.into()),
        ("revoke", SEIZE.into()),
        ("force_release", SEIZE.into()),
        ("inspect", INSPECT.into()),
        ("holds", HOLDS.into()),
        ("raise_token", RAISE_TOKEN.into()),
        ("mutex/acquire", MUTEX_ACQUIRE.into()),
        ("mutex/renew", RENEW.into()),
        ("mutex/release", HOLDS.into()),
        ("mutex/inspect", PLAIN.into()),
    ]
}

impl Kind {
    fn valid(self) -> String {
        match self {
            Any(text) | Span(text) | Count(text) | Word(text, _) | OneOf(text) => text.into(),
            NotAfter => "0".into(),
            Id(name) => id(name),
            Token => "1".into(),
        }
    }

    fn invalid(self) -> Vec<String> {
        let mut bad: Vec<String> = Vec::new();
        match self {
            Any(_) => {}
            NotAfter | Count(_) => bad.extend(NO_NUMBER.map(String::from)),
            Span(_) | Token => {
                bad.extend(NO_NUMBER.map(String::from));
                bad.push("0".into());
            }
            Id(_) => bad.extend(NO_ID.map(String::from)),
            Word(_, longest) => {
                bad.extend(NO_WORD.map(String::from));
                bad.push("a".repeat(longest + 1));
            }
            OneOf(_) => bad.extend(["", "x", "F", "ff", "All", "waits"].map(String::from)),
        }
        bad
    }
}

/// The states in which a call may find a lock: they take different ways through the scripts.
fn states() -> Vec<(&'static str, Lab)> {
    let absent = Lab::new();
    let mut idle = Lab::new();
    idle.write("old1").granted();
    idle.release("old1").status();
    let mut written = Lab::new();
    written.write("old1").granted();
    let mut read = Lab::new();
    read.read("old1").granted();
    let mut waited_for = Lab::new();
    waited_for.write("old1").granted();
    waited_for.wait_read("old2").queued();
    waited_for.wait_write("old3").queued();
    let mut mine = Lab::new();
    mine.write("new1").granted();
    vec![
        ("absent", absent),
        ("idle", idle),
        ("written", written),
        ("read", read),
        ("waited for", waited_for),
        ("mine", mine),
    ]
}

#[test]
fn a_bad_argument_is_refused_and_changes_nothing() {
    for (state, mut lab) in states() {
        for (script, kinds) in scripts() {
            for (at, kind) in kinds.iter().enumerate() {
                for bad in kind.invalid() {
                    let mut args: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
                    args[at] = bad;
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    let answer = lab.unchanged(|lab| lab.send(script, &args));
                    let code = answer.as_ref().map_err(|refusal| refusal.code.as_str());
                    assert_eq!(
                        code.err(),
                        Some("LOCKARGS"),
                        "{state}: {script} {args:?}: {answer:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_missing_or_surplus_argument_is_refused_and_changes_nothing() {
    for (state, mut lab) in states() {
        for (script, kinds) in scripts() {
            let valid: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
            let counts = [5, 11].into_iter().filter(|_| kinds.len() >= 5).chain([kinds.len()]);
            let counts: Vec<usize> = counts.collect();
            for count in (0..valid.len() + 3).filter(|count| !counts.contains(count)) {
                let mut args: Vec<&str> = valid.iter().map(String::as_str).take(count).collect();
                args.resize(count, "1");
                let answer = lab.unchanged(|lab| lab.send(script, &args));
                let code = answer.as_ref().map_err(|refusal| refusal.code.as_str());
                assert_eq!(code.err(), Some("LOCKARGS"), "{state}: {script} {args:?}: {answer:?}");
            }
        }
    }
}

#[test]
fn a_script_has_one_key() {
    for (state, mut lab) in states() {
        for (script, kinds) in scripts() {
            let args: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            for count in [0, 2] {
                let keys = vec![lab.key().to_string(); count];
                let answer = lab.unchanged(|lab| lab.send_keys(script, &keys, &args));
                let code = answer.as_ref().map_err(|refusal| refusal.code.as_str());
                assert_eq!(
                    code.err(),
                    Some("LOCKARGS"),
                    "{state}: {script} with {count} keys: {answer:?}"
                );
            }
        }
    }
}

#[test]
fn the_longest_lease_and_the_longest_owner_are_good() {
    let mut lab = Lab::new();
    let longest = "a".repeat(40);
    let lease = "1000000000000";
    let granted =
        lab.send("acquire_write", &[HERE, "9999999999999", &longest, lease, "f"]).granted();
    assert_eq!(granted.deadline, lab.now() + 1_000_000_000_000);
    assert_eq!(lab.send("release", &[HERE, "0", &longest, "all"]).status(), "released");

    let too_long = ["1000000000001", "9999999999999", "1e12.5"];
    for lease in too_long {
        lab.send("acquire_write", &[HERE, "0", &longest, lease, "f"]).refused_with("LOCKARGS");
    }
    let waits =
        [HERE, "0", &longest, lease, "r", lease, lease, "0", "9999999999999", &longest, "aaaaaaaa"];
    lab.send("acquire_read", &waits).granted();
}

#[test]
fn a_call_that_comes_too_late_does_nothing() {
    for (state, mut lab) in states() {
        lab.pass(10);
        for (script, kinds) in scripts() {
            if !matches!(kinds[1], NotAfter) {
                continue;
            }
            let mut args: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
            args[1] = (lab.now() - 1).to_string();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let answer = lab.unchanged(|lab| lab.send(script, &args)).unwrap();
            assert_eq!(
                (answer.status.as_str(), answer.more),
                ("stale", false),
                "{state}: {script}"
            );
            assert_eq!((answer.now, answer.rest.len()), (lab.now(), 0));
        }
    }
    let mut lab = Lab::new();
    let just_in_time = lab.now().to_string();
    lab.send("acquire_write", &[HERE, &just_in_time, &id("ann1"), "1000", "f"]).granted();
}
