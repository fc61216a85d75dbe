//! Arguments are checked before anything is written, whatever state the lock is in.

use std::iter;

use super::fixture::{Expect, HERE, Lab, id};

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

/// Invalid flags, and counts of tokens that are invalid for a request that is not to be cached.
const NO_FLAGS: [&str; 10] = ["", "x", "F", "ff", "fr", "k", "t", "ftk", "fkk", "kt"];
const NO_TOKENS: [&str; 7] = ["", "0", "2", "1.0", "01", "x", "-1"];

/// A valid value, and the kind of value it is.
#[derive(Clone, Copy)]
enum Kind {
    /// Not checked: the server's name.
    Any(&'static str),
    NotAfter,
    Id(&'static str),
    /// At least 1.
    Span(&'static str),
    /// At least 0.
    Count(&'static str),
    Token,
    /// A number of permits.
    Number(&'static str),
    Word(&'static str, usize),
    Flags,
    Tokens,
    /// The tokens of a cached holder.
    Block,
    OneOf(&'static str),
    /// At most 256 printable characters.
    Description,
    /// Checked only if the caller must wait.
    Place,
}

use Kind::{
    Any, Block, Count, Description, Flags, Id, NotAfter, Number, OneOf, Place, Span, Token, Tokens,
    Word,
};

const SERVER: Kind = Any(HERE);
const ANN: Kind = Id("ann1");
const EVE: Kind = Id("eve1");
const TAG: Kind = Word("0", 8);
const ACQUIRE: [Kind; 9] =
    [SERVER, NotAfter, ANN, Span("1000"), Flags, Tokens, TAG, Place, Span("1")];
const PERMITS: [Kind; 9] =
    [SERVER, NotAfter, ANN, Span("1000"), Number("1"), Number("10"), TAG, Place, Span("1")];
const UPGRADE: [Kind; 7] = [SERVER, NotAfter, ANN, Span("1000"), Token, TAG, Place];
/// A writer of a fenced value: the lock, the token, the writer, its sequence and predecessor, and
/// the retention.
const WRITER: [Kind; 7] = [SERVER, Any("lock"), Token, ANN, Token, Any("-"), Span("1000")];
const INSPECT: [Kind; 5] = [SERVER, Count("0"), Word("-", 40), Word("-", 40), Span("10")];

/// Each script with its arguments. A script that can wait is listed with those of a try, of a first
/// call and of a later call.
fn scripts() -> Vec<(&'static str, Vec<Kind>)> {
    vec![
        ("acquire_read", ACQUIRE[..7].into()),
        ("acquire_write", ACQUIRE[..7].into()),
        ("acquire_read", ACQUIRE[..8].into()),
        ("acquire_write", ACQUIRE[..8].into()),
        ("acquire_read", ACQUIRE.into()),
        ("acquire_write", ACQUIRE.into()),
        ("upgrade", UPGRADE[..6].into()),
        ("upgrade", UPGRADE.into()),
        ("release", vec![SERVER, ANN]),
        ("release", vec![SERVER, ANN, OneOf("wait")]),
        ("release", vec![SERVER, ANN, Span("1")]),
        ("renew", vec![SERVER, ANN, Span("1000"), OneOf("r"), Token]),
        ("renew", vec![SERVER, ANN, Span("1000"), OneOf("w"), Token]),
        ("renew", vec![SERVER, ANN, Span("1000"), OneOf("w"), Token, Block]),
        ("downgrade", vec![SERVER, ANN, Token, Span("1000")]),
        ("downgrade", vec![SERVER, ANN, Token, Span("1000"), OneOf("k")]),
        ("grant_waiters", vec![SERVER, TAG]),
        ("revoke", vec![SERVER, Token, TAG]),
        ("force_release", vec![SERVER, Token, TAG]),
        ("inspect", INSPECT.into()),
        ("holds", vec![SERVER, ANN]),
        ("raise_token", vec![SERVER, ANN, Token]),
        ("accept_transfer", vec![SERVER, NotAfter, EVE, Span("1000"), OneOf("r"), ANN, Token]),
        ("accept_transfer", vec![SERVER, NotAfter, EVE, Span("1000"), OneOf("w"), ANN, Token]),
        ("set_nx/acquire", vec![SERVER, NotAfter, ANN, Span("1000")]),
        ("set_nx/renew", vec![SERVER, ANN, Span("1000")]),
        ("set_nx/release", vec![SERVER, ANN]),
        ("set_nx/inspect", vec![SERVER]),
        ("semaphore/acquire", PERMITS[..7].into()),
        ("semaphore/acquire", PERMITS[..8].into()),
        ("semaphore/acquire", PERMITS.into()),
        ("semaphore/renew", vec![SERVER, ANN, Span("1000"), Number("1"), Token]),
        ("semaphore/release", vec![SERVER, ANN]),
        ("semaphore/release_permits", vec![SERVER, ANN, Number("1")]),
        ("semaphore/grant_waiters", vec![SERVER]),
        ("semaphore/set_limit", vec![SERVER, NotAfter, Number("5"), Number("10")]),
        ("semaphore/inspect", vec![SERVER, Count("0"), Word("-", 40), Span("10")]),
        ("fenced/get", vec![SERVER, Any("lock")]),
        ("fenced/set", [&WRITER[..], &[Count("0"), OneOf("any"), Any("value")]].concat()),
        ("fenced/delete", WRITER.into()),
        ("fenced/enter", WRITER.into()),
        ("client_record/write", vec![SERVER, Count("0"), Span("1000"), Description]),
        ("client_record/read", vec![SERVER]),
    ]
}

/// The calls of the scripts whose name meets the condition, with valid arguments, by ann.
pub fn calls(is_one: impl Fn(&str) -> bool) -> Vec<(&'static str, Vec<String>)> {
    let scripts = scripts().into_iter().filter(|(script, _)| is_one(script));
    scripts.map(|(script, kinds)| (script, kinds.into_iter().map(Kind::valid).collect())).collect()
}

impl Kind {
    fn valid(self) -> String {
        match self {
            Any(text) | Span(text) | Count(text) | Number(text) | Word(text, _) | OneOf(text) => {
                text.into()
            }
            NotAfter => "0".into(),
            Id(name) => id(name),
            Token | Tokens => "1".into(),
            Block => "1024".into(),
            Flags => "f".into(),
            Description => "4711 rwlease/0.1.0 web-1 billing".into(),
            Place => PLACE.into(),
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
            Number(_) => {
                bad.extend(NO_NUMBER.map(String::from));
                bad.extend(["0", "4294967296"].map(String::from));
            }
            Id(_) => bad.extend(NO_ID.map(String::from)),
            Word(_, longest) => {
                bad.extend(NO_WORD.map(String::from));
                bad.push("a".repeat(longest + 1));
            }
            Flags => bad.extend(NO_FLAGS.map(String::from)),
            Block => {
                bad.extend(NO_NUMBER.map(String::from));
                bad.extend(["0", "1025"].map(String::from));
            }
            Tokens => bad.extend(NO_TOKENS.map(String::from)),
            Description => {
                bad.extend(["", "a\nb", "größe", "\x7f", "nul\0"].map(String::from));
                bad.push("a".repeat(257));
            }
            OneOf(_) => bad.extend(["", "x", "K", "Wait", "all", "waits"].map(String::from)),
            Place => {} // see below
        }
        bad
    }
}

/// The states in which a call may find a lock. They take different paths through the scripts.
fn states() -> Vec<(&'static str, Lab)> {
    let held = [
        ("idle", "write old1, release old1"),
        ("written", "write old1"),
        ("read", "read old1"),
        ("waited for", "write old1, wait_read old2, wait_write old3"),
        ("mine", "write ann1"),
    ];
    let absent = ("not_found", Lab::new());
    iter::once(absent).chain(held.map(|(state, calls)| (state, Lab::after(calls)))).collect()
}

impl Lab {
    /// Sends a call with so many keys. It must be refused for its arguments, and change nothing.
    #[track_caller]
    fn refuses(&mut self, state: &str, script: &str, keys: usize, args: &[impl AsRef<str>]) {
        let sent: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let keys = vec![self.key().to_owned(); keys];
        let answer = self.unchanged(|lab| lab.send_keys(script, &keys, args));
        let code = answer.as_ref().map_err(|refusal| refusal.code.as_str());
        assert_eq!(code.err(), Some("LOCKARGS"), "{state}: {script} {keys:?} {sent:?}: {answer:?}");
    }
}

#[test]
fn a_bad_argument_is_refused_and_changes_nothing() {
    for (state, mut lab) in states() {
        for (script, kinds) in scripts() {
            for (at, kind) in kinds.iter().enumerate() {
                for bad in kind.invalid() {
                    let mut args: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
                    args[at] = bad;
                    lab.refuses(state, script, 1, &args);
                }
            }
        }
    }
}

#[test]
fn a_missing_or_surplus_argument_is_refused_and_changes_nothing() {
    for (state, mut lab) in states() {
        for (script, valid) in calls(|_| true) {
            let all = scripts().into_iter().filter(|(other, _)| *other == script);
            let counts: Vec<usize> = all.map(|(_, kinds)| kinds.len()).collect();
            for count in (0..valid.len() + 3).filter(|count| !counts.contains(count)) {
                let mut args = valid.clone();
                args.resize(count, "1".into());
                lab.refuses(state, script, 1, &args);
            }
        }
    }
}

#[test]
fn a_script_has_one_key() {
    for (state, mut lab) in states() {
        for (script, args) in calls(|_| true) {
            [0, 2].into_iter().for_each(|keys| lab.refuses(state, script, keys, &args));
        }
    }
}

/// A valid place, and invalid ones.
const PLACE: &str = "100 1000 10 -";
const LONG_NODE: &str = "1 1 1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const NO_PLACE: [&str; 22] = [
    "",
    " ",
    "1",
    "1 1 1",
    "1 1 1 ",
    "1 1 1 - -",
    " 1 1 1 -",
    "1  1 1 -",
    "1 1 1 -\n",
    "1\t1 1 -",
    "x 1 1 -",
    "1 x 1 -",
    "1 1 x -",
    "1 1 -1 -",
    "1.5 1 1 -",
    "0 1 1 -",
    "1 0 1 -",
    "1000000000001 1 1 -",
    "1 1000000000001 1 -",
    "1 1 10000000000000 -",
    "1 1 1 a:b",
    LONG_NODE,
];

/// The place of a waiter for permits, on the fast path and on the slow path.
#[test]
fn acquire_of_permits_with_a_bad_place_is_rejected_when_it_must_wait() {
    let mut lab = Lab::new();
    let acquire = |name: &str| [HERE, "0", &id(name), "9000", "1", "1", "0"].map(str::to_owned);
    lab.send("semaphore/acquire", &acquire("ann1")).granted();
    let wait = |name: &str, place: &str| [&acquire(name)[..], &[place.to_owned()]].concat();
    lab.send("semaphore/acquire", &wait("bob1", PLACE)).queued();
    for bad in NO_PLACE {
        for slow_path in [false, true] {
            lab.slow_path = slow_path;
            for name in ["bob1", "cid1"] {
                let answer = lab.unchanged(|lab| lab.send("semaphore/acquire", &wait(name, bad)));
                answer.refused_with("LOCKARGS");
            }
        }
    }
}

/// Scripts do not check the place of a caller that need not wait.
#[test]
fn acquire_with_a_bad_place_is_rejected_when_it_must_wait() {
    let mut upgrades = Lab::new();
    upgrades.read("ann1").granted();
    upgrades.read("old1").granted();
    let token = upgrades.token_of("ann1").to_string();
    for bad in NO_PLACE {
        let args = [HERE, "0", &id("ann1"), "1000", &token, "0", bad];
        upgrades.unchanged(|lab| lab.send("upgrade", &args)).refused_with("LOCKARGS");
        for (state, mut lab) in states() {
            for script in ["acquire_read", "acquire_write"] {
                let is_write = script == "acquire_write";
                let waits = match state {
                    "written" | "waited for" => true,
                    "read" => is_write,
                    "mine" => !is_write,
                    _ => false,
                };
                for ticket in [None, Some("1")] {
                    let args = [HERE, "0", &id("ann1"), "1000", "f", "1", "0", bad];
                    let args: Vec<&str> = args.into_iter().chain(ticket).collect();
                    if waits || (ticket.is_some() && state != "mine") {
                        lab.refuses(state, script, 1, &args);
                    } else {
                        lab.send(script, &args).granted();
                        if state != "mine" {
                            lab.release("ann1").unwrap();
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_longest_lease_and_the_longest_id_are_good() {
    let mut lab = Lab::new();
    let longest = "a".repeat(40);
    let lease = "1000000000000";
    let take = |not_after: &str, lease: &str| {
        [HERE, not_after, &longest, lease, "f", "1", "aaaaaaaa"].map(String::from)
    };
    let granted = lab.send("acquire_write", &take("9999999999999", lease)).granted();
    assert_eq!(granted.deadline, lab.now() + 1_000_000_000_000);
    assert_eq!(lab.send("release", &[HERE, &longest]).status(), "released");

    for lease in ["1000000000001", "9999999999999", "1e12.5"] {
        lab.send("acquire_write", &take("0", lease)).refused_with("LOCKARGS");
    }
    let place = format!("{lease} {lease} 9999999999999 {longest}");
    lab.write("old1").granted();
    let waits = [HERE, "0", &longest, lease, "r", "1", "aaaaaaaa", &place];
    lab.send("acquire_read", &waits).queued();
    lab.release("old1").unwrap();
    assert_eq!(lab.send("acquire_read", &waits).granted().deadline, lab.now() + 1_000_000_000_000);
}

#[test]
fn acquire_with_shortest_window_and_ttl_is_queued() {
    let mut lab = Lab::after("write old1");
    for script in ["acquire_read", "acquire_write"] {
        lab.send(script, &[HERE, "0", &id("ann1"), "1", "f", "1", "0", "1 1 1 -"]).queued();
        lab.release("ann1").unwrap();
    }
}

#[test]
fn a_call_that_comes_too_late_does_nothing() {
    for (state, mut lab) in states() {
        lab.pass(10);
        for (script, kinds) in scripts() {
            // The script finds a foreign key before it checks the time.
            let is_foreign = script.starts_with("semaphore/") && state != "not_found";
            if is_foreign || !matches!(kinds.get(1), Some(NotAfter)) {
                continue;
            }
            let mut args: Vec<String> = kinds.iter().map(|kind| kind.valid()).collect();
            for not_after in [1, lab.now() - 1] {
                args[1] = not_after.to_string();
                let answer = lab.unchanged(|lab| lab.send(script, &args)).unwrap();
                assert_eq!(
                    (answer.status.as_str(), answer.more),
                    ("too_late", false),
                    "{state}: {script}"
                );
                assert_eq!((answer.now, answer.rest.len()), (lab.now(), 0));
            }
        }
    }
    let mut lab = Lab::new();
    let just_in_time = lab.now().to_string();
    let args = [HERE, &just_in_time, &id("ann1"), "1000", "f", "1", "0"];
    lab.send("acquire_write", &args).granted();
}
