//! Counts how often each fast path was taken and each rare state was reached.

use std::collections::BTreeMap;
use std::fmt;

use super::super::random_calls::{Call, is_deaf};
use super::super::scripts_equal_server::gist;
use super::conditions::{Condition, conditions};
use super::side::{Lock, Outcome};
use crate::backend::RespValue;

/// The least counts of the short form: a third of the usual ones.
const LEAST: &[(&str, u64)] = &[
    ("acquire: a poll", 1),
    ("write: the first of a queue", 1),
    ("write: a place in the queue", 1),
    ("read: the first of a queue", 1),
    ("read: a place in the queue", 1),
    ("pump: lets readers in", 1),
    ("pump: nothing to do", 1),
    ("pump: taken back", 1),
    ("hand-off: by a writer to readers", 1),
    ("release: of a reader while others wait", 1),
    ("hand-off: by a reader to a writer before readers", 1),
    ("renew: a read while others wait", 1),
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
    ("renew: and the pump", 44),
    ("renew: a downgrade that was lost", 1),
    ("renew: by another token", 1),
    ("write: granted to a try", 46),
    ("write: granted to a waiting request", 141),
    ("write: refused by a writer", 23),
    ("write: refused by readers", 27),
    ("a call comes too late", 462),
    ("a dead holder is in the way", 700),
    ("a dead waiter is in the queue", 849),
    ("a grant is taken back", 40),
    ("a grant lapses", 81),
    ("a lease ends at this moment", 29),
    ("a cached holder is called back", 1),
    ("a cached reader is among others", 1),
    ("a long lease", 1),
    ("a pass of a recall goes on", 1),
    ("a queue ends with nobody", 1),
    ("a queue ends with readers", 1),
    ("a sole holder gets a queue", 1),
    ("a sole holder is revoked", 1),
    ("a ticket stands beside readers", 1),
    ("readers get a queue", 1),
    ("a sweep begins that takes several calls", 91),
    ("a sweep ends", 90),
    ("a sweep goes on", 98),
    ("a ticket leaps", 9),
    ("a token is too far ahead", 1),
    ("a waiter is dead for its client's lapse", 158),
    ("a waiter is put back", 74),
    ("a waiter is put back before others", 27),
    ("an upgrader waits", 75),
    ("one in use was cached", 1),
    ("another call grants the upgrade", 1),
    ("holders are revoked", 1327),
    ("more is left over", 9),
    ("more than 16 readers", 54),
    ("more than 16 waiters", 90),
    ("readers are forced out", 2),
    ("readers of a phase wait", 563),
    ("several dead readers are in the way", 92),
    ("the clock goes back", 97),
    ("the clock is behind the last token", 465),
    ("the clock stands at the last token", 145),
    ("the hash is a table", 1429),
    ("the memory is full", 138),
    ("the ninth reader comes", 26),
];

/// The scripts that have fast paths.
const WITH_USUAL_PATHS: [&str; 5] = ["acquire_read", "acquire_write", "release", "renew", "pump"];

/// One call, with all that is known about it.
pub(super) struct Step<'a> {
    pub(super) call: &'a Call,
    pub(super) before: &'a Lock,
    pub(super) after: &'a Lock,
    pub(super) quick: &'a Outcome,
    pub(super) slow: &'a Outcome,
    pub(super) us: u64,
    pub(super) went_back: bool,
}

#[derive(Default)]
pub(super) struct Census {
    steps: u64,
    usual: BTreeMap<&'static str, u64>,
    rare: BTreeMap<&'static str, u64>,
    /// By contended call: how often all conditions of its fast path held, how often it took that
    /// path, and how often each condition was the only one that did not hold.
    contended: BTreeMap<&'static str, Contended>,
    /// By script and status.
    said: BTreeMap<(&'static str, String), u64>,
}

/// The counts of one kind of contended call.
#[derive(Default)]
struct Contended {
    calls: u64,
    could: u64,
    did: u64,
    alone: BTreeMap<&'static str, u64>,
}

impl Census {
    pub(super) fn count(&mut self, step: &Step<'_>) {
        self.steps += 1;
        if let Some(said) = gist(&step.quick.reply) {
            let is_answer = is_answer(&step.slow.reply);
            assert!(
                !is_answer || step.slow.slow_path.is_some(),
                "{} has a fast path on the slow side too",
                step.call.script
            );
            *self.said.entry((step.call.script, said)).or_default() += 1;
        }
        for path in step.usual_paths() {
            *self.usual.entry(path).or_default() += 1;
        }
        if let Some((path, conditions)) = step.conditions() {
            let counts = self.contended.entry(path).or_default();
            let failed: Vec<_> = conditions.iter().filter(|(_, holds)| !holds).collect();
            counts.calls += 1;
            counts.could += u64::from(failed.is_empty());
            let is_fast = step.quick.slow_path.is_none();
            counts.did +=
                u64::from(is_fast && gist(&step.quick.reply).is_none_or(|said| said != "granted"));
            if let [(condition, _)] = failed[..] {
                *counts.alone.entry(condition).or_default() += 1;
            }
        }
        for (state, is_met) in step.rare_states() {
            *self.rare.entry(state).or_default() += u64::from(is_met);
        }
    }

    pub(super) fn must_be_rich(&self) {
        let count = |what: &str| self.usual.get(what).or(self.rare.get(what)).copied().unwrap_or(0);
        let too_seldom: Vec<_> =
            LEAST.iter().filter(|(what, least)| count(what) < *least).collect();
        assert!(too_seldom.is_empty(), "too seldom: {too_seldom:?}\n{self}");
        let counted = self.usual.keys().chain(self.rare.keys());
        let unexpected: Vec<_> =
            counted.filter(|what| LEAST.iter().all(|(name, _)| name != *what)).collect();
        assert!(unexpected.is_empty(), "without a least number: {unexpected:?}");
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} steps\n\nfast paths", self.steps)?;
        for (what, count) in &self.usual {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(f, "\ncontended calls")?;
        for (path, counts) in &self.contended {
            let Contended { calls, could, did, alone } = counts;
            writeln!(f, "{calls:>9}  {path}: {could} could take the fast path, {did} did")?;
            for (condition, count) in alone {
                writeln!(f, "{count:>9}    not: {condition}")?;
            }
        }
        writeln!(f, "\nrare states")?;
        for (what, count) in &self.rare {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(f, "\nanswers")?;
        for ((script, said), count) in &self.said {
            writeln!(f, "{count:>9}  {script} {said}")?;
        }
        Ok(())
    }
}

impl Step<'_> {
    /// The conditions of the fast path that this call could take beside a queue.
    fn conditions(&self) -> Option<(&'static str, Vec<Condition>)> {
        let said = gist(&self.slow.reply).unwrap_or_default();
        let waits = matches!(said.as_str(), "queued" | "full" | "granted");
        let is_judged =
            is_answer(&self.slow.reply) && (waits || !self.call.script.starts_with("acquire"));
        is_judged.then(|| conditions(self.call, self.before, self.us)).flatten()
    }

    /// The fast paths that this call took on the quick side.
    fn usual_paths(&self) -> Vec<&'static str> {
        let said = gist(&self.quick.reply).unwrap_or_default();
        let (script, is_answer) = (self.call.script, is_answer(&self.quick.reply));
        if !is_answer || !WITH_USUAL_PATHS.contains(&script) {
            return Vec::new();
        }
        match self.quick.slow_path.as_deref() {
            None if script == "pump" && self.grants() => vec!["pump: lets readers in"],
            None if script == "pump" => vec!["pump: nothing to do"],
            None if script == "release" => self.usual_releases(),
            None if script == "renew" => self.usual_renewal(&said),
            None => vec![self.usual_acquire(&said)],
            Some(b"unheard") if script == "pump" => vec!["pump: taken back"],
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
            ("granted", false) if others > 8 => "read: granted beside many readers",
            ("granted", false) if others > 0 => "read: granted beside readers",
            ("granted", false) => "read: granted to the first",
            ("queued", _) if self.before.fields.contains_key(&format!("q:{}", self.caller())) => {
                "acquire: a poll"
            }
            ("queued", true) if waits == 0 => "write: the first of a queue",
            ("queued", true) => "write: a place in the queue",
            ("queued", false) if waits == 0 => "read: the first of a queue",
            ("queued", false) => "read: a place in the queue",
            ("refused", true) if others > 0 => "write: refused by readers",
            ("refused", true) => "write: refused by a writer",
            ("refused", false) => "read: refused by a writer",
            _ => "acquire: something else",
        }
    }

    fn usual_releases(&self) -> Vec<&'static str> {
        let mut paths = vec![self.usual_release()];
        if self.number("waiters") > 0 && self.before.ends < self.after.ends {
            paths.push("hand-off: and the life of the key");
        }
        paths
    }

    fn usual_release(&self) -> &'static str {
        let writes = self.record("writer").is_some_and(|record| record.rest == self.caller());
        let index = self.own_record().and_then(|record| record.rest.parse::<u64>().ok());
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
        let writes = record.as_ref().is_some_and(|record| record.rest == self.caller());
        let mut paths = vec![match (said, writes) {
            ("renewed", true) => "renew: a write",
            ("renewed", false) => "renew: a read",
            _ => "renew: what is revoked",
        }];
        if record.is_some_and(|record| record.state == "g") {
            paths.push("renew: a claim");
        }
        if self.number("waiters") > 0 && !writes {
            paths.push("renew: a read while others wait");
        }
        if self.before.ends != self.after.ends {
            paths.push("renew: and the life of the key");
        }
        paths
    }

    fn other_renewal(&self, said: &str) -> Vec<&'static str> {
        let writes = |lock: &Lock| {
            let writer = lock.fields.get("writer").and_then(|record| record.get(30..));
            writer == Some(self.caller())
        };
        match said {
            "other" => vec!["renew: by another token"],
            "renewed" | "revoked" if writes(self.before) && !writes(self.after) => {
                vec!["renew: a downgrade that was lost"]
            }
            "renewed" | "revoked" => vec!["renew: and the pump"],
            _ => Vec::new(),
        }
    }

    fn rare_states(&self) -> Vec<(&'static str, bool)> {
        let (before, after) = (&self.before.fields, &self.after.fields);
        let has = |field: &str| before.contains_key(field);
        let changed = |field: &str| before.get(field) != after.get(field);
        let now = self.us / 1000;
        let is = |shape: &str, fields: &BTreeMap<String, String>| {
            fields.get("shape").is_some_and(|is| is == shape)
        };
        let is_used = has("writer") || has("readers") || has("waiters");
        let records =
            || before.iter().filter(|(field, _)| *field == "writer" || field.starts_with("r:"));
        let dead = records()
            .filter(|(_, text)| Record::of(text).is_some_and(|record| record.deadline <= now))
            .count();
        let said = gist(&self.quick.reply).unwrap_or_default();
        let acquires = self.call.script.starts_with("acquire");
        let place = after.get(&format!("q:{}", self.caller())).and_then(|text| Waiter::of(text));
        let joins = acquires && !has(&format!("q:{}", self.caller()));
        let asked =
            self.call.args.get(8).and_then(|word| str::from_utf8(word).ok()?.parse::<u64>().ok());
        let returns = joins && asked.is_some_and(|ticket| ticket > 0) && place.is_some();
        vec![
            ("the clock goes back", self.went_back),
            ("the clock is behind the last token", self.number("fence") >= self.us),
            ("the clock stands at the last token", self.number("fence") == self.us),
            ("the memory is full", said == "OOM"),
            ("a call comes too late", said == "stale"),
            ("a token is too far ahead", said == "ahead"),
            ("more is left over", says_more(&self.quick.reply)),
            ("a grant lapses", after.contains_key("lapsed") && changed("lapsed")),
            (
                "a waiter is dead for its client's lapse",
                self.waiters().any(|(id, waiter)| self.has_lapsed(id, &waiter)),
            ),
            (
                "a grant is taken back",
                self.waiters().any(|(id, waiter)| self.is_taken_back(id, &waiter)),
            ),
            ("a dead waiter is in the queue", self.waiters().any(|(_, waiter)| waiter.ends <= now)),
            ("a dead holder is in the way", dead > 0),
            ("several dead readers are in the way", dead > 2),
            (
                "a lease ends at this moment",
                self.own_record().is_some_and(|record| record.deadline == now),
            ),
            ("an upgrader waits", has("upgrader")),
            ("another call grants the upgrade", self.grants_the_upgrade()),
            (
                "a sweep begins that takes several calls",
                !has("sweep") && after.contains_key("sweep"),
            ),
            ("a sweep goes on", has("sweep") && after.contains_key("sweep") && changed("sweep")),
            ("a sweep ends", has("sweep") && !after.contains_key("sweep")),
            ("readers are forced out", has("forced")),
            ("holders are revoked", has("revoked") && is_used),
            ("readers of a phase wait", has("phase") && has("readers_head")),
            ("a waiter is put back", returns),
            (
                "a waiter is put back before others",
                returns && place.as_ref().is_some_and(|place| place.next != "-"),
            ),
            ("a ticket leaps", returns && place.is_some_and(|place| Some(place.ticket) < asked)),
            (
                "the ninth reader comes",
                self.number("readers") == 8
                    && after.get("readers").is_some_and(|count| count == "9"),
            ),
            ("the hash is a table", has("wide")),
            ("a ticket stands beside readers", is("S", before) && has("ticket")),
            ("a sole holder gets a queue", (is("W", before) || is("R", before)) && is("Q", after)),
            ("readers get a queue", is("S", before) && is("Q", after)),
            ("a queue ends with readers", is("Q", before) && is("S", after)),
            ("a queue ends with nobody", is("Q", before) && is("F", after)),
            ("a sole holder is revoked", is("W", before) && has("revoked")),
            ("a cached holder is called back", self.is_called_back()),
            ("a cached reader is among others", has("cached") && self.number("readers") > 1),
            ("a pass of a recall goes on", has("recall") && has("cached") && changed("recall")),
            ("one in use was cached", records().any(|(_, text)| text.starts_with('b'))),
            ("a long lease", before.get("flags").is_some_and(|flags| flags == "1")),
            ("more than 16 readers", self.number("readers") > 16),
            ("more than 16 waiters", self.number("waiters") > 16),
        ]
    }

    fn is_called_back(&self) -> bool {
        let mut holders = self.before.fields.iter();
        holders.any(|(field, text)| {
            let after = self.after.fields.get(field);
            text.starts_with('k') && after.is_some_and(|after| after.starts_with('c'))
        })
    }

    /// Whether somebody who waited holds now.
    fn grants(&self) -> bool {
        self.before.fields.get("fence") != self.after.fields.get("fence")
    }

    fn caller(&self) -> &str {
        self.call.id()
    }

    fn number(&self, field: &str) -> u64 {
        self.before.fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn record(&self, field: &str) -> Option<Record<'_>> {
        self.before.fields.get(field).and_then(|text| Record::of(text))
    }

    fn own_record(&self) -> Option<Record<'_>> {
        let writes = self.record("writer").filter(|record| record.rest == self.caller());
        self.record(&format!("r:{}", self.caller())).or(writes)
    }

    /// The waiters before the call, without the caller.
    fn waiters(&self) -> impl Iterator<Item = (&str, Waiter<'_>)> {
        let entries = self.before.fields.iter();
        let waiters = entries
            .filter_map(|(field, text)| Some((field.strip_prefix("q:")?, Waiter::of(text)?)));
        waiters.filter(|(id, _)| *id != self.caller())
    }

    fn has_lapsed(&self, id: &str, waiter: &Waiter<'_>) -> bool {
        let lapsed = self.before.fields.get("lapsed").map_or("", String::as_str);
        let words: Vec<&str> = lapsed.split(' ').collect();
        let mut lapses = words.chunks_exact(2);
        lapses.any(|lapse| {
            id.starts_with(lapse[0]) && lapse[1].parse().is_ok_and(|at: u64| at > waiter.seen)
        })
    }

    /// It lived, and is gone without having held: its client is not subscribed at the server that
    /// it named.
    fn is_taken_back(&self, id: &str, waiter: &Waiter<'_>) -> bool {
        let after = &self.after.fields;
        let is_gone = !["q:", "r:"].iter().any(|kind| after.contains_key(&format!("{kind}{id}")))
            && after.get("writer").is_none_or(|writer| !writer.ends_with(id));
        let lives = waiter.ends > self.us / 1000 && !self.has_lapsed(id, waiter);
        is_gone && lives && waiter.node == "here" && is_deaf(id) && waiter.mode != "u"
    }

    fn grants_the_upgrade(&self) -> bool {
        let upgrader = self.before.fields.get("upgrader").filter(|id| *id != self.caller());
        let writer = self.after.fields.get("writer");
        upgrader.zip(writer).is_some_and(|(id, writer)| writer.ends_with(id.as_str()))
    }
}

/// Returns true if a script has left something over.
pub(super) fn says_more(reply: &RespValue) -> bool {
    let words = |text: &bytes::Bytes| text.split(|byte| *byte == b' ').nth(2) == Some(b"1");
    matches!(reply, RespValue::String(text) if words(text))
}

/// Returns true if a script finished.
fn is_answer(reply: &RespValue) -> bool {
    matches!(reply, RespValue::String(_) | RespValue::Array(_))
}

/// A holder's record.
pub(super) struct Record<'a> {
    pub(super) state: &'a str,
    pub(super) deadline: u64,
    pub(super) rest: &'a str,
}

impl Record<'_> {
    pub(super) fn of(text: &str) -> Option<Record<'_>> {
        Some(Record {
            state: text.get(..1)?,
            deadline: text.get(1..14)?.parse().ok()?,
            rest: text.get(30..)?,
        })
    }
}

/// A waiter's entry.
pub(super) struct Waiter<'a> {
    pub(super) mode: &'a str,
    pub(super) next: &'a str,
    pub(super) ticket: u64,
    pub(super) seen: u64,
    /// When it is dead if it does not call.
    pub(super) ends: u64,
    pub(super) fairness: &'a str,
    pub(super) node: &'a str,
}

impl Waiter<'_> {
    pub(super) fn of(text: &str) -> Option<Waiter<'_>> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some(Waiter {
            mode: words.first()?,
            next: words.get(2)?,
            ticket: number(3)?,
            seen: number(4)?,
            ends: number(4)? + number(5)?,
            fairness: words.get(8)?,
            node: words.get(9)?,
        })
    }
}
