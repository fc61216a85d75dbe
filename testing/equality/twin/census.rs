//! Counts how often each fast path was taken and each rare state was reached.

use std::collections::BTreeMap;
use std::fmt;

use oracle::{Holder, LockHash, Waiter};
use rwlease_core::resp::RespValue;

use crate::random_calls::{Call, is_deaf};
use crate::scripts_equal_server::gist;
use crate::side::Outcome;

/// How often the short form must take each fast path at least: a third of the usual counts.
pub const LEAST: &[(&str, u64)] = &[
    ("acquire: a poll", 1),
    ("write: the first of a queue", 1),
    ("write: a place in the queue", 1),
    ("read: the first of a queue", 1),
    ("read: a place in the queue", 1),
    ("grant_waiters: lets readers in", 1),
    ("grant_waiters: nothing to do", 1),
    ("grant_waiters: taken back", 1),
    ("hand-off: by a writer to readers", 1),
    ("release: of a reader while others wait", 1),
    ("hand-off: by a reader to a writer before readers", 1),
    ("renew: a read while others wait", 1),
    ("acquire: a place for a cached lease", 1),
    ("read: granted beside cached readers", 1),
    ("grant_waiters: lets readers in beside cached ones", 0), // two in 150,000 steps
    ("release: of a cached reader", 1),
    ("release: of a cached reader while others wait", 1),
    ("renew: a cached read", 1),
    ("renew: a claim of a cached read", 1),
    ("acquire: a new lock", 38),
    ("hand-off: and the life of the key", 6),
    ("hand-off: by a reader to the first of several", 2),
    ("hand-off: by a reader to the only waiter", 10),
    ("hand-off: by a writer to the first of several", 10),
    ("hand-off: by a writer to the only waiter", 17),
    ("hand-off: taken back", 5),
    ("read: granted beside many readers", 68),
    ("read: granted beside readers", 340),
    ("read: granted to the first", 168),
    ("read: refused by a writer", 8),
    ("release: of one in the middle", 59),
    ("release: of the last in the array", 61),
    ("release: of the only reader", 98),
    ("release: of the writer", 138),
    ("renew: a claim", 24),
    ("renew: a read", 141),
    ("renew: a write", 130),
    ("renew: and the life of the key", 32),
    ("renew: and grants", 44),
    ("renew: a downgrade that was lost", 1),
    ("renew: by another token", 1),
    ("write: granted to a try", 46),
    ("write: granted to a waiting request", 141),
    ("write: refused by a writer", 23),
    ("write: refused by readers", 27),
];

/// The scripts that have fast paths.
const WITH_USUAL_PATHS: [&str; 5] =
    ["acquire_read", "acquire_write", "release", "renew", "grant_waiters"];

/// One call, with all that is known about it.
pub struct Step<'a> {
    pub call: &'a Call,
    pub before: LockHash,
    pub after: LockHash,
    pub quick: &'a Outcome,
    pub slow: &'a Outcome,
    pub us: u64,
    pub went_back: bool,
}

#[derive(Default)]
pub struct Census {
    steps: u64,
    usual: BTreeMap<&'static str, u64>,
    /// With the least number.
    rare: BTreeMap<&'static str, (u64, u64)>,
}

impl Census {
    pub fn count(&mut self, step: &Step<'_>) {
        self.add_step();
        must_be_slow(step.call, step.slow);
        for path in step.usual_paths() {
            self.add(path);
        }
        for (state, least, is_met) in step.rare_states() {
            self.rare.entry(state).or_insert((0, least)).0 += u64::from(is_met);
        }
    }

    /// Counts a fast path.
    pub fn add(&mut self, path: &'static str) {
        *self.usual.entry(path).or_default() += 1;
    }

    pub fn add_step(&mut self) {
        self.steps += 1;
    }

    pub fn must_be_rich(&self, least: &[(&'static str, u64)]) {
        let count = |path: &str| self.usual.get(path).copied().unwrap_or(0);
        let paths = least.iter().map(|(path, least)| (*path, count(path), *least));
        let states = self.rare.iter().map(|(state, (count, least))| (*state, *count, *least));
        let too_seldom: Vec<_> =
            paths.chain(states).filter(|(_, count, least)| count < least).collect();
        assert!(too_seldom.is_empty(), "too seldom: {too_seldom:?}\n{self}");
        let mut paths = self.usual.keys();
        let unexpected = paths.find(|path| least.iter().all(|(name, _)| name != *path));
        assert_eq!(unexpected, None, "without a least number");
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} steps\n\nfast paths", self.steps)?;
        for (what, count) in &self.usual {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(f, "\nrare states")?;
        for (what, (count, _)) in &self.rare {
            writeln!(f, "{count:>9}  {what}")?;
        }
        Ok(())
    }
}

impl Step<'_> {
    /// The fast paths that this call took on the quick side.
    fn usual_paths(&self) -> Vec<&'static str> {
        let said = gist(&self.quick.reply).unwrap_or_default();
        let (script, is_answer) = (self.call.script, is_answer(&self.quick.reply));
        if !is_answer || !WITH_USUAL_PATHS.contains(&script) {
            return Vec::new();
        }
        match self.quick.slow_path.as_deref() {
            None if script == "grant_waiters"
                && self.grants()
                && self.number("cached_readers") > 0 =>
            {
                vec!["grant_waiters: lets readers in beside cached ones"]
            }
            None if script == "grant_waiters" && self.grants() => {
                vec!["grant_waiters: lets readers in"]
            }
            None if script == "grant_waiters" => vec!["grant_waiters: nothing to do"],
            None if script == "release" => self.usual_releases(),
            None if script == "renew" => self.usual_renewal(&said),
            None if said == "queued" && self.call.args[4].ends_with(b"k") => {
                vec![self.usual_acquire(&said), "acquire: a place for a cached lease"]
            }
            None => vec![self.usual_acquire(&said)],
            Some(b"unheard") if script == "grant_waiters" => vec!["grant_waiters: taken back"],
            Some(b"unheard") => vec!["hand-off: taken back"],
            Some(_) if script == "renew" => self.other_renewal(&said),
            Some(_) => Vec::new(),
        }
    }

    fn usual_acquire(&self, said: &str) -> &'static str {
        let (is_write, tries) = (self.call.script == "acquire_write", self.call.args.len() == 7);
        let is_new = self.before.fields.is_empty();
        let (others, waits) = (self.number("readers"), self.number("waiters"));
        match (said, is_write) {
            ("granted", _) if is_new => "acquire: a new lock",
            ("granted", true) if tries => "write: granted to a try",
            ("granted", true) => "write: granted to a waiting request",
            ("granted", false) if self.number("cached_readers") > 0 => {
                "read: granted beside cached readers"
            }
            ("granted", false) if others > 8 => "read: granted beside many readers",
            ("granted", false) if others > 0 => "read: granted beside readers",
            ("granted", false) => "read: granted to the first",
            ("queued", _) if self.before.waiters.contains_key(self.caller()) => "acquire: a poll",
            ("queued", true) if waits == 0 => "write: the first of a queue",
            ("queued", true) => "write: a place in the queue",
            ("queued", false) if waits == 0 => "read: the first of a queue",
            ("queued", false) => "read: a place in the queue",
            ("busy", true) if others > 0 => "write: refused by readers",
            ("busy", true) => "write: refused by a writer",
            ("busy", false) => "read: refused by a writer",
            _ => "acquire: something else",
        }
    }

    fn usual_releases(&self) -> Vec<&'static str> {
        let mut paths = vec![self.usual_release()];
        if self.number("waiters") > 0 && self.before.expires < self.after.expires {
            paths.push("hand-off: and the life of the key");
        }
        if self.own_record().is_some_and(|record| !record.writes && record.is_cached()) {
            paths.push(match self.number("waiters") {
                0 => "release: of a cached reader",
                _ => "release: of a cached reader while others wait",
            });
        }
        paths
    }

    fn usual_release(&self) -> &'static str {
        let writes = writes(&self.before, self.caller());
        let index = self.own_record().map(|record| record.index);
        let last = self.number("readers").checked_sub(1);
        let waits = self.number("waiters");
        let reads_next = self.before.fields.contains_key("readers_head");
        match (writes, waits) {
            (true, 0) => "release: of the writer",
            (false, 0) if last == Some(0) => "release: of the only reader",
            (false, 0) if index == last => "release: of the last in the array",
            (false, 0) => "release: of one in the middle",
            (true, _) if reads_next => "hand-off: by a writer to readers",
            (false, _) if last > Some(0) => "release: of a reader while others wait",
            (false, _) if reads_next => "hand-off: by a reader to a writer before readers",
            (true, 1) => "hand-off: by a writer to the only waiter",
            (true, _) => "hand-off: by a writer to the first of several",
            (false, 1) => "hand-off: by a reader to the only waiter",
            (false, _) => "hand-off: by a reader to the first of several",
        }
    }

    fn usual_renewal(&self, said: &str) -> Vec<&'static str> {
        let record = self.own_record();
        let writes = record.is_some_and(|record| record.writes);
        let mut paths = vec![match (said, writes) {
            ("renewed", true) => "renew: a write",
            ("renewed", false) => "renew: a read",
            _ => "renew: what is revoked",
        }];
        let is_claim = record.is_some_and(|record| !record.is_claimed());
        if is_claim {
            paths.push("renew: a claim");
        }
        if self.call.args.len() == 6 {
            paths.push(if is_claim {
                "renew: a claim of a cached read"
            } else {
                "renew: a cached read"
            });
        }
        if self.number("waiters") > 0 && !writes {
            paths.push("renew: a read while others wait");
        }
        if self.before.expires != self.after.expires {
            paths.push("renew: and the life of the key");
        }
        paths
    }

    fn other_renewal(&self, said: &str) -> Vec<&'static str> {
        let writes = |lock| writes(lock, self.caller());
        match said {
            "other" => vec!["renew: by another token"],
            "renewed" | "revoked" if writes(&self.before) && !writes(&self.after) => {
                vec!["renew: a downgrade that was lost"]
            }
            "renewed" | "revoked" => vec!["renew: and grants"],
            _ => Vec::new(),
        }
    }

    /// The rare states: how often the short form must reach each at least, a third of the usual
    /// count, and whether this call has.
    fn rare_states(&self) -> Vec<(&'static str, u64, bool)> {
        let (before, after) = (&self.before.fields, &self.after.fields);
        let has = |field: &str| before.contains_key(field);
        let changed = |field: &str| before.get(field) != after.get(field);
        let now = self.us / 1000;
        let is_used = has("writer") || has("readers") || has("waiters");
        let [shape, next_shape] = [self.before.shape(), self.after.shape()];
        let dead = self.before.records().filter(|record| record.deadline <= now).count();
        let said = gist(&self.quick.reply).unwrap_or_default();
        let acquires = self.call.script.starts_with("acquire");
        let place = self.after.waiters.get(self.caller());
        let joins = acquires && !self.before.waiters.contains_key(self.caller());
        let asked =
            self.call.args.get(8).and_then(|word| str::from_utf8(word).ok()?.parse::<u64>().ok());
        let returns = joins && asked.is_some_and(|ticket| ticket > 0) && place.is_some();
        vec![
            ("the clock goes back", 97, self.went_back),
            ("the clock is behind the last token", 465, self.number("fence") >= self.us),
            ("the clock stands at the last token", 145, self.number("fence") == self.us),
            ("the memory is full", 138, said == "OOM"),
            ("a call comes too late", 462, said == "too_late"),
            ("a token is too far ahead", 1, said == "ahead"),
            ("more is left over", 9, says_more(&self.quick.reply)),
            (
                "a grant lapses",
                81,
                after.contains_key("lapsed_clients") && changed("lapsed_clients"),
            ),
            (
                "a waiter is dead for its client's lapse",
                158,
                self.waiters().any(|waiter| self.has_lapsed(waiter)),
            ),
            ("a grant is taken back", 40, self.waiters().any(|waiter| self.is_taken_back(waiter))),
            (
                "a dead waiter is in the queue",
                849,
                self.waiters().any(|waiter| waiter.ends() <= now),
            ),
            ("a dead holder is in the way", 700, dead > 0),
            ("several dead readers are in the way", 92, dead > 2),
            (
                "a lease ends at this moment",
                29,
                self.own_record().is_some_and(|record| record.deadline == now),
            ),
            ("an upgrader waits", 75, has("upgrader")),
            ("another call grants the upgrade", 1, self.grants_the_upgrade()),
            (
                "a sweep begins that takes several calls",
                91,
                !has("sweep") && after.contains_key("sweep"),
            ),
            (
                "a sweep goes on",
                98,
                has("sweep") && after.contains_key("sweep") && changed("sweep"),
            ),
            ("a sweep ends", 90, has("sweep") && !after.contains_key("sweep")),
            ("readers are forced out", 2, has("forced_up_to")),
            ("holders are revoked", 1327, has("revoked_up_to") && is_used),
            ("readers of a phase wait", 563, has("reader_phase") && has("readers_head")),
            ("a waiter is put back", 74, returns),
            (
                "a waiter is put back before others",
                27,
                returns && place.is_some_and(|place| place.next != "-"),
            ),
            ("a ticket leaps", 9, returns && place.is_some_and(|place| Some(place.ticket) < asked)),
            (
                "the ninth reader comes",
                26,
                self.number("readers") == 8
                    && after.get("readers").is_some_and(|count| count == "9"),
            ),
            ("the hash is a table", 1429, has("pad")),
            ("a ticket stands beside readers", 1, shape == "S" && has("ticket")),
            ("a sole holder gets a queue", 1, (shape == "W" || shape == "R") && next_shape == "Q"),
            ("readers get a queue", 1, shape == "S" && next_shape == "Q"),
            ("a queue ends with readers", 1, shape == "Q" && next_shape == "S"),
            ("a queue ends with nobody", 1, shape == "Q" && next_shape == "F"),
            ("a sole holder is revoked", 1, shape == "W" && has("revoked_up_to")),
            ("a cached holder is called back", 1, self.is_called_back()),
            (
                "a cached reader is among others",
                1,
                has("cached_readers") && self.number("readers") > 1,
            ),
            (
                "a pass of a recall goes on",
                1,
                has("recall_cursor") && has("cached_readers") && changed("recall_cursor"),
            ),
            ("one in use was cached", 1, self.before.records().any(|record| record.state == 'b')),
            ("a long lease", 1, before.get("flags").is_some_and(|flags| flags == "1")),
            ("more than 16 readers", 54, self.number("readers") > 16),
            ("more than 16 waiters", 90, self.number("waiters") > 16),
        ]
    }

    fn is_called_back(&self) -> bool {
        let state = |lock: &LockHash, id: &str| lock.record(id).map(|record| record.state);
        let mut cached = self.before.records().filter(|record| record.state == 'k');
        cached.any(|record| state(&self.after, &record.id) == Some('c'))
    }

    /// Whether somebody who waited holds now.
    fn grants(&self) -> bool {
        self.before.fields.get("fence") != self.after.fields.get("fence")
    }

    fn caller(&self) -> &str {
        self.call.id()
    }

    fn number(&self, field: &str) -> u64 {
        self.before.number(field)
    }

    fn own_record(&self) -> Option<&Holder> {
        let writer = self.before.writer.as_ref().filter(|writer| writer.id == self.caller());
        self.before.readers.get(self.caller()).or(writer)
    }

    /// The waiters before the call, without the caller.
    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.before.waiters.values().filter(|waiter| waiter.id != self.caller())
    }

    fn has_lapsed(&self, waiter: &Waiter) -> bool {
        let mut lapses = self.before.lapsed.iter();
        lapses.any(|(client, at)| client == waiter.client() && *at > waiter.last_seen)
    }

    /// It lived, and is gone without having held: its client is not subscribed at the server that
    /// it named.
    fn is_taken_back(&self, waiter: &Waiter) -> bool {
        let is_gone = !self.after.waiters.contains_key(&waiter.id)
            && !self.after.readers.contains_key(&waiter.id)
            && !writes(&self.after, &waiter.id);
        let lives = waiter.ends() > self.us / 1000 && !self.has_lapsed(waiter);
        is_gone && lives && waiter.node == "here" && is_deaf(&waiter.id) && waiter.mode != 'u'
    }

    fn grants_the_upgrade(&self) -> bool {
        let upgrader = self.before.text("upgrader").filter(|id| *id != self.caller());
        upgrader.is_some_and(|id| writes(&self.after, id))
    }
}

/// Fails if a call has taken a fast path on the side that has none.
pub fn must_be_slow(call: &Call, slow: &Outcome) {
    let is_slow = !is_answer(&slow.reply) || slow.slow_path.is_some();
    assert!(is_slow, "{} has a fast path on the slow side too", call.script);
}

fn writes(lock: &LockHash, id: &str) -> bool {
    lock.writer.as_ref().is_some_and(|writer| writer.id == id)
}

/// Returns true if a script has left something over.
pub fn says_more(reply: &RespValue) -> bool {
    let words = |text: &bytes::Bytes| text.split(|byte| *byte == b' ').nth(2) == Some(b"1");
    matches!(reply, RespValue::String(text) if words(text))
}

/// Returns true if a script finished.
fn is_answer(reply: &RespValue) -> bool {
    matches!(reply, RespValue::String(_) | RespValue::Array(_))
}
