//! The cost of the usual calls: the commands of each, as the heads of the scripts list them. The
//! slow path needs as many or more.

use redis::cmd;

use super::fixture::{Expect, HERE, Lab, start};
use super::request::Request;
use super::state_line_shapes::{follow, make, status};

/// A shape, a call, its answer, and the commands that it runs (`HGET` twice: `hget 2`).
type Row = (&'static str, &'static str, &'static str, &'static str);

/// A key that lives so long that an acquire need not set its life.
const FREE: &str = "write ann, release ann, pass 5, write ann, release ann, pass 5";

/// Locks that others wait for.
const RENEWED_WRITER: &str = "write ann, wait_write cat, pass 5, renew ann, pass 5";
const READER_WITH_TICKET: &str = "read ann, wait_write cat, release cat, pass 5, renew ann, pass 5";
const WRITER_WITH_TICKET: &str = "write ann, wait_write cat, release cat";
const WRITERS_WAIT: &str = "write ann, wait_write cat, wait_write dan";
const BOTH_WAIT: &str = "read ann, wait_write cat, wait_read dan";
const WRITER_BEHIND_READERS: &str = "read ann, read bob, wait_write cat";
const READERS_WAIT: &str = "write ann, wait_read cat, wait_read dan";
const RENEWED_READER: &str = "read ann, wait_write cat, pass 5, renew ann, pass 5";

const ROWS: &[Row] = &[
    ("", "write new", "granted", "exists, hget, hset, pexpireat, time"),
    ("", "read new", "granted", "exists, hget, hset, pexpireat, time"),
    (FREE, "write new", "granted", "hget, hset, time"),
    (FREE, "read new", "granted", "hget, hset, time"),
    (FREE, "wait_write new", "granted", "hget, hset, time"),
    (FREE, "wait_read new", "granted", "hget, hset, time"),
    (FREE, "long_write new", "granted", "hget, hset, pexpireat, time"),
    (FREE, "long_read new", "granted", "hget, hset, pexpireat, time"),
    ("write ann", "write new", "busy", "hget, time"),
    ("write ann", "read new", "busy", "hget, time"),
    ("read ann", "write new", "busy", "hget, time"),
    ("read ann, read bob", "write new", "busy", "hget, time"),
    ("write ann, raise ann", "write new", "busy", "hget, hmget, time"),
    ("read ann, read bob, revoke", "write new", "busy", "hget, hmget, time"),
    ("read ann, pass 5", "read new", "granted", "hget, hset, pexpireat, time"),
    ("long_read ann", "read new", "granted", "hget, hset, time"),
    ("long_read ann, read bob", "read new", "granted", "hget 2, hset, time"),
    ("long_read ann, read bob, release bob", "read new", "granted", "hget 2, hset, time"),
    (FREE, "soft_write new", "granted", "hget, hset, time"),
    (FREE, "soft_read new", "granted", "hget, hset, time"),
    ("write ann", "soft_write new", "busy", "hget, time"),
    ("read ann", "soft_write new", "busy", "hget, time"),
    ("long_read ann", "soft_read new", "granted", "hget, hset, time"),
    ("write ann", "release ann", "released", "hget, hset"),
    ("read ann", "release ann", "released", "hget, hset"),
    ("read ann, read bob", "release bob", "released", "hdel 2, hget 2, hset"),
    ("read ann, read bob", "release ann", "released", "hdel 2, hget 4, hset"),
    ("read ann, read bob, release ann", "release bob", "released", "hdel 2, hget 2, hset"),
    ("write ann, pass 5, renew ann, pass 5", "renew ann", "renewed", "hget, hset, time"),
    ("write ann", "extend ann", "renewed", "hget, hset, pexpireat, time"),
    ("long_write ann, pass 5", "renew ann", "renewed", "hget, hset, time"),
    ("long_read ann, pass 5", "renew ann", "renewed", "hget, hset, time"),
    ("read ann, pass 5, renew ann, pass 5", "renew ann", "renewed", "hget, hset, time"),
    ("read ann, read bob, pass 5, renew ann, pass 5", "renew ann", "renewed", "hget 2, hset, time"),
    (RENEWED_WRITER, "renew ann", "renewed", "hget, hmget, hset, time"),
    (READER_WITH_TICKET, "renew ann", "renewed", "hget 2, hset, time"),
    // The last holder leaves while others wait.
    (WRITER_WITH_TICKET, "release ann", "released", "hdel 2, hget, hmget, hset, time"),
    ("write ann, wait_write cat", "release ann", "released", "hdel 2, hget 2, hmget, hset, time"),
    (WRITERS_WAIT, "release ann", "released", "hdel 2, hget 3, hmget, hset, time"),
    ("read ann, wait_write cat", "release ann", "released", "hdel 2, hget 3, hmget, hset, time"),
    // Contended calls.
    ("write ann, wait_write cat", "wait_write new", "queued", "hget 2, hmget, hset, time"),
    ("write ann, wait_write cat", "wait_read new", "queued", "hget, hmget, hset, time"),
    ("write ann, wait_read cat", "wait_read new", "queued", "hget 2, hmget, hset, time"),
    (BOTH_WAIT, "wait_read new", "queued", "hget 3, hmget, hset, time"),
    ("write ann, wait_write cat", "wait_write cat", "queued", "hget, hmget, hset, time"),
    (WRITERS_WAIT, "wait_write dan", "queued", "hget 2, hmget, hset, time"),
    (BOTH_WAIT, "wait_read dan", "queued", "hget 2, hmget, hset, time"),
    (WRITER_BEHIND_READERS, "release bob", "released", "hdel 2, hget 2, hmget, hset, time"),
    (READERS_WAIT, "release ann", "released", "hdel 2, hget 3, hmget, hset, time"),
    (WRITER_BEHIND_READERS, "grant_waiters", "done", "hget 2, hmget, time"),
    ("write ann, wait_write cat", "grant_waiters", "done", "hget, hmget, time"),
    (RENEWED_READER, "renew ann", "renewed", "hget 2, hmget 2, hset, time"),
    ("cached_read ann, read bob", "wait_read new", "granted", "hget, hmget 2, hset, time"),
];

#[test]
fn script_calls_run_exactly_the_listed_commands() {
    let server = start("");
    let mut wrong = Vec::new();
    for row @ &(from, call, said, costs) in ROWS {
        let mut lab = Lab::on(&server);
        follow(&mut lab, from);
        lab.checked = false; // the check would count as well
        lab.command::<()>(cmd("CONFIG").arg("RESETSTAT"));
        let answer = make(&mut lab, call);
        let found = commands(&mut lab);
        if (status(&answer), found.as_str()) != (said, costs) {
            wrong.push(format!("{row:?}: {answer:?}, {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The queue is a linked list: a hand-off touches the entries at its head, and publishes one
/// message.
#[test]
fn release_with_many_waiters_runs_the_commands_of_one_with_two() {
    let server = start("");
    let costs = [2, 100].map(|waiters| {
        let mut lab = Lab::on(&server);
        let _cat = lab.has_push().then(|| lab.listen_as("cat"));
        lab.write("ann1").granted();
        for number in 0..waiters {
            let request = Request::write(&format!("cat{number}"));
            lab.request(&request.waiting().subscribed(HERE)).queued();
        }
        lab.checked = false; // the check would count as well
        lab.command::<()>(cmd("CONFIG").arg("RESETSTAT"));
        assert_eq!(status(&lab.release("ann1")), "released");
        let costs = commands(&mut lab);
        assert_eq!(costs.contains("spublish"), lab.has_push(), "{costs}");
        assert!(!costs.contains("spublish "), "{costs}");
        costs
    });
    assert_eq!(costs[0], costs[1]);
}

/// A full memory refuses the write of a release; then an `HDEL` lets the same write pass.
#[test]
fn a_refused_write_is_repeated_once() {
    let server = start("maxmemory-policy noeviction");
    for (call, said) in [("release ann", "released"), ("renew ann", "renewed")] {
        let mut lab = Lab::on(&server);
        follow(&mut lab, "write ann");
        lab.set_full(true);
        lab.checked = false; // the check would count as well
        lab.command::<()>(cmd("CONFIG").arg("RESETSTAT"));
        assert_eq!(status(&make(&mut lab, call)), said);
        let stats: String = lab.command(cmd("INFO").arg("commandstats"));
        lab.set_full(false);
        let writes = stats.lines().find(|line| line.starts_with("cmdstat_hset:")).unwrap();
        let has = |count: &str| writes.split([':', ',']).any(|part| part == count);
        // Redis 6.2 does not count what it rejects within a script.
        let is_rejected_once = has("rejected_calls=1") || has("rejected_calls=0");
        assert!(has("calls=1") && is_rejected_once, "{call}: {writes}");
    }
}

/// The commands that the script ran, sorted by name.
pub fn commands(lab: &mut Lab) -> String {
    let stats: String = lab.command(cmd("INFO").arg("commandstats"));
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let times = rest.split(',').next()?;
        // A look at the hash tells a renewal its token.
        let is_of_the_test =
            ["evalsha", "config", "info", "set", "eval", "hgetall", "pttl", "time"]
                .contains(&name.split('|').next()?);
        let name = if name == "get" { "time" } else { name }; // the test's clock reads a key
        (!is_of_the_test).then(|| match times {
            "1" => name.to_owned(),
            _ => format!("{name} {times}"),
        })
    });
    let mut calls: Vec<String> = calls.collect();
    calls.sort();
    calls.join(", ")
}
