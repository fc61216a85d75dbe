//! Judges the calls of `cases.txt`: for each rule calls that break it, and calls that break none.
//!
//! A lock is written as words: `-` without a key, `F` if it is idle, `P3` for a semaphore of three
//! permits. A holder is `name:mode:state:deadline:token`, with the permits of mode `p` behind it. A
//! waiter is `name:mode:ticket:fairness:node:seen`, of which the last three have defaults. Further
//! words change a field (`field=value`) or the line (`line/old/new`).
//!
//! In all words, the names `a` to `e` are ids, `@5` is a time, `#5` is a token, and `+` is a space.
//! The client `e` is not subscribed.

use std::collections::{BTreeMap, BTreeSet};

use crate::LockHash;
use crate::step::{Fairness, Message, Setting, Step, first_violation, hash_violation, rules};

const NOW: u64 = 1_700_000_000_000;
const EXPIRES: &str = "@40000";
const NO_CALL: &str = "grant_waiters - 0 -> done @0 0";

/// The replaced names, times and tokens of a text.
fn word(text: &str) -> String {
    let number = |text: &str| text.parse::<i64>().unwrap();
    match text.as_bytes() {
        [b'a'..=b'e'] => format!("{}1", text.repeat(11)),
        [b'@', ..] => NOW.saturating_add_signed(number(&text[1..])).to_string(),
        [b'#', ..] => (NOW * 1_000).saturating_add_signed(number(&text[1..])).to_string(),
        _ if text.contains('+') => text.split('+').map(word).collect::<Vec<_>>().join(" "),
        _ => text.to_owned(),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(word).collect()
}

#[derive(Default)]
struct Builder {
    fields: BTreeMap<String, String>,
    limit: Option<String>,
    readers: Vec<[String; 3]>,
    cached: usize,
    used: u64,
    last: String,
    waiters: Vec<Vec<String>>,
}

impl Builder {
    fn put(&mut self, field: &str, value: impl ToString) {
        self.fields.insert(field.into(), value.to_string());
    }

    fn holder(&mut self, parts: &[&str]) {
        let [id, deadline, token] =
            [parts[0], &format!("@{}", parts[3]), &format!("#{}", parts[4])].map(word);
        let (record, is_cached) =
            (format!("{}{deadline}{token}", parts[2]), matches!(parts[2], "k" | "c"));
        self.last = token.clone().max(self.last.clone());
        if parts[1] == "w" {
            return self.put("writer", record + &id);
        }
        let index = self.readers.len();
        let permits = parts.get(5).map(|permits| format!(" {permits}")).unwrap_or_default();
        self.used += parts.get(5).map_or(0, |permits| permits.parse::<u64>().unwrap());
        self.put(&format!("r:{id}"), format!("{record}{index}{permits}"));
        self.put(&format!("i:{index}"), format!("{}{id}", if is_cached { "+" } else { "" }));
        self.cached += usize::from(is_cached);
        self.readers.push([id, deadline, token]);
    }

    fn queue(&mut self) {
        let part = |waiter: &[String], n: usize, default: &str| match waiter.get(n) {
            Some(part) => part.clone(),
            None => default.to_owned(),
        };
        for waiter in self.waiters.clone() {
            let like = |other: &&Vec<String>| other[1] == waiter[1];
            let same: Vec<String> =
                self.waiters.iter().filter(like).map(|it| word(&it[0])).collect();
            let (id, mode) = (word(&waiter[0]), waiter[1].as_str());
            let place = same.iter().position(|other| *other == id).unwrap();
            let near = |place: Option<usize>| {
                place.and_then(|place| same.get(place)).map_or("-", String::as_str)
            };
            let (previous, next) = (near(place.checked_sub(1)), near(Some(place + 1)));
            let seen = word(&format!("@{}", part(&waiter, 5, "-100")));
            let (ticket, fairness, node) =
                (&waiter[2], part(&waiter, 3, "f"), part(&waiter, 4, "-"));
            self.put(
                &format!("q:{id}"),
                format!("{mode} {previous} {next} {ticket} {seen} 10000 2000 500 {fairness} {node} 0 {NOW}"),
            );
            let (head, tail) = match mode {
                "u" => ("upgrader", "upgrader"),
                _ => crate::lock_hash::ends_of(mode.chars().next().unwrap()),
            };
            self.put(head, &same[0]);
            self.put(tail, &same[same.len() - 1]);
        }
        if !self.waiters.is_empty() {
            let tickets = self.waiters.iter().map(|waiter| waiter[2].parse::<u64>().unwrap());
            self.put("ticket", tickets.max().unwrap());
            self.put("waiters", self.waiters.len());
            let fair =
                self.waiters.iter().filter(|it| it[1] == "w" && part(it, 3, "f") == "f").count();
            if self.limit.is_none() {
                self.put("fair_writers", fair);
            }
        }
    }

    fn line(&mut self) {
        let (readers, used) = (self.readers.len(), self.used);
        let least = self.readers.iter().map(|reader| reader[1].clone()).min();
        let least = least.unwrap_or_else(|| "0".repeat(13));
        let is_queue =
            self.fields.contains_key("writer") || self.cached > 0 || !self.waiters.is_empty();
        let flags = if self.waiters.is_empty() { 0 } else { 2 };
        let (shape, tail) = match &self.limit {
            Some(limit) => ("P", format!("{least}{flags}{limit} {used} {readers}")),
            None if is_queue => ("Q", String::new()),
            None if readers > 0 => ("S", format!("{least}0{readers}")),
            None => ("F", String::new()),
        };
        if shape == "Q" && readers > 0 {
            self.put("readers", readers);
            self.put("read_min", least);
        }
        if self.cached > 0 {
            self.put("cached_readers", self.cached);
        }
        let last = word("#9").max(self.last.clone());
        self.put("s", format!("2{shape}{}{last}{tail}", word(EXPIRES)));
    }
}

fn lock(text: &str) -> LockHash {
    let mut lock = Builder::default();
    let mut expires = word(EXPIRES).parse().ok();
    let (changes, parts): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().partition(|part| part.contains(['=', '/']));
    for part in &parts {
        let parts: Vec<&str> = part.split(':').collect();
        match parts[..] {
            [_, _, ticket, ..] if ticket.parse::<u64>().is_ok() => {
                lock.waiters.push(parts.iter().map(|part| (*part).to_owned()).collect());
            }
            [_, _, _, ..] => lock.holder(&parts),
            _ => lock.limit = part.strip_prefix('P').map(str::to_owned).or(lock.limit),
        }
    }
    if parts != ["-"] {
        lock.queue();
        lock.line();
    }
    for change in changes {
        if let Some((old, new)) = change.strip_prefix("line/").and_then(|it| it.split_once('/')) {
            let line = lock.fields["s"].replacen(&word(old), &word(new), 1);
            lock.put("s", line);
        } else if let Some((field, value)) = change.split_once('=') {
            match field {
                "expires" => expires = word(value).parse().ok(),
                _ if value.is_empty() => drop(lock.fields.remove(field)),
                _ => lock.put(field, word(value)),
            }
        }
    }
    LockHash::decode(lock.fields, expires, NOW)
}

/// The first of the judged rules that a call breaks.
fn judge([call, locks]: [&str; 2], judged: impl Fn(&str) -> bool) -> Option<&'static str> {
    let (call, messages) =
        call.split_once(" ;").map_or((call, None), |(it, sent)| (it, Some(sent)));
    let (call, reply) = call.split_once(" -> ").unwrap();
    let (args, reply) = (words(call), words(reply));
    let (before, after) = locks.split_once(" => ").unwrap();
    let (is_memory_full, before, after) = (before.ends_with(" full"), lock(before), lock(after));
    let messages = messages.map(|sent| Message::decode(&words(sent).join(" ")));
    let hears = |client: &str| Some(!client.starts_with('e'));
    let setting = Setting {
        messages: messages.as_deref(),
        hears: Some(&hears),
        newest: Some(before.number("fence")),
        is_memory_full,
        ..Setting::default()
    };
    let step = Step {
        script: &args[0],
        args: args[1..].iter().map(String::as_str).collect(),
        reply: &reply,
        before: Some(&before),
        after: &after,
        setting,
    };
    let violation = first_violation(&step, judged)?;
    println!("{violation:?}");
    Some(violation.rule)
}

/// The calls of each rule.
fn cases() -> Vec<(&'static str, Vec<[&'static str; 2]>)> {
    let blocks = include_str!("cases.txt").split("\n\n").skip(1);
    let block = |text: &'static str| {
        let mut lines = text.lines();
        let (rule, mut call, mut cases) = (lines.next().unwrap(), None, Vec::new());
        for line in lines {
            match line.strip_prefix("    ") {
                Some(locks) => cases.push([call.take().unwrap_or(NO_CALL), locks]),
                None => call = Some(line.trim()),
            }
        }
        (rule, cases)
    };
    blocks.map(block).collect()
}

#[test]
fn step_rules_accept_what_scripts_do() {
    for case in &cases()[0].1 {
        assert_eq!(judge(*case, |_| true), None, "{case:?}");
    }
}

#[test]
fn each_step_rule_finds_its_faults() {
    let mut tried = BTreeSet::new();
    for (rule, calls) in &cases()[1..] {
        tried.insert(*rule);
        for case in calls {
            assert_eq!(judge(*case, |name| name == *rule), Some(*rule), "{case:?}");
        }
    }
    assert_eq!(tried, rules().collect(), "each rule has its fault");
}

#[test]
fn hash_rules_find_what_a_hash_shows() {
    let rule = |text: &str| hash_violation(&lock(text), &Setting::default()).map(|it| it.rule);
    assert_eq!(rule("a:w:h:3000:10 b:w:1"), None);
    let both = rule("a:w:h:3000:10 b:r:h:3000:11");
    assert_eq!(both, Some("a hash has no reader beside a writer"));
}

#[test]
fn fairness_counts_the_grants_that_pass_a_waiter() {
    let judge = |locks: &[LockHash]| {
        let (mut fairness, reply) = (Fairness::default(), words("done @0 0"));
        locks.windows(2).find_map(|pair| {
            let (before, after, setting) = (Some(&pair[0]), &pair[1], Setting::default());
            let (script, args) = ("grant_waiters", vec!["-", "0"]);
            let step = Step { script, args, reply: &reply, before, after, setting };
            fairness.judge(&step).map(|violation| violation.rule)
        })
    };
    let writes = ["10", "11", "12"].map(|token| lock(&format!("a:w:h:3000:{token} b:r:1")));
    assert_eq!(judge(&writes[..2]), None);
    assert_eq!(judge(&writes), Some("a reader waits for one write phase"));
    let reads =
        [1, 2, 3].map(|phase| lock(&format!("a:r:h:3000:1{phase} b:w:9 reader_phase={phase}")));
    assert_eq!(judge(&reads[..2]), None);
    assert_eq!(judge(&reads), Some("one read phase for each writer before"));
}
